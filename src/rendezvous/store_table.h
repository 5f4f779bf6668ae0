// The data behind the memory store and the TCPStore server: values, queues, and who waits for which key.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trireme::rendezvous {

/// Purpose        Key-value table with waiters, of which both the socket server and threads of this process are users.
/// Invariants     A waiter is called exactly once, when its last missing key appears, or never if cancelled before.
/// Thread safety  Every member may be called from any thread. Callbacks run under the table's lock: they only take
/// note.
class StoreTable {
 public:
  using WaiterId = uint64_t;
  using OnReady = std::function<void()>;

  void set(std::string_view key, std::string_view value);
  [[nodiscard]] std::optional<std::string> find(std::string_view key);
  /// No value when what is there is no decimal number or the sum leaves 64 bits.
  [[nodiscard]] std::optional<int64_t> add(std::string_view key, int64_t delta);
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired);
  [[nodiscard]] bool check(std::span<const std::string> keys);
  bool erase(std::string_view key);
  [[nodiscard]] int64_t size();
  void append(std::string_view key, std::string_view value);
  [[nodiscard]] std::vector<std::string> list();
  void queue_push(std::string_view queue, std::string_view value);
  struct Popped {
    int64_t size_before = 0;
    std::string value;
  };
  Popped queue_pop(std::string_view queue);
  [[nodiscard]] int64_t queue_len(std::string_view queue);

  /// 0 when all keys exist now (`on_ready` is not called), else the waiter's number.
  [[nodiscard]] WaiterId wait(std::span<const std::string> keys, OnReady on_ready);
  /// Counts one arrival. 0 when it was the last (all others are called), else the waiter's number; no value when the
  /// key holds no number.
  [[nodiscard]] std::optional<WaiterId> barrier(std::string_view key, int64_t world_size, OnReady on_ready);
  /// Whether the waiter was still there: false means that it has been called.
  bool cancel(WaiterId id);

  /// Bytes of all keys and values, and 128 more for each.
  [[nodiscard]] size_t bytes();

 private:
  struct Waiter {
    size_t missing = 0;
    OnReady on_ready;
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  template <typename Value>
  using Map = std::unordered_map<std::string, Value, Hash, std::equal_to<>>;

  bool exists(std::string_view key) const;
  std::string& slot(std::string_view key);
  void store(std::string_view key, std::string value);
  void wake_all(std::string_view key);
  void wake_one(std::string_view key);
  WaiterId add_waiter(std::span<const std::string> missing, OnReady on_ready);

  std::mutex mutex_;
  Map<std::string> values_;
  Map<std::deque<std::string>> queues_;
  Map<std::vector<WaiterId>> waiting_on_;
  std::unordered_map<WaiterId, Waiter> waiters_;
  WaiterId next_id_ = 1;
  size_t bytes_ = 0;
};

}  // namespace trireme::rendezvous
