// Oracle: closed form (the documented result of each operation), the same for every kind of store; python_store_test
// asserts that c10d's own TCPStore gives the same answers.
#include "trireme/rendezvous/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "rendezvous/store_contract.h"
#include "support/patience.h"
#include "trireme/base/error.h"

namespace trireme::rendezvous {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
constexpr milliseconds kLong = trireme::test::kPatience;

template <typename Call>
Error error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorKind::kInternal, ""};
}

class StoreTest : public testing::TestWithParam<const char*> {
 protected:
  StoreUnderTest made_ = make_store(GetParam());
  Store& store_ = *made_.store;
};

TEST_P(StoreTest, GivesBackWhatWasSet) {
  const std::string binary("a\0b\xff\n", 5);
  store_.set("key", binary);
  store_.set("empty", "");
  EXPECT_EQ(store_.get("key", kLong), binary);
  EXPECT_EQ(store_.get("empty", kLong), "");
  EXPECT_EQ(store_.num_keys(), 2);
  EXPECT_THAT(store_.list_keys(), testing::UnorderedElementsAre("key", "empty"));
  EXPECT_TRUE(store_.delete_key("key"));
  EXPECT_FALSE(store_.delete_key("key"));
  const std::vector<std::string> both{"key", "empty"};
  EXPECT_FALSE(store_.check(both));
  EXPECT_TRUE(store_.check({&both[1], 1}));
}

TEST_P(StoreTest, CarriesValuesUpToTheLimit) {
  const std::string big(size_t{8} * 1024 * 1024, 'x');
  store_.set("big", big);
  EXPECT_EQ(store_.get("big", kLong), big);
}

TEST_P(StoreTest, CountsAndCompares) {
  EXPECT_EQ(store_.add("n", 5), 5);
  EXPECT_EQ(store_.add("n", -7), -2);
  EXPECT_EQ(store_.get("n", kLong), "-2");
  EXPECT_EQ(store_.compare_set("c", "nope", "v"), "nope");
  const std::string c = "c";
  EXPECT_FALSE(store_.check({&c, 1}));
  EXPECT_EQ(store_.compare_set("c", "", "v"), "v");
  EXPECT_EQ(store_.compare_set("c", "q", "z"), "v");
  EXPECT_EQ(store_.compare_set("c", "v", "w"), "w");
}

TEST_P(StoreTest, AppendsAndMovesMany) {
  store_.append("a", "1");
  store_.append("a", "23");
  EXPECT_EQ(store_.get("a", kLong), "123");
  const std::vector<std::string> keys{"k0", "k1", "k2"};
  const std::vector<std::string> values{"v0", "", std::string(100'000, 'y')};
  store_.multi_set(keys, values);
  EXPECT_EQ(store_.multi_get(keys, kLong), values);
  EXPECT_EQ(error_of([&] { store_.multi_set(keys, {&values[0], 1}); }).kind(), ErrorKind::kInvalidArgument);
}

TEST_P(StoreTest, QueuesAreFirstInFirstOut) {
  store_.queue_push("q", "1");
  store_.queue_push("q", "2");
  const std::string q = "q";
  EXPECT_TRUE(store_.check({&q, 1}));
  EXPECT_EQ(store_.queue_len("q"), 2);
  EXPECT_EQ(store_.queue_pop("q", kLong), "1");
  EXPECT_EQ(store_.queue_pop("q", kLong), "2");
  EXPECT_EQ(store_.queue_len("q"), 0);
  EXPECT_EQ(error_of([&] { (void)store_.queue_pop("q", milliseconds(20)); }).kind(), ErrorKind::kTimeout);
}

TEST_P(StoreTest, WaitReturnsWhenTheLastKeyIsSetByAnother) {
  const auto other = made_.another();
  const std::vector<std::string> keys{"a", "b"};
  auto waiting = std::async(std::launch::async, [&] { store_.wait(keys, kLong); });
  other->set("a", "1");
  other->add("b", 1);
  EXPECT_NO_THROW(waiting.get());
  auto popping = std::async(std::launch::async, [&] { return store_.queue_pop("q", kLong); });
  other->queue_push("q", "late");
  EXPECT_EQ(popping.get(), "late");
}

TEST_P(StoreTest, TimeoutNamesTheMissingKeysAndLeavesTheStoreUsable) {
  store_.set("there", "1");
  const std::vector<std::string> keys{"there", "lost1", "lost2"};
  const Error error = error_of([&] { store_.wait(keys, milliseconds(30)); });
  EXPECT_EQ(error.kind(), ErrorKind::kTimeout);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("lost1"), HasSubstr("lost2"), HasSubstr("30 ms"), testing::Not(HasSubstr("'there'"))));
  // Neither a late answer nor a forgotten waiter may disturb what follows.
  store_.set("lost1", "x");
  store_.set("lost2", "y");
  EXPECT_EQ(store_.get("lost1", kLong), "x");
  EXPECT_EQ(store_.get("lost2", kLong), "y");
}

