#include "rendezvous/store_table.h"

#include <algorithm>
#include <charconv>

namespace trireme::rendezvous {
namespace {

/// What an entry costs beside its own bytes, about: many small ones must not pass the limit unseen.
constexpr size_t kEntryBytes = 128;

std::optional<int64_t> parse_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

bool StoreTable::exists(std::string_view key) const {
  if (values_.find(key) != values_.end()) return true;
  const auto queue = queues_.find(key);
  return queue != queues_.end() && !queue->second.empty();
}

std::string& StoreTable::slot(std::string_view key) {
  auto it = values_.find(key);
  if (it == values_.end()) {
    it = values_.emplace(std::string(key), std::string{}).first;
    bytes_ += key.size() + kEntryBytes;
  }
  return it->second;
}

void StoreTable::store(std::string_view key, std::string value) {
  std::string& place = slot(key);
  bytes_ += value.size();
  bytes_ -= place.size();
  place = std::move(value);
}

void StoreTable::wake_all(std::string_view key) {
  const auto it = waiting_on_.find(key);
  if (it == waiting_on_.end()) return;
  const std::vector<WaiterId> ids = std::move(it->second);
  waiting_on_.erase(it);
  for (const WaiterId id : ids) {
    const auto waiter = waiters_.find(id);
    if (waiter == waiters_.end() || --waiter->second.missing > 0) continue;
    waiter->second.on_ready();
    waiters_.erase(waiter);
  }
}

// A value in a queue serves one: the first in line whose only missing key this is.
void StoreTable::wake_one(std::string_view key) {
  const auto it = waiting_on_.find(key);
  if (it == waiting_on_.end()) return;
  std::vector<WaiterId>& ids = it->second;
  for (auto id = ids.begin(); id != ids.end(); ++id) {
    const auto waiter = waiters_.find(*id);
    if (waiter == waiters_.end() || waiter->second.missing != 1) continue;
    waiter->second.on_ready();
    waiters_.erase(waiter);
    ids.erase(id);
    break;
  }
  if (ids.empty()) waiting_on_.erase(it);
}

void StoreTable::set(std::string_view key, std::string_view value) {
  const std::lock_guard lock(mutex_);
  store(key, std::string(value));
  wake_all(key);
}

std::optional<std::string> StoreTable::find(std::string_view key) {
  const std::lock_guard lock(mutex_);
  const auto it = values_.find(key);
  if (it == values_.end()) return std::nullopt;
  return it->second;
}

std::optional<int64_t> StoreTable::add(std::string_view key, int64_t delta) {
  const std::lock_guard lock(mutex_);
  int64_t sum = delta;
  if (const auto it = values_.find(key); it != values_.end()) {
    const auto before = parse_number(it->second);
    if (!before || __builtin_add_overflow(*before, delta, &sum)) return std::nullopt;
  }
  store(key, std::to_string(sum));
  wake_all(key);
  return sum;
}

std::string StoreTable::compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
  const std::lock_guard lock(mutex_);
  const auto it = values_.find(key);
  if (it == values_.end() && !expected.empty()) return std::string(expected);
  if (it == values_.end() || it->second == expected) {
    store(key, std::string(desired));
    wake_all(key);
    return std::string(desired);
  }
  return it->second;
}

bool StoreTable::check(std::span<const std::string> keys) {
  const std::lock_guard lock(mutex_);
  return std::all_of(keys.begin(), keys.end(), [this](const std::string& key) { return exists(key); });
}

bool StoreTable::erase(std::string_view key) {
  const std::lock_guard lock(mutex_);
  const auto it = values_.find(key);
  if (it == values_.end()) return false;
  bytes_ -= it->first.size() + it->second.size() + kEntryBytes;
  values_.erase(it);
  return true;
}

int64_t StoreTable::size() {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(values_.size());
}

void StoreTable::append(std::string_view key, std::string_view value) {
  const std::lock_guard lock(mutex_);
  slot(key).append(value);
  bytes_ += value.size();
  wake_all(key);
}

std::vector<std::string> StoreTable::list() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> keys;
  keys.reserve(values_.size());
  for (const auto& [key, value] : values_) keys.push_back(key);
  return keys;
}

void StoreTable::queue_push(std::string_view queue, std::string_view value) {
  const std::lock_guard lock(mutex_);
  auto it = queues_.find(queue);
  if (it == queues_.end()) it = queues_.emplace(std::string(queue), std::deque<std::string>{}).first;
  it->second.emplace_back(value);
  bytes_ += queue.size() + value.size() + kEntryBytes;
  wake_one(queue);
}

StoreTable::Popped StoreTable::queue_pop(std::string_view queue) {
  const std::lock_guard lock(mutex_);
  const auto it = queues_.find(queue);
  if (it == queues_.end() || it->second.empty()) return {};
  Popped popped{static_cast<int64_t>(it->second.size()), std::move(it->second.front())};
  it->second.pop_front();
  bytes_ -= queue.size() + popped.value.size() + kEntryBytes;
  if (it->second.empty()) queues_.erase(it);
  return popped;
}

int64_t StoreTable::queue_len(std::string_view queue) {
  const std::lock_guard lock(mutex_);
  const auto it = queues_.find(queue);
  return it == queues_.end() ? 0 : static_cast<int64_t>(it->second.size());
}

StoreTable::WaiterId StoreTable::add_waiter(std::span<const std::string> missing, OnReady on_ready) {
  const WaiterId id = next_id_++;
  for (const std::string& key : missing) waiting_on_[key].push_back(id);
  waiters_[id] = Waiter{missing.size(), std::move(on_ready)};
  return id;
}

StoreTable::WaiterId StoreTable::wait(std::span<const std::string> keys, OnReady on_ready) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> missing;
  for (const std::string& key : keys) {
    if (!exists(key)) missing.push_back(key);
  }
  return missing.empty() ? 0 : add_waiter(missing, std::move(on_ready));
}

std::optional<StoreTable::WaiterId> StoreTable::barrier(std::string_view key, int64_t world_size, OnReady on_ready) {
  const std::lock_guard lock(mutex_);
  int64_t count = 1;
  if (const auto it = values_.find(key); it != values_.end()) {
    const auto before = parse_number(it->second);
    if (!before || __builtin_add_overflow(*before, int64_t{1}, &count)) return std::nullopt;
  }
  store(key, std::to_string(count));
  if (count >= world_size) {
    wake_all(key);
    return 0;
  }
  const std::string missing(key);
  return add_waiter({&missing, 1}, std::move(on_ready));
}

bool StoreTable::cancel(WaiterId id) {
  const std::lock_guard lock(mutex_);
  if (waiters_.erase(id) == 0) return false;
  // Numbers of the gone must not pile up under keys that never appear.
  for (auto it = waiting_on_.begin(); it != waiting_on_.end();) {
    std::erase(it->second, id);
    it = it->second.empty() ? waiting_on_.erase(it) : std::next(it);
  }
  return true;
}

size_t StoreTable::bytes() {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace trireme::rendezvous
