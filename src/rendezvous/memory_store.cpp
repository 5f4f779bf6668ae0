#include "rendezvous/memory_store.h"

#include <algorithm>

#include "base/deadline.h"
#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::rendezvous {
namespace {

/// Lets a thread sleep until the table calls back.
class Sleeper {
 public:
  void wake() {
    const std::lock_guard lock(mutex_);
    ready_ = true;
    wakeup_.notify_all();
  }
  bool sleep(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return wakeup_.wait_until(lock, deadline_after(timeout), [this] { return ready_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable wakeup_;
  bool ready_ = false;
};

class TableStore final : public Store {
 public:
  TableStore(std::shared_ptr<StoreTable> table, std::string prefix)
      : table_(std::move(table)), prefix_(std::move(prefix)) {}

  void set(std::string_view key, std::string_view value) override { table_->set(full(key), value); }

  std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
    const std::string name(key);
    wait_for({&name, 1}, timeout, "get");
    return table_->find(full(key)).value_or(std::string{});
  }

  int64_t add(std::string_view key, int64_t delta) override {
    const auto sum = table_->add(full(key), delta);
    if (!sum) not_a_number("add", key);
    return *sum;
  }

  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired) override {
    return table_->compare_set(full(key), expected, desired);
  }

  bool check(std::span<const std::string> keys) override { return table_->check(full(keys)); }

  void wait(std::span<const std::string> keys, std::chrono::milliseconds timeout) override {
    wait_for(keys, timeout, "wait");
  }

  bool delete_key(std::string_view key) override { return table_->erase(full(key)); }
  int64_t num_keys() override { return table_->size(); }
  void append(std::string_view key, std::string_view value) override { table_->append(full(key), value); }

  std::vector<std::string> multi_get(std::span<const std::string> keys, std::chrono::milliseconds timeout) override {
    wait_for(keys, timeout, "multi_get");
    std::vector<std::string> values;
    values.reserve(keys.size());
    for (const std::string& key : keys) values.push_back(table_->find(full(key)).value_or(std::string{}));
    return values;
  }

  void queue_push(std::string_view queue, std::string_view value) override { table_->queue_push(full(queue), value); }

  std::string queue_pop(std::string_view queue, std::chrono::milliseconds timeout) override {
    const auto deadline = deadline_after(timeout);
    const std::string name(queue);
    while (true) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      wait_for({&name, 1}, std::max(left, std::chrono::milliseconds(0)), "queue_pop");
      // Another thread may have been faster: then wait for the next value.
      StoreTable::Popped popped = table_->queue_pop(full(queue));
      if (popped.size_before > 0) return std::move(popped.value);
    }
  }

  int64_t queue_len(std::string_view queue) override { return table_->queue_len(full(queue)); }

  std::vector<std::string> list_keys() override {
    std::vector<std::string> keys;
    for (std::string& key : table_->list()) {
      if (key.starts_with(prefix_)) keys.push_back(key.substr(prefix_.size()));
    }
    return keys;
  }

  void barrier(std::string_view key, int64_t world_size, std::chrono::milliseconds timeout) override {
    auto sleeper = std::make_shared<Sleeper>();
    const auto id = table_->barrier(full(key), world_size, [sleeper] { sleeper->wake(); });
    if (!id) not_a_number("barrier", key);
    if (*id == 0 || sleeper->sleep(timeout) || !table_->cancel(*id)) return;
    throw Error(ErrorKind::kTimeout, str("[rendezvous.barrier] fewer than ", world_size, " ranks came to '", key,
                                         "' within ", in_words(timeout), ". A rank is late or died; see its log."));
  }

 private:
  [[nodiscard]] std::string full(std::string_view key) const { return prefix_ + std::string(key); }

  [[nodiscard]] std::vector<std::string> full(std::span<const std::string> keys) const {
    std::vector<std::string> names;
    names.reserve(keys.size());
    for (const std::string& key : keys) names.push_back(prefix_ + key);
    return names;
  }

  [[noreturn]] static void not_a_number(const char* operation, std::string_view key) {
    throw Error(ErrorKind::kInvalidArgument, str("[rendezvous.", operation, "] the value of '", key,
                                                 "' is no decimal number of 64 bits, or the sum is none; counters "
                                                 "must not be set to other values."));
  }

  void wait_for(std::span<const std::string> keys, std::chrono::milliseconds timeout, const char* operation) {
    auto sleeper = std::make_shared<Sleeper>();
    const StoreTable::WaiterId id = table_->wait(full(keys), [sleeper] { sleeper->wake(); });
    if (id == 0 || sleeper->sleep(timeout) || !table_->cancel(id)) return;
    std::vector<std::string> missing;
    for (const std::string& key : keys) {
      const std::string name = full(key);
      if (!table_->check({&name, 1})) missing.push_back(key);
    }
    throw Error(ErrorKind::kTimeout, str("[rendezvous.", operation, "] nobody has set ", list_for_message(missing),
                                         " within ", in_words(timeout), ". A rank is late or died; see its log."));
  }

  std::shared_ptr<StoreTable> table_;
  std::string prefix_;
};

}  // namespace

std::shared_ptr<Store> make_table_store(std::shared_ptr<StoreTable> table, std::string key_prefix) {
  return std::make_shared<TableStore>(std::move(table), std::move(key_prefix));
}

std::shared_ptr<Store> make_memory_store() { return make_table_store(std::make_shared<StoreTable>(), ""); }

std::string list_for_message(std::span<const std::string> keys) {
  constexpr size_t kShown = 4;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(keys.size(), kShown); ++i) shown.push_back("'" + keys[i] + "'");
  std::string text = join(shown);
  if (keys.size() > kShown) text += str(" (and ", keys.size() - kShown, " more)");
  return text;
}

std::string in_words(std::chrono::milliseconds duration) {
  if (duration.count() < 1000) return str(duration.count(), " ms");
  return str(static_cast<double>(duration.count()) / 1000.0, " s");
}

}  // namespace trireme::rendezvous
