// Oracle: a well-behaved client beside the hostile ones, which must get right answers at any time; and the limits that
// the header promises.
#include <arpa/inet.h>
#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "rendezvous/socket.h"
#include "rendezvous/wire.h"
#include "support/patience.h"
#include "trireme/base/error.h"
#include "trireme/rendezvous/store.h"

namespace trireme::rendezvous {
namespace {

using std::chrono::milliseconds;
using wire::Query;
constexpr milliseconds kLong = trireme::test::kPatience;

class HostileClientTest : public testing::Test {
 protected:
  [[nodiscard]] Fd connect() const {
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server_->port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }
  [[nodiscard]] static std::string hello() {
    wire::Writer writer;
    writer.query(Query::kValidate);
    writer.number(wire::kMagic);
    return writer.bytes();
  }
  static void send_all(const Fd& fd, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;  // it hung up on us, as it may
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  /// Whether the server closes the connection; reads and drops what it sends before.
  static bool is_closed(const Fd& fd) {
    char buffer[4096];
    while (true) {
      pollfd item{fd.get(), POLLIN, 0};
      if (poll(&item, 1, static_cast<int>(kLong.count())) <= 0) return false;
      if (recv(fd.get(), buffer, sizeof(buffer), 0) <= 0) return true;
    }
  }
  void expect_server_is_well() {
    const std::string value = std::to_string(++round_);
    good_->set("good", value);
    EXPECT_EQ(good_->get("good", kLong), value);
    EXPECT_EQ(connect_tcp_store("127.0.0.1", server_->port(), kLong)->get("good", kLong), value);
  }

  std::unique_ptr<TcpStoreServer> server_ = start_tcp_store_server({});
  std::shared_ptr<Store> good_ = connect_tcp_store("127.0.0.1", server_->port(), kLong);
  int round_ = 0;
};

TEST_F(HostileClientTest, WrongGreetingsAreHungUpOn) {
  for (const std::string& greeting :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\0\x01\x02\x03\x04", 5), std::string("\x16\x03\x01", 3)}) {
    const Fd fd = connect();
    send_all(fd, greeting);
    EXPECT_TRUE(is_closed(fd)) << greeting;
  }
  expect_server_is_well();
}

TEST_F(HostileClientTest, LengthsBeyondTheLimitsAreHungUpOn) {
  const auto expect_closed = [&](const wire::Writer& request, const char* what) {
    const Fd fd = connect();
    send_all(fd, hello() + request.bytes());
    EXPECT_TRUE(is_closed(fd)) << what;
  };
  for (const uint64_t size : {uint64_t{wire::kMaxKeyBytes} + 1, uint64_t{1} << 40, ~uint64_t{0}, ~uint64_t{0} - 8}) {
    wire::Writer key;
    key.query(Query::kGet);
    key.number(size);
    expect_closed(key, "key");
    wire::Writer value;
    value.query(Query::kSet);
    value.text("/k");
    value.number(std::max(size, uint64_t{wire::kMaxValueBytes} + 1));
    expect_closed(value, "value");
    for (const Query query : {Query::kWait, Query::kCheck, Query::kMultiGet, Query::kMultiSet}) {
      wire::Writer keys;
      keys.query(query);
      keys.number(std::max(size, uint64_t{wire::kMaxKeys} + 1));
      expect_closed(keys, "number of keys");
    }
  }
  for (int code = static_cast<int>(Query::kBarrier) + 1; code < 256; code += 17) {
    wire::Writer unknown;
    unknown.number(static_cast<uint8_t>(code));
    expect_closed(unknown, "unknown query");
  }
  wire::Writer add;
  add.query(Query::kSet);
  add.text("/word");
  add.text("many");
  add.query(Query::kAdd);
  add.text("/word");
  add.number(int64_t{1});
  expect_closed(add, "no number");
  expect_server_is_well();
}

TEST_F(HostileClientTest, MessagesInSingleBytesAreUnderstood) {
  wire::Writer request;
  request.query(Query::kSet);
  request.text("/slow");
  request.text("value");
  request.query(Query::kGet);
  request.text("/slow");
  const Fd fd = connect();
  const int one = 1;
  setsockopt(fd.get(), IPPROTO_TCP, 1 /* TCP_NODELAY */, &one, sizeof(one));
  for (const char byte : hello() + request.bytes()) send_all(fd, {&byte, 1});
  char answer[13];
  ASSERT_EQ(recv(fd.get(), answer, sizeof(answer), MSG_WAITALL), 13);
  EXPECT_EQ(std::string(answer + 8, 5), "value");
}

TEST_F(HostileClientTest, HalfClosedClientGetsItsAnswers) {
  const Fd fd = connect();
  wire::Writer request;
  request.query(Query::kPing);
  request.number(uint32_t{77});
  send_all(fd, hello() + request.bytes());
  shutdown(fd.get(), SHUT_WR);
  uint32_t nonce = 0;
  ASSERT_EQ(recv(fd.get(), &nonce, sizeof(nonce), MSG_WAITALL), 4);
  EXPECT_EQ(nonce, 77U);
  EXPECT_TRUE(is_closed(fd));
}

TEST_F(HostileClientTest, ClientThatNeverReadsCostsBoundedMemory) {
  good_->set("big", std::string(size_t{4} << 20, 'x'));
  const Fd fd = connect();
  wire::Writer request;
  for (int i = 0; i < 1000; ++i) {
    request.query(Query::kGet);
    request.text("/big");
  }
  send_all(fd, hello() + request.bytes());  // asks for 4 GB and reads nothing
  expect_server_is_well();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss, 512 * 1024) << "KiB";
}

TEST_F(HostileClientTest, StalledAndVanishedClientsHoldNobodyUp) {
  std::vector<Fd> stalled;
  for (int i = 0; i < 50; ++i) {
    stalled.push_back(connect());
    wire::Writer half;
    half.query(Query::kSet);
    half.text("/stalled");
    half.number(uint64_t{1000});
    if (i % 2 == 0) send_all(stalled.back(), hello() + half.bytes());
  }
  const Fd waiting = connect();
  wire::Writer wait;
  wait.query(Query::kWait);
  wait.number(uint64_t{1});
  wait.text("/never");
  send_all(waiting, hello() + wait.bytes());
  expect_server_is_well();
  stalled.clear();
  good_->set("never", "now");
  expect_server_is_well();
}

TEST_F(HostileClientTest, CancelAndNewWaitAreNotMistakenForEachOther) {
  // Wait for a, cancel, wait for b, then set a: the answer to the first wait must not release the second.
  const Fd fd = connect();
  const auto wait_for = [](const char* key) {
    wire::Writer writer;
    writer.query(Query::kWait);
    writer.number(uint64_t{1});
    writer.text(key);
    return writer.bytes();
  };
  wire::Writer cancel;
  cancel.query(Query::kCancelWait);
  for (int round = 0; round < 200; ++round) {
    const std::string a = "/a" + std::to_string(round);
    const std::string b = "/b" + std::to_string(round);
    send_all(fd, (round == 0 ? hello() : "") + wait_for(a.c_str()));
    // Races with the cancellation below.
    server_->local()->set(a.substr(1), "x");
    send_all(fd, cancel.bytes() + wait_for(b.c_str()));
    uint8_t answer = 9;
    ASSERT_EQ(recv(fd.get(), &answer, 1, MSG_WAITALL), 1);
    if (answer == wire::kStopWaiting) {
      ASSERT_EQ(recv(fd.get(), &answer, 1, MSG_WAITALL), 1);
    }
    ASSERT_EQ(answer, wire::kWaitCanceled);
    ASSERT_LT(recv(fd.get(), &answer, 1, MSG_DONTWAIT), 0) << "released although " << b << " is not set";
    server_->local()->set(b.substr(1), "x");
    ASSERT_EQ(recv(fd.get(), &answer, 1, MSG_WAITALL), 1);
    ASSERT_EQ(answer, wire::kStopWaiting);
  }
}

TEST_F(HostileClientTest, RandomBytesBreakNothing) {
  constexpr unsigned kSeed = 20'260'101;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  const auto up_to = [&random](unsigned limit) { return static_cast<unsigned>(random() % limit); };
  for (int round = 0; round < 400; ++round) {
    const Fd fd = connect();
    std::string bytes = up_to(8) == 0 ? "" : hello();
    for (unsigned i = 0; i < 20; ++i) {
      wire::Writer piece;
      // Half of it looks like requests, with lengths that are right, nearly right or absurd.
      if (up_to(2) == 0) piece.number(static_cast<uint8_t>(up_to(20)));
      if (up_to(2) == 0) piece.number(static_cast<uint64_t>(up_to(3) == 0 ? random() : up_to(12)));
      if (up_to(2) == 0) piece.text(std::string(up_to(16), '/'));
      if (up_to(4) == 0) piece.number(random());
      bytes += piece.bytes();
    }
    send_all(fd, bytes);
    if (up_to(2) == 0) shutdown(fd.get(), SHUT_WR);
    if (round % 50 == 0) expect_server_is_well();
  }
  expect_server_is_well();
}

TEST_F(HostileClientTest, RunningOutOfMemoryCostsThoseWhoAskForTooMuch) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer takes terabytes of addresses and reports a want of memory itself";
#endif
  constexpr int kClients = 5;
  constexpr uint64_t kTimes = 7;
  good_->set("big", std::string(size_t{8} << 20, 'x'));
  ASSERT_EQ(good_->get("big", kLong).size(), size_t{8} << 20);  // set() has no answer: it may be on its way
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  ASSERT_TRUE(statm >> pages);
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  rlimit tight = before;
  tight.rlim_cur = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{150} << 20);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
  wire::Writer request;
  request.query(Query::kMultiGet);
  request.number(kTimes);
  for (uint64_t i = 0; i < kTimes; ++i) request.text("/big");
  std::vector<Fd> clients;
  std::vector<pollfd> ends;
  for (int i = 0; i < kClients; ++i) {  // 56 MiB each, which they do not read
    clients.push_back(connect());
    send_all(clients.back(), hello() + request.bytes());
    ends.push_back({clients.back().get(), POLLRDHUP, 0});
  }
  EXPECT_GT(poll(ends.data(), ends.size(), static_cast<int>(kLong.count())), 0) << "none was hung up on";
  expect_server_is_well();
  clients.clear();
  setrlimit(RLIMIT_AS, &before);
  expect_server_is_well();
}

TEST_F(HostileClientTest, RunningOutOfDescriptorsRefusesNewClientsOnly) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan opens a pipe for each check of a vtable and reports a fault when it gets none";
#endif
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  std::vector<Fd> clients;
  int used = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++used;
  closedir(folder);
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(used) + 20;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  while (true) {
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd) break;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server_->port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) break;
    clients.push_back(std::move(fd));
  }
  EXPECT_GT(clients.size(), 2U);
  good_->set("still", "there");
  EXPECT_EQ(good_->get("still", kLong), "there");
  clients.clear();
  setrlimit(RLIMIT_NOFILE, &before);
  expect_server_is_well();
}

}  // namespace
}  // namespace trireme::rendezvous