TEST_P(StoreTest, BarrierLetsAllThroughWithTheLast) {
  for (int round = 0; round < 2; ++round) {
    const std::string key = "barrier" + std::to_string(round);
    std::vector<std::future<void>> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.push_back(std::async(std::launch::async, [&] { made_.another()->barrier(key, 3, kLong); }));
    }
    store_.barrier(key, 3, kLong);
    for (auto& rank : ranks) EXPECT_NO_THROW(rank.get());
  }
  const Error error = error_of([&] { store_.barrier("alone", 2, milliseconds(30)); });
  EXPECT_EQ(error.kind(), ErrorKind::kTimeout);
  EXPECT_THAT(error.what(), HasSubstr("alone'"));
}

TEST_P(StoreTest, GetUnlessDeadNamesTheDead) {
  const auto other = made_.another();
  auto waiting = std::async(std::launch::async, [&] {
    return error_of([&] { (void)get_unless_dead(store_, store_, "never", kLong, "comm.init"); });
  });
  other->set(kDeathNoticeKey, "rank 3 (pid 411): SIGKILL");
  const Error error = waiting.get();
  EXPECT_EQ(error.kind(), ErrorKind::kPeerLost);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("[comm.init] rank 3 (pid 411): SIGKILL"), HasSubstr("'never'")));
  other->set("there", "value");
  EXPECT_EQ(get_unless_dead(store_, store_, "there", kLong, "comm.init"), "value");
}

INSTANTIATE_TEST_SUITE_P(Kinds, StoreTest, testing::Values("memory", "prefix", "local", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST(PrefixStore, KeepsPrefixesApart) {
  const auto root = make_memory_store();
  const auto a = make_prefix_store("a", root);
  const auto b = make_prefix_store("b", root);
  a->set("key", "1");
  b->set("key", "2");
  EXPECT_EQ(root->get("a/key", kLong), "1");
  EXPECT_EQ(b->get("key", kLong), "2");
}

TEST(MemoryStore, RefusesToCountWhatIsNoNumber) {
  const auto store = make_memory_store();
  store->set("word", "many");
  store->set("huge", "9223372036854775807");
  EXPECT_EQ(error_of([&] { store->add("word", 1); }).kind(), ErrorKind::kInvalidArgument);
  EXPECT_EQ(error_of([&] { store->add("huge", 1); }).kind(), ErrorKind::kInvalidArgument);
}

TEST(TcpStoreClient, TellsWhyItCannotConnect) {
  const int free_port = start_tcp_store_server({})->port();  // closed again at once
  const Error nobody = error_of([&] { (void)connect_tcp_store("127.0.0.1", free_port, milliseconds(50)); });
  EXPECT_EQ(nobody.kind(), ErrorKind::kTimeout);
  EXPECT_THAT(nobody.what(), AllOf(HasSubstr("127.0.0.1:" + std::to_string(free_port)), HasSubstr("refused")));
  const Error unknown = error_of([] { (void)connect_tcp_store("no-such-host.invalid", 80, milliseconds(50)); });
  EXPECT_EQ(unknown.kind(), ErrorKind::kConfig);
  EXPECT_EQ(error_of([] { (void)connect_tcp_store("127.0.0.1", 0, milliseconds(50)); }).kind(), ErrorKind::kConfig);
}

TEST(TcpStoreClient, SaysThatTheServerIsGone) {
  auto server = start_tcp_store_server({});
  const auto client = connect_tcp_store("127.0.0.1", server->port(), kLong);
  auto waiting = std::async(std::launch::async, [&] { return error_of([&] { (void)client->get("never", kLong); }); });
  const auto second = connect_tcp_store("127.0.0.1", server->port(), kLong);
  server.reset();
  const Error error = waiting.get();
  EXPECT_EQ(error.kind(), ErrorKind::kPeerLost);
  EXPECT_THAT(error.what(), HasSubstr("127.0.0.1"));
  EXPECT_EQ(error_of([&] { (void)second->num_keys(); }).kind(), ErrorKind::kPeerLost);
}

TEST(TcpStoreServer, NamesThePortThatIsInUse) {
  const auto server = start_tcp_store_server({});
  TcpStoreServer::Options options;
  options.port = server->port();
  const Error error = error_of([&] { (void)start_tcp_store_server(options); });
  EXPECT_EQ(error.kind(), ErrorKind::kIo);
  EXPECT_THAT(error.what(), AllOf(HasSubstr(std::to_string(options.port)), HasSubstr("in use")));
}

TEST(TcpStoreServer, ListensOnIpv6WhenTold) {
  TcpStoreServer::Options options;
  options.address = "::1";
  std::unique_ptr<TcpStoreServer> server;
  try {
    server = start_tcp_store_server(options);
  } catch (const Error& error) {
    GTEST_SKIP() << "no IPv6 loopback here: " << error.what();
  }
  for (const char* host : {"::1", "[::1]"}) {
    const auto client = connect_tcp_store(host, server->port(), kLong);
    client->set("k", host);  // has no answer; the next call has
    EXPECT_EQ(client->get("k", kLong), host);
    EXPECT_EQ(server->local()->get("k", kLong), host);
  }
}

}  // namespace
}  // namespace trireme::rendezvous
