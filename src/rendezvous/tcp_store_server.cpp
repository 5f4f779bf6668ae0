// The server side of c10d's TCPStore protocol (wire.h): one thread, one epoll, no trust in what clients send.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <memory>
#include <thread>
#include <unordered_map>

#include "base/log.h"
#include "rendezvous/memory_store.h"
#include "rendezvous/socket.h"
#include "rendezvous/store_table.h"
#include "rendezvous/wire.h"
#include "trireme/base/error.h"
#include "trireme/rendezvous/store.h"

namespace trireme::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;
using wire::Query;

/// Answers that a client has not read yet; above it, its requests wait.
constexpr size_t kMaxUnreadBytes = size_t{16} * 1024 * 1024;
constexpr size_t kMaxStoreBytes = size_t{1024} * 1024 * 1024;
/// A connection that has not shown the magic number by then is closed, so that strangers cannot hold descriptors.
constexpr std::chrono::seconds kGreetingLimit{30};
constexpr uint64_t kListenTag = 0;
constexpr uint64_t kWakeTag = 1;

struct Connection {
  uint64_t id = 0;
  Fd fd;
  bool greeted = false;
  bool at_end = false;  ///< the client sends no more; what it asked for is still answered
  StoreTable::WaiterId waiter = 0;
  uint64_t wait_number = 0;  ///< tells the wait of now from earlier ones whose call-back is still under way
  Clock::time_point opened = Clock::now();
  std::string in;
  size_t in_needed = 1;  ///< parsing again is useless before this many bytes are there
  std::string out;
  size_t out_sent = 0;
  uint32_t events = 0;
};

enum class Outcome { kDone, kIncomplete, kClose };

class Server final : public TcpStoreServer {
 public:
  Server(Fd listen_fd, int port)
      : listen_fd_(std::move(listen_fd)),
        port_(port),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        spare_(open("/dev/null", O_RDONLY | O_CLOEXEC)) {
    if (!epoll_ || !wake_) {
      throw Error(ErrorKind::kIo, str("[rendezvous.serve] no descriptor left for the store's event loop (errno ", errno,
                                      "); raise RLIMIT_NOFILE."));
    }
    watch(listen_fd_.get(), EPOLLIN, kListenTag, EPOLL_CTL_ADD);
    watch(wake_.get(), EPOLLIN, kWakeTag, EPOLL_CTL_ADD);
    // Signals are for the threads of the program, not for this one.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { serve(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  ~Server() override {
    stop_.store(true);
    wake();
    thread_.join();
    for (auto& [id, connection] : connections_) drop_waiter(*connection);
  }

  [[nodiscard]] int port() const override { return port_; }
  [[nodiscard]] std::shared_ptr<Store> local() override { return make_table_store(table_, wire::kKeyPrefix); }

