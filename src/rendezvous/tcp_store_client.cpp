// The client side of c10d's TCPStore protocol (wire.h).
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <system_error>

#include "base/deadline.h"
#include "base/str.h"
#include "rendezvous/memory_store.h"
#include "rendezvous/socket.h"
#include "rendezvous/wire.h"
#include "trireme/base/error.h"
#include "trireme/rendezvous/store.h"

namespace trireme::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
using wire::Query;

/// How long an operation that does not wait for other ranks may take before the server counts as gone.
constexpr Milliseconds kAnswerLimit{60'000};

class TcpStoreClient final : public Store {
 public:
  TcpStoreClient(const std::string& host, int port, Milliseconds timeout)
      : where_(endpoint(host, port)), fd_(connect_tcp(host, port, timeout)) {
    wire::Writer hello;
    hello.query(Query::kValidate);
    hello.number(wire::kMagic);
    hello.query(Query::kPing);
    const auto nonce = static_cast<uint32_t>(getpid());
    hello.number(nonce);
    const auto deadline = deadline_after(std::max(timeout, Milliseconds(1000)));
    send(hello, deadline, "connect");
    if (number<uint32_t>(deadline, "connect") != nonce) garbage("connect");
  }

  void set(std::string_view key, std::string_view value) override {
    wire::Writer request = start(Query::kSet, key, "set");
    add_value(request, value, "set", key);
    const std::lock_guard lock(mutex_);
    send(request, soon(), "set");
  }

  std::string get(std::string_view key, Milliseconds timeout) override {
    const std::string name(key);
    const std::lock_guard lock(mutex_);
    wait_for({&name, 1}, timeout, "get");
    send(start(Query::kGet, key, "get"), soon(), "get");
    return text(soon(), "get");
  }

  int64_t add(std::string_view key, int64_t delta) override {
    wire::Writer request = start(Query::kAdd, key, "add");
    request.number(delta);
    const std::lock_guard lock(mutex_);
    send(request, soon(), "add");
    return number<int64_t>(soon(), "add");
  }

  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired) override {
    wire::Writer request = start(Query::kCompareSet, key, "compare_set");
    add_value(request, expected, "compare_set", key);
    add_value(request, desired, "compare_set", key);
    const std::lock_guard lock(mutex_);
    send(request, soon(), "compare_set");
    return text(soon(), "compare_set");
  }

  bool check(std::span<const std::string> keys) override {
    const wire::Writer request = start_many(Query::kCheck, keys, "check");
    const std::lock_guard lock(mutex_);
    send(request, soon(), "check");
    return number<uint8_t>(soon(), "check") == wire::kReady;
  }

  void wait(std::span<const std::string> keys, Milliseconds timeout) override {
    const std::lock_guard lock(mutex_);
    wait_for(keys, timeout, "wait");
  }

  bool delete_key(std::string_view key) override {
    const std::lock_guard lock(mutex_);
    send(start(Query::kDeleteKey, key, "delete_key"), soon(), "delete_key");
    return number<int64_t>(soon(), "delete_key") == 1;
  }

  int64_t num_keys() override {
    wire::Writer request;
    request.query(Query::kNumKeys);
    const std::lock_guard lock(mutex_);
    send(request, soon(), "num_keys");
    return number<int64_t>(soon(), "num_keys");
  }

  void append(std::string_view key, std::string_view value) override {
    wire::Writer request = start(Query::kAppend, key, "append");
    add_value(request, value, "append", key);
    const std::lock_guard lock(mutex_);
    send(request, soon(), "append");
  }

  std::vector<std::string> multi_get(std::span<const std::string> keys, Milliseconds timeout) override {
    const wire::Writer request = start_many(Query::kMultiGet, keys, "multi_get");
    const std::lock_guard lock(mutex_);
    wait_for(keys, timeout, "multi_get");
    send(request, soon(), "multi_get");
    std::vector<std::string> values;
    values.reserve(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) values.push_back(text(soon(), "multi_get"));
    return values;
  }

  void multi_set(std::span<const std::string> keys, std::span<const std::string> values) override {
    if (keys.size() != values.size()) return Store::multi_set(keys, values);  // throws, with both counts
    check_count(keys.size(), "multi_set");
    wire::Writer request;
    request.query(Query::kMultiSet);
    request.number(static_cast<uint64_t>(keys.size()));
    for (size_t i = 0; i < keys.size(); ++i) {
      add_key(request, keys[i], "multi_set");
      add_value(request, values[i], "multi_set", keys[i]);
    }
    const std::lock_guard lock(mutex_);
    send(request, soon(), "multi_set");
  }

  void queue_push(std::string_view queue, std::string_view value) override {
    wire::Writer request = start(Query::kQueuePush, queue, "queue_push");
    add_value(request, value, "queue_push", queue);
    const std::lock_guard lock(mutex_);
    send(request, soon(), "queue_push");
  }

  std::string queue_pop(std::string_view queue, Milliseconds timeout) override {
    const std::string name(queue);
    const auto deadline = deadline_after(timeout);
    const std::lock_guard lock(mutex_);
    while (true) {
      const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now());
      wait_for({&name, 1}, std::max(left, Milliseconds(0)), "queue_pop");
      send(start(Query::kQueuePop, queue, "queue_pop"), soon(), "queue_pop");
      // Another client may have been faster: then wait for the next value.
      if (number<int64_t>(soon(), "queue_pop") > 0) return text(soon(), "queue_pop");
    }
  }

  int64_t queue_len(std::string_view queue) override {
    const std::lock_guard lock(mutex_);
    send(start(Query::kQueueLen, queue, "queue_len"), soon(), "queue_len");
    return number<int64_t>(soon(), "queue_len");
  }

  std::vector<std::string> list_keys() override {
    wire::Writer request;
    request.query(Query::kListKeys);
    const std::lock_guard lock(mutex_);
    send(request, soon(), "list_keys");
    const auto count = number<int64_t>(soon(), "list_keys");
    std::vector<std::string> keys;
    for (int64_t i = 0; i < count; ++i) {
      std::string key = text(soon(), "list_keys");
      if (key.starts_with(wire::kKeyPrefix)) keys.push_back(key.substr(1));
    }
    return keys;
  }

  void barrier(std::string_view key, int64_t world_size, Milliseconds timeout) override {
    wire::Writer request = start(Query::kBarrier, key, "barrier");
    request.number(world_size);
    const std::lock_guard lock(mutex_);
    send(request, soon(), "barrier");
    if (stopped_waiting(timeout, "barrier")) return;
    throw Error(ErrorKind::kTimeout,
                str("[rendezvous.barrier] fewer than ", world_size, " ranks came to '", key, "' within ",
                    in_words(timeout), " (store ", where_, "). A rank is late or died; see its log."));
  }

 private:
  static Clock::time_point soon() { return Clock::now() + kAnswerLimit; }

  [[noreturn]] void gone(const char* operation, const std::string& reason) {
    broken_ = true;
    throw Error(ErrorKind::kPeerLost, str("[rendezvous.", operation, "] the store at ", where_, " is gone: ", reason,
                                          ". Whoever served it (the launcher, or rank 0) has ended."));
  }
  [[noreturn]] void garbage(const char* operation) {
    broken_ = true;
    throw Error(ErrorKind::kPeerLost, str("[rendezvous.", operation, "] what answers at ", where_,
                                          " does not speak the TCPStore protocol. Check MASTER_ADDR and MASTER_PORT."));
  }

  static void check_count(size_t count, const char* operation) {
    if (count <= wire::kMaxKeys) return;
    throw Error(ErrorKind::kInvalidArgument, str("[rendezvous.", operation, "] ", count, " keys in one call; at most ",
                                                 wire::kMaxKeys, " are allowed. Split the call."));
  }
  static void add_key(wire::Writer& request, std::string_view key, const char* operation) {
    if (key.size() + 1 > wire::kMaxKeyBytes) {
      throw Error(ErrorKind::kInvalidArgument, str("[rendezvous.", operation, "] a key of ", key.size(),
                                                   " bytes; at most ", wire::kMaxKeyBytes - 1, " are allowed."));
    }
    request.text(wire::kKeyPrefix + std::string(key));
  }
  static void add_value(wire::Writer& request, std::string_view value, const char* operation, std::string_view key) {
    if (value.size() > wire::kMaxValueBytes) {
      throw Error(ErrorKind::kInvalidArgument,
                  str("[rendezvous.", operation, "] the value of '", key, "' has ", value.size(), " bytes; at most ",
                      wire::kMaxValueBytes, " are allowed. The store is for small values."));
    }
    request.text(value);
  }
  static wire::Writer start(Query query, std::string_view key, const char* operation) {
    wire::Writer request;
    request.query(query);
    add_key(request, key, operation);
    return request;
  }
  static wire::Writer start_many(Query query, std::span<const std::string> keys, const char* operation) {
    check_count(keys.size(), operation);
    wire::Writer request;
    request.query(query);
    request.number(static_cast<uint64_t>(keys.size()));
    for (const std::string& key : keys) add_key(request, key, operation);
    return request;
  }

  /// False when `deadline` passes first.
  bool ready(short events, Clock::time_point deadline, const char* operation) {
    while (true) {
      const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now());
      pollfd item{fd_.get(), events, 0};
      const int count = poll(&item, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1'000'000'000)));
      if (count > 0) return true;
      if (count == 0 && left.count() <= 0) return false;
      if (count < 0 && errno != EINTR) gone(operation, std::system_category().message(errno));
    }
  }

  void send(const wire::Writer& request, Clock::time_point deadline, const char* operation) {
    if (broken_) gone(operation, "an earlier operation failed");
    std::string_view rest = request.bytes();
    while (!rest.empty()) {
      const ssize_t sent = ::send(fd_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
      if (sent >= 0) {
        rest.remove_prefix(static_cast<size_t>(sent));
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        if (!ready(POLLOUT, deadline, operation)) gone(operation, "it reads nothing any more");
      } else if (errno != EINTR) {
        gone(operation, std::system_category().message(errno));
      }
    }
  }

  /// False when nothing came until `deadline`; a started answer is always read to its end.
  bool receive(char* out, size_t size, Clock::time_point deadline, const char* operation) {
    size_t have = 0;
    while (have < size) {
      const ssize_t got = recv(fd_.get(), out + have, size - have, 0);
      if (got > 0) {
        have += static_cast<size_t>(got);
      } else if (got == 0) {
        gone(operation, "the connection was closed");
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        if (!ready(POLLIN, have == 0 ? deadline : soon(), operation)) {
          if (have == 0) return false;
          gone(operation, "an answer stopped in the middle");
        }
      } else if (errno != EINTR) {
        gone(operation, std::system_category().message(errno));
      }
    }
    return true;
  }

  template <typename Number>
  Number number(Clock::time_point deadline, const char* operation) {
    Number value{};
    if (!receive(reinterpret_cast<char*>(&value), sizeof(value), deadline, operation)) {
      gone(operation, "no answer in time");
    }
    return value;
  }

  std::string text(Clock::time_point deadline, const char* operation) {
    const auto size = number<uint64_t>(deadline, operation);
    if (size > wire::kMaxMessageBytes) garbage(operation);
    std::string bytes(size, '\0');
    if (size > 0 && !receive(bytes.data(), size, soon(), operation)) gone(operation, "no answer in time");
    return bytes;
  }

  /// Reads the answer to kWait or kBarrier; after the timeout takes the request back. False: not in time.
  bool stopped_waiting(Milliseconds timeout, const char* operation) {
    uint8_t answer = 0;
    if (receive(reinterpret_cast<char*>(&answer), 1, deadline_after(timeout), operation)) {
      if (answer != wire::kStopWaiting) garbage(operation);
      return true;
    }
    wire::Writer cancel;
    cancel.query(Query::kCancelWait);
    send(cancel, soon(), operation);
    answer = number<uint8_t>(soon(), operation);
    if (answer == wire::kWaitCanceled) return false;
    // The answer crossed our cancellation: in time after all, and the cancellation's own answer follows.
    if (answer != wire::kStopWaiting || number<uint8_t>(soon(), operation) != wire::kWaitCanceled) garbage(operation);
    return true;
  }

  void wait_for(std::span<const std::string> keys, Milliseconds timeout, const char* operation) {
    send(start_many(Query::kWait, keys, operation), soon(), operation);
    if (stopped_waiting(timeout, operation)) return;
    std::vector<std::string> missing;
    for (const std::string& key : keys) {
      send(start_many(Query::kCheck, {&key, 1}, operation), soon(), operation);
      if (number<uint8_t>(soon(), operation) != wire::kReady) missing.push_back(key);
    }
    throw Error(ErrorKind::kTimeout,
                str("[rendezvous.", operation, "] nobody has set ", list_for_message(missing), " within ",
                    in_words(timeout), " (store ", where_, "). A rank is late or died; see its log."));
  }

  std::string where_;
  Fd fd_;
  std::mutex mutex_;
  bool broken_ = false;
};

}  // namespace

std::shared_ptr<Store> connect_tcp_store(const std::string& host, int port, std::chrono::milliseconds timeout) {
  return std::make_shared<TcpStoreClient>(host, port, timeout);
}

}  // namespace trireme::rendezvous
