// The server side of c10d's TCPStore protocol (wire.h): one thread, one epoll, no trust in what clients send.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <memory>
#include <new>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "rendezvous/memory_store.h"
#include "rendezvous/socket.h"
#include "rendezvous/store_session.h"
#include "rendezvous/store_table.h"
#include "rendezvous/wire.h"
#include "trireme/base/error.h"
#include "trireme/rendezvous/store.h"

namespace trireme::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxStoreBytes = size_t{1024} * 1024 * 1024;
/// A connection that has not shown the magic number by then is closed, so that strangers cannot hold descriptors.
constexpr std::chrono::seconds kGreetingLimit{30};
constexpr uint64_t kListenTag = 0;
constexpr uint64_t kWakeTag = 1;

struct Connection {
  Connection(uint64_t number, Fd descriptor, StoreTable& table, StoreSession::WaitOver wait_over)
      : id(number), fd(std::move(descriptor)), session(table, kMaxStoreBytes, std::move(wait_over)) {}

  uint64_t id;
  Fd fd;
  StoreSession session;
  bool counted_as_greeted = false;
  bool at_end = false;  ///< the client sends no more; what it asked for is still answered
  Clock::time_point opened = Clock::now();
  uint32_t events = EPOLLIN;
};

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
    connections_.clear();  // ends the waits, whose call-backs come here
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
        with_memory_for(kListenTag, [&] { accept_all(); });
      } else if (event.data.u64 == kWakeTag) {
        uint64_t ignored = 0;
        [[maybe_unused]] const ssize_t got = read(wake_.get(), &ignored, sizeof(ignored));
      } else {
        with_memory_for(event.data.u64, [&] { handle(event.data.u64, event.events); });
      }
    }
    answer_waiters();
    if (ungreeted_ > 0) close_silent();
  }

  /// A request or an answer that there is no memory for costs its connection, and nobody else anything.
  template <typename Action>
  void with_memory_for(uint64_t id, Action&& action) {
    try {
      action();
    } catch (const std::bad_alloc&) {
      log::warn("rendezvous", "there is not enough memory for what a client of the store asked for; it is hung up on");
      if (const auto it = connections_.find(id); it != connections_.end()) close(*it->second);
    }
  }

  void accept_all() {
    while (true) {
      Fd fd(accept4(listen_fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd) {
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
      setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
      const uint64_t id = next_id_++;
      auto connection = std::make_unique<Connection>(id, std::move(fd), *table_,
                                                     [this, id](uint64_t number) { wait_over(id, number); });
      watch(connections_.emplace(id, std::move(connection)).first->second->fd.get(), EPOLLIN, id, EPOLL_CTL_ADD);
      ++ungreeted_;
    }
  }

  void close_silent() {
    const auto now = Clock::now();
    for (auto it = connections_.begin(); it != connections_.end();) {
      const auto next = std::next(it);
      if (!it->second->counted_as_greeted && now - it->second->opened > kGreetingLimit) close(*it->second);
      it = next;
    }
  }

  void close(Connection& connection) {
    if (!connection.counted_as_greeted) --ungreeted_;
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
        if (!connection.session.receive({buffer.data(), static_cast<size_t>(got)})) return true;
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
    StoreSession& session = connection.session;
    while (true) {
      if (!session.progress()) {
        log::debug("rendezvous", "a client of the store on port ", port_, " broke the protocol and is hung up on");
        return close(connection);
      }
      if (session.greeted() && !connection.counted_as_greeted) {
        connection.counted_as_greeted = true;
        --ungreeted_;
      }
      if (!flush(connection)) return close(connection);
      if (!session.has_requests() || !session.unread().empty()) break;
    }
    // A half-closed client that still waits for a key is not worth a slot.
    if (connection.at_end && session.unread().empty()) return close(connection);
    uint32_t events = 0;
    if (!connection.at_end && session.unread().size() < StoreSession::kMaxUnreadBytes) events |= EPOLLIN;
    if (!session.unread().empty()) events |= EPOLLOUT;
    if (events != connection.events) {
      watch(connection.fd.get(), events, connection.id, EPOLL_CTL_MOD);
      connection.events = events;
    }
  }

  /// False when the connection failed.
  static bool flush(Connection& connection) {
    StoreSession& session = connection.session;
    while (!session.unread().empty()) {
      const ssize_t sent = send(connection.fd.get(), session.unread().data(), session.unread().size(), MSG_NOSIGNAL);
      if (sent >= 0) {
        session.sent(static_cast<size_t>(sent));
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return true;
      } else if (errno != EINTR) {
        return false;
      }
    }
    return true;
  }

  /// Runs under the table's lock, on whatever thread made the last key appear.
  void wait_over(uint64_t id, uint64_t wait_number) {
    const std::lock_guard lock(ready_mutex_);
    ready_.emplace_back(id, wait_number);
    wake();
  }

  void answer_waiters() {
    std::vector<std::pair<uint64_t, uint64_t>> ready;
    {
      const std::lock_guard lock(ready_mutex_);
      ready.swap(ready_);
    }
    for (const auto& [id, number] : ready) {
      const auto it = connections_.find(id);
      if (it == connections_.end()) continue;
      with_memory_for(id, [&connection = *it->second, number = number, this] {
        connection.session.release(number);
        progress(connection);
      });
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