 private:
  void watch(int fd, uint32_t events, uint64_t tag, int operation) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = tag;
    epoll_ctl(epoll_.get(), operation, fd, &event);
  }

  void wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
  }

  void serve() {
    while (!stop_.load()) turn(ungreeted_ > 0 ? 1000 : -1);
    // Who serves the store is often the last to come to a barrier and the first to leave: the others get their answers.
    turn(0);
  }

  void turn(int timeout_ms) {
    std::array<epoll_event, 64> events{};
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), timeout_ms);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if (event.data.u64 == kListenTag) {
        accept_all();
      } else if (event.data.u64 == kWakeTag) {
        uint64_t ignored = 0;
        [[maybe_unused]] const ssize_t got = read(wake_.get(), &ignored, sizeof(ignored));
      } else {
        handle(event.data.u64, event.events);
      }
    }
    answer_waiters();
    if (ungreeted_ > 0) close_silent();
  }

  void accept_all() {
    while (true) {
      const int fd = accept4(listen_fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) {
        if ((errno == EMFILE || errno == ENFILE) && spare_) {
          // Without this the listening socket would stay readable and the loop would spin. The kernel says "no
          // descriptor" even when nobody knocks, so it is the second accept() that knows.
          spare_.reset();
          Fd refused(accept(listen_fd_.get(), nullptr, nullptr));
          const bool somebody = static_cast<bool>(refused);
          refused.reset();
          spare_ = Fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
          if (!somebody) return;
          log::warn("rendezvous", "a client of the store was refused: no descriptor is left. Raise RLIMIT_NOFILE.");
          continue;
        }
        return;
      }
      const int one = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
      auto connection = std::make_unique<Connection>();
      connection->id = next_id_++;
      connection->fd = Fd(fd);
      connection->events = EPOLLIN;
      watch(fd, EPOLLIN, connection->id, EPOLL_CTL_ADD);
      ++ungreeted_;
      connections_[connection->id] = std::move(connection);
    }
  }

  void close_silent() {
    const auto now = Clock::now();
    for (auto it = connections_.begin(); it != connections_.end();) {
      const auto next = std::next(it);
      if (!it->second->greeted && now - it->second->opened > kGreetingLimit) close(*it->second);
      it = next;
    }
  }

  void drop_waiter(Connection& connection) {
    if (connection.waiter != 0) table_->cancel(connection.waiter);
    connection.waiter = 0;
  }

  void close(Connection& connection) {
    if (!connection.greeted) --ungreeted_;
    drop_waiter(connection);
    connections_.erase(connection.id);  // closing the descriptor removes it from the epoll
  }

  void handle(uint64_t id, uint32_t events) {
    const auto it = connections_.find(id);
    if (it == connections_.end()) return;
    Connection& connection = *it->second;
    if ((events & EPOLLERR) != 0 || ((events & (EPOLLIN | EPOLLHUP)) != 0 && !read_some(connection))) {
      close(connection);
      return;
    }
    progress(connection);
  }

  /// False when the connection failed.
  static bool read_some(Connection& connection) {
    std::array<char, 65536> buffer;
    // Bounded, so that one client cannot keep the others waiting; epoll reports the rest again.
    for (int round = 0; round < 16; ++round) {
      const ssize_t got = recv(connection.fd.get(), buffer.data(), buffer.size(), 0);
      if (got > 0) {
        connection.in.append(buffer.data(), static_cast<size_t>(got));
        if (connection.in.size() >= wire::kMaxMessageBytes) return true;
        continue;
      }
      if (got == 0) {
        connection.at_end = true;
        return true;
      }
      if (errno == EINTR) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
    return true;
  }

  /// Answers what can be answered, sends what can be sent, and says what to watch for next. May close.
  void progress(Connection& connection) {
    while (true) {
      if (!run_requests(connection) || !flush(connection)) {
        close(connection);
        return;
      }
      const bool more = connection.in.size() >= connection.in_needed && unread(connection) == 0;
      if (!more) break;
    }
    if (connection.at_end && unread(connection) == 0) {
      // Nobody will ever send a key for a client that is gone; a half-closed one that still waits is not worth a slot.
      close(connection);
      return;
    }
    uint32_t events = 0;
    if (!connection.at_end && unread(connection) < kMaxUnreadBytes) events |= EPOLLIN;
    if (unread(connection) > 0) events |= EPOLLOUT;
    if (events != connection.events) {
      watch(connection.fd.get(), events, connection.id, EPOLL_CTL_MOD);
      connection.events = events;
    }
  }

  static size_t unread(const Connection& connection) { return connection.out.size() - connection.out_sent; }

  /// False when the connection failed.
  static bool flush(Connection& connection) {
    while (unread(connection) > 0) {
      const ssize_t sent =
          send(connection.fd.get(), connection.out.data() + connection.out_sent, unread(connection), MSG_NOSIGNAL);
      if (sent >= 0) {
        connection.out_sent += static_cast<size_t>(sent);
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return true;
      } else if (errno != EINTR) {
        return false;
      }
    }
    connection.out.clear();
    connection.out_sent = 0;
    return true;
  }

  /// False when the client broke the protocol.
  bool run_requests(Connection& connection) {
    size_t done = 0;
    Outcome outcome = Outcome::kDone;
    while (outcome == Outcome::kDone && unread(connection) < kMaxUnreadBytes &&
           connection.in.size() - done >= std::max<size_t>(connection.in_needed, 1)) {
      wire::Reader reader(std::string_view(connection.in).substr(done));
      outcome = run_one(connection, reader);
      if (outcome == Outcome::kDone) {
        done += reader.position();
        connection.in_needed = 1;
      } else if (outcome == Outcome::kIncomplete) {
        connection.in_needed = reader.needed();
        if (reader.bad() || connection.in_needed > wire::kMaxMessageBytes) outcome = Outcome::kClose;
      }
    }
    connection.in.erase(0, done);
    if (outcome == Outcome::kClose) {
      log::debug("rendezvous", "a client of the store on port ", port_,
                 " broke the protocol; its connection is closed");
    }
    return outcome != Outcome::kClose;
  }

  Outcome run_one(Connection& connection, wire::Reader& in) {
    uint8_t code = 0;
    if (!in.number(code)) return Outcome::kIncomplete;
    const auto query = static_cast<Query>(code);
    if (!connection.greeted) {
      if (query != Query::kValidate) return Outcome::kClose;
      uint32_t magic = 0;
      if (!in.number(magic)) return Outcome::kIncomplete;
      if (magic != wire::kMagic) return Outcome::kClose;
      connection.greeted = true;
      --ungreeted_;
      return Outcome::kDone;
    }
    wire::Writer out;
    const Outcome outcome = answer(connection, query, in, out);
    if (outcome == Outcome::kDone) connection.out += out.bytes();
    return outcome;
  }

  Outcome answer(Connection& connection, Query query, wire::Reader& in, wire::Writer& out) {
    switch (query) {
      case Query::kPing: {
        uint32_t nonce = 0;
        if (!in.number(nonce)) return Outcome::kIncomplete;
        out.number(nonce);
        return Outcome::kDone;
      }
      case Query::kNumKeys:
        out.number(table_->size());
        return Outcome::kDone;
      case Query::kListKeys: {
        const std::vector<std::string> keys = table_->list();
        out.number(static_cast<int64_t>(keys.size()));
        for (const std::string& key : keys) out.text(key);
        return Outcome::kDone;
      }
      case Query::kCancelWait:
        drop_waiter(connection);
        out.number(wire::kWaitCanceled);
        return Outcome::kDone;
      case Query::kCheck:
      case Query::kWait:
      case Query::kMultiGet:
      case Query::kMultiSet:
        return answer_many(connection, query, in, out);
      case Query::kSet:
      case Query::kCompareSet:
      case Query::kGet:
      case Query::kAdd:
      case Query::kDeleteKey:
      case Query::kAppend:
      case Query::kQueuePush:
      case Query::kQueuePop:
      case Query::kQueueLen:
      case Query::kBarrier:
        return answer_one(connection, query, in, out);
      case Query::kValidate:
        break;
    }
    return Outcome::kClose;
  }

  /// The requests with one key.
  Outcome answer_one(Connection& connection, Query query, wire::Reader& in, wire::Writer& out) {
    std::string key;
    std::string first;
    std::string second;
    int64_t number = 0;
    if (!in.key(key)) return Outcome::kIncomplete;
    switch (query) {
      case Query::kSet:
        if (!in.value(first)) return Outcome::kIncomplete;
        if (!room_for(first.size())) return Outcome::kClose;
        table_->set(key, first);
        return Outcome::kDone;
      case Query::kCompareSet:
        if (!in.value(first) || !in.value(second)) return Outcome::kIncomplete;
        if (!room_for(second.size())) return Outcome::kClose;
        out.text(table_->compare_set(key, first, second));
        return Outcome::kDone;
      case Query::kGet:
        out.text(table_->find(key).value_or(std::string{}));
        return Outcome::kDone;
      case Query::kAdd: {
        if (!in.number(number)) return Outcome::kIncomplete;
        const auto sum = table_->add(key, number);
        if (!sum) return Outcome::kClose;  // as c10d: there is no answer for "that is not a number"
        out.number(*sum);
        return Outcome::kDone;
      }
      case Query::kDeleteKey:
        out.number(static_cast<int64_t>(table_->erase(key) ? 1 : 0));
        return Outcome::kDone;
      case Query::kAppend:
        if (!in.value(first)) return Outcome::kIncomplete;
        if (!room_for(first.size())) return Outcome::kClose;
        table_->append(key, first);
        return Outcome::kDone;
      case Query::kQueuePush:
        if (!in.value(first)) return Outcome::kIncomplete;
        if (!room_for(first.size())) return Outcome::kClose;
        table_->queue_push(key, first);
        return Outcome::kDone;
      case Query::kQueuePop: {
        const StoreTable::Popped popped = table_->queue_pop(key);
        out.number(popped.size_before);
        if (popped.size_before > 0) out.text(popped.value);
        return Outcome::kDone;
      }
      case Query::kQueueLen:
        out.number(table_->queue_len(key));
        return Outcome::kDone;
      case Query::kBarrier: {
        if (!in.number(number)) return Outcome::kIncomplete;
        drop_waiter(connection);
        const auto waiter = table_->barrier(key, number, on_ready(connection));
        if (!waiter) return Outcome::kClose;
        connection.waiter = *waiter;
        if (*waiter == 0) out.number(wire::kStopWaiting);
        return Outcome::kDone;
      }
      default:
        return Outcome::kClose;
    }
  }

  /// The requests with several keys.
  Outcome answer_many(Connection& connection, Query query, wire::Reader& in, wire::Writer& out) {
    uint64_t count = 0;
    if (!in.count(count)) return Outcome::kIncomplete;
    std::vector<std::string> keys;
    std::vector<std::string> values;
    size_t bytes = 0;
    for (uint64_t i = 0; i < count; ++i) {
      if (!in.key(keys.emplace_back())) return Outcome::kIncomplete;
      if (query == Query::kMultiSet && !in.value(values.emplace_back())) return Outcome::kIncomplete;
      if (query == Query::kMultiSet) bytes += values.back().size();
    }
    switch (query) {
      case Query::kCheck:
        out.number(static_cast<uint8_t>(table_->check(keys) ? wire::kReady : 1));
        return Outcome::kDone;
      case Query::kWait:
        drop_waiter(connection);
        connection.waiter = table_->wait(keys, on_ready(connection));
        if (connection.waiter == 0) out.number(wire::kStopWaiting);
        return Outcome::kDone;
      case Query::kMultiGet:
        for (const std::string& key : keys) {
          out.text(table_->find(key).value_or(std::string{}));
          if (out.bytes().size() > kMaxStoreBytes) return Outcome::kClose;
        }
        return Outcome::kDone;
      default:
        if (!room_for(bytes)) return Outcome::kClose;
        for (size_t i = 0; i < keys.size(); ++i) table_->set(keys[i], values[i]);
        return Outcome::kDone;
    }
  }

  bool room_for(size_t bytes) {
    if (table_->bytes() + bytes <= kMaxStoreBytes) return true;
    log::error("rendezvous", "the store on port ", port_, " holds ", table_->bytes(), " bytes and takes no more than ",
               kMaxStoreBytes, "; the connection that asked for more is closed");
    return false;
  }

  /// Runs under the table's lock, on whatever thread made the last key appear.
  StoreTable::OnReady on_ready(Connection& connection) {
    return [this, id = connection.id, number = ++connection.wait_number] {
      const std::lock_guard lock(ready_mutex_);
      ready_.emplace_back(id, number);
      wake();
    };
  }

  void answer_waiters() {
    std::vector<std::pair<uint64_t, uint64_t>> ready;
    {
      const std::lock_guard lock(ready_mutex_);
      ready.swap(ready_);
    }
    for (const auto& [id, number] : ready) {
      const auto it = connections_.find(id);
      // A wait that was cancelled in the meantime has had its answer.
      if (it == connections_.end() || it->second->waiter == 0 || it->second->wait_number != number) continue;
      it->second->waiter = 0;
      it->second->out.push_back(static_cast<char>(wire::kStopWaiting));
      progress(*it->second);
    }
  }

  std::shared_ptr<StoreTable> table_ = std::make_shared<StoreTable>();
  Fd listen_fd_;
  int port_;
  Fd epoll_;
  Fd wake_;
  Fd spare_;
  std::unordered_map<uint64_t, std::unique_ptr<Connection>> connections_;
  uint64_t next_id_ = 2;
  size_t ungreeted_ = 0;
  std::mutex ready_mutex_;
  std::vector<std::pair<uint64_t, uint64_t>> ready_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace

std::unique_ptr<TcpStoreServer> start_tcp_store_server(const TcpStoreServer::Options& options) {
  if (options.listen_fd >= 0) {
    Fd fd(options.listen_fd);
    const int port = bound_port(fd.get());
    const int flags = fcntl(fd.get(), F_GETFL);
    fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK);
    return std::make_unique<Server>(std::move(fd), port);
  }
  ListenSocket socket = listen_tcp(options.address, options.port);
  return std::make_unique<Server>(std::move(socket.fd), socket.port);
}

}  // namespace trireme::rendezvous
