#include "base/deadline.h"
#include "base/str.h"
#include "trireme/base/error.h"
#include "trireme/rendezvous/store.h"

namespace trireme::rendezvous {
namespace {

[[noreturn]] void lacking(const char* operation) {
  throw Error(ErrorKind::kUnavailable,
              str("[rendezvous.", operation, "] this store does not offer ", operation,
                  "; use the launcher's TCP store (trireme run, or torchrun of PyTorch 2.13)."));
}

class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> store)
      : prefix_(std::move(prefix) + "/"), store_(std::move(store)) {}

  void set(std::string_view key, std::string_view value) override { store_->set(full(key), value); }
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
    return store_->get(full(key), timeout);
  }
  int64_t add(std::string_view key, int64_t delta) override { return store_->add(full(key), delta); }
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired) override {
    return store_->compare_set(full(key), expected, desired);
  }
  bool check(std::span<const std::string> keys) override { return store_->check(full(keys)); }
  void wait(std::span<const std::string> keys, std::chrono::milliseconds timeout) override {
    store_->wait(full(keys), timeout);
  }
  bool delete_key(std::string_view key) override { return store_->delete_key(full(key)); }
  // Like c10d's PrefixStore: of the store below, all prefixes together.
  int64_t num_keys() override { return store_->num_keys(); }
  void append(std::string_view key, std::string_view value) override { store_->append(full(key), value); }
  std::vector<std::string> multi_get(std::span<const std::string> keys, std::chrono::milliseconds timeout) override {
    return store_->multi_get(full(keys), timeout);
  }
  void multi_set(std::span<const std::string> keys, std::span<const std::string> values) override {
    store_->multi_set(full(keys), values);
  }
  void queue_push(std::string_view queue, std::string_view value) override { store_->queue_push(full(queue), value); }
  std::string queue_pop(std::string_view queue, std::chrono::milliseconds timeout) override {
    return store_->queue_pop(full(queue), timeout);
  }
  int64_t queue_len(std::string_view queue) override { return store_->queue_len(full(queue)); }
  std::vector<std::string> list_keys() override {
    std::vector<std::string> keys;
    for (const std::string& key : store_->list_keys()) {
      if (key.starts_with(prefix_)) keys.push_back(key.substr(prefix_.size()));
    }
    return keys;
  }
  void barrier(std::string_view key, int64_t world_size, std::chrono::milliseconds timeout) override {
    store_->barrier(full(key), world_size, timeout);
  }

 private:
  [[nodiscard]] std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  [[nodiscard]] std::vector<std::string> full(std::span<const std::string> keys) const {
    std::vector<std::string> names;
    names.reserve(keys.size());
    for (const std::string& key : keys) names.push_back(prefix_ + key);
    return names;
  }

  std::string prefix_;
  std::shared_ptr<Store> store_;
};

}  // namespace

std::shared_ptr<Store> make_prefix_store(std::string prefix, std::shared_ptr<Store> store) {
  return std::make_shared<PrefixStore>(std::move(prefix), std::move(store));
}

void Store::append(std::string_view, std::string_view) { lacking("append"); }
void Store::queue_push(std::string_view, std::string_view) { lacking("queue_push"); }
std::string Store::queue_pop(std::string_view, std::chrono::milliseconds) { lacking("queue_pop"); }
int64_t Store::queue_len(std::string_view) { lacking("queue_len"); }
std::vector<std::string> Store::list_keys() { lacking("list_keys"); }
void Store::barrier(std::string_view, int64_t, std::chrono::milliseconds) { lacking("barrier"); }

std::vector<std::string> Store::multi_get(std::span<const std::string> keys, std::chrono::milliseconds timeout) {
  wait(keys, timeout);
  std::vector<std::string> values;
  values.reserve(keys.size());
  for (const std::string& key : keys) values.push_back(get(key, timeout));
  return values;
}

void Store::multi_set(std::span<const std::string> keys, std::span<const std::string> values) {
  if (keys.size() != values.size()) {
    throw Error(ErrorKind::kInvalidArgument, str("[rendezvous.multi_set] ", keys.size(), " keys and ", values.size(),
                                                 " values; there must be one value for each key."));
  }
  for (size_t i = 0; i < keys.size(); ++i) set(keys[i], values[i]);
}

std::string get_unless_dead(Store& store, Store& root, std::string_view key, std::chrono::milliseconds timeout,
                            std::string_view what) {
  // The protocol cannot wait for "this key or that one", so the wait is cut into slices short enough that a death is
  // named well within a second.
  constexpr std::chrono::milliseconds kSlice{50};
  const auto deadline = deadline_after(timeout);
  const std::string notice_key(kDeathNoticeKey);
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const auto slice = std::max(std::min(left, kSlice), std::chrono::milliseconds(0));
    try {
      return store.get(key, slice);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kTimeout) throw;
    }
    if (root.check({&notice_key, 1})) {
      throw Error(ErrorKind::kPeerLost, str("[", what, "] ", root.get(notice_key, kSlice), "; this rank waited for '",
                                            key, "'. See the launcher's report and that rank's log."));
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      throw Error(ErrorKind::kTimeout, str("[", what, "] nobody has set '", key, "' within ", timeout.count(),
                                           " ms. A rank is late or died; see its log."));
    }
  }
}

}  // namespace trireme::rendezvous
