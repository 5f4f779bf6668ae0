#include "trireme/parallel/ddp.h"

#include <ATen/ATen.h>

#include <cstring>
#include <set>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/env.h"
#include "base/str.h"
#include "comm/group_state.h"
#include "comm/reducer.h"
#include "comm/step.h"
#include "parallel/ddp_options.h"
#include "parallel/model_check.h"
#include "trireme/base/error.h"
#include "trireme/memory/leak_watch.h"
#include "trireme/memory/tracker.h"
#include "trireme/parallel/finite_check.h"

namespace trireme::parallel {
namespace {

// A weight tied to another is registered under two names; the first one stands for both.
NamedTensors without_repeats(NamedTensors named) {
  std::set<const c10::TensorImpl*> seen;
  NamedTensors unique;
  for (auto& entry : named) {
    if (entry.second.defined() && seen.insert(entry.second.unsafeGetTensorImpl()).second) {
      unique.push_back(std::move(entry));
    }
  }
  return unique;
}

std::string describe_entry(const char* kind, const std::string& name, const at::Tensor& tensor) {
  return trireme::str(kind, " '", name, "' ", comm::describe(tensor), tensor.requires_grad() ? " (with gradient)" : "",
                      tensor.is_contiguous() ? std::string{} : trireme::str(" strides ", tensor.strides()));
}

void require_dense(const comm::Group& group, const char* kind, const NamedTensors& named) {
  for (const auto& [name, tensor] : named) {
    if (tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.is_non_overlapping_and_dense()) continue;
    throw Error(
        ErrorKind::kUnsupported,
        trireme::str("[parallel.ddp] rank ", group.rank(), "/", group.size(), ": ", kind, " '", name, "' is ",
                     comm::describe(tensor), " on ", tensor.device(), " with strides ", tensor.strides(),
                     "; dense CPU tensors without overlaps are required. Call .contiguous() where it is made."));
  }
}

}  // namespace

struct DdpEngine::Impl {
  Impl(comm::Group members, const DdpOptions& chosen) : group(std::move(members)), options(chosen) {}

  comm::Group group;
  DdpOptions options;
  NamedTensors buffers;
  NamedTensors untrained;  ///< parameters that needed no gradient
  std::vector<std::byte> packed_buffers;
  std::unique_ptr<comm::Reducer> reducer;
  int no_sync_depth = 0;
  NamedTensors parameters;  ///< where their values are compared
  int64_t num_steps = 0;    ///< forwards in training mode outside no_sync
  std::unique_ptr<FiniteCheck> finite_check;
  std::vector<memory::CommunicationBuffer> own_memory;  ///< for the memory tracker; last, so that it ends first

  comm::HostBackend& host() { return comm::require_host(group, "parallel.ddp"); }

  // Buffers are compared where they are kept equal.
  void compare_values() {
    std::vector<std::string> lines;
    const auto add = [&lines](const char* kind, const NamedTensors& named) {
      for (const auto& [name, tensor] : named) {
        const uint64_t hash = tensor.nbytes() > 0 ? XXH3_64bits(tensor.data_ptr(), tensor.nbytes()) : 0;
        lines.push_back(trireme::str(kind, " '", name, "' ", comm::describe(tensor), " with hash ", std::hex, hash));
      }
    };
    add("parameter", parameters);
    if (options.broadcast_buffers) add("buffer", buffers);
    comm::HostBackend& backend = host();
    require_equal_values(backend.queue(), backend.communicator(), lines, num_steps);
  }

  void broadcast(void* data, size_t bytes, std::string_view label) {
    comm::CallInfo info;
    info.op = comm::OpKind::kBroadcast;
    info.num_dims = 1;
    info.dims[0] = static_cast<int64_t>(bytes);
    info.count = bytes;
    info.root = 0;
    info.step = comm::current_step();
    info.set_label(label);
    comm::HostBackend& backend = host();
    backend.queue().wait(backend.queue().issue(
        info, [&](const comm::CallInfo& numbered) { backend.communicator().broadcast(numbered, data, bytes); }));
  }

  // Buffers are many and small: one packed message instead of one each.
  void broadcast_buffers() {
    const bool root = group.rank() == 0;
    size_t bytes = 0;
    for (const auto& [name, tensor] : buffers) bytes += tensor.nbytes();
    packed_buffers.resize(bytes);
    const auto walk = [this](auto&& copy) {
      std::byte* at = packed_buffers.data();
      for (const auto& [name, tensor] : buffers) {
        if (tensor.nbytes() > 0) copy(at, tensor.data_ptr(), tensor.nbytes());
        at += tensor.nbytes();
      }
    };
    if (root) walk([](void* packed, const void* tensor, size_t size) { std::memcpy(packed, tensor, size); });
    broadcast(packed_buffers.data(), bytes, "buffers");
    if (!root) walk([](const void* packed, void* tensor, size_t size) { std::memcpy(tensor, packed, size); });
  }
};

DdpEngine::DdpEngine(comm::Group group, NamedTensors parameters, NamedTensors buffers, const DdpOptions& options)
    : impl_(std::make_unique<Impl>(std::move(group), options)) {
  check_ddp_options(options);
  const char* leak_watch = env_value("TRIREME_LEAK_WATCH");
  if (leak_watch != nullptr && std::string_view(leak_watch) == "1") memory::start_leak_watch();
  parameters = without_repeats(std::move(parameters));
  impl_->buffers = without_repeats(std::move(buffers));
  const char* check_finite = env_value("TRIREME_CHECK_FINITE");
  if (check_finite != nullptr && std::string_view(check_finite) == "1")
    impl_->finite_check = std::make_unique<FiniteCheck>(parameters);
  if (impl_->group.size() == 1) return;

  comm::HostBackend& host = impl_->host();
  require_dense(impl_->group, "parameter", parameters);
  require_dense(impl_->group, "buffer", impl_->buffers);
  std::vector<std::string> lines;
  for (const auto& [name, tensor] : parameters) lines.push_back(describe_entry("parameter", name, tensor));
  for (const auto& [name, tensor] : impl_->buffers) lines.push_back(describe_entry("buffer", name, tensor));
  require_equal_models(host.queue(), host.communicator(), lines);

  for (const auto& [name, tensor] : parameters) impl_->broadcast(tensor.data_ptr(), tensor.nbytes(), "parameter");
  if (!impl_->buffers.empty()) impl_->broadcast_buffers();
  impl_->own_memory.emplace_back(impl_->packed_buffers.data(), impl_->packed_buffers.size());

  if (options.check_values_every > 0) impl_->parameters = parameters;
  std::vector<std::string> names;
  std::vector<at::Tensor> trained;
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.requires_grad()) {
      impl_->untrained.emplace_back(name, tensor);
      continue;
    }
    names.push_back(name);
    trained.push_back(tensor);
  }
  if (trained.empty()) return;
  comm::ReducerOptions reducer;
  reducer.first_bucket_bytes = options.first_bucket_bytes;
  reducer.bucket_bytes = options.bucket_bytes;
  reducer.find_unused = options.find_unused_parameters;
  reducer.bucket_view = options.gradients == GradientMode::kBucketView;
  if (options.gradients == GradientMode::kArena) {
    std::vector<size_t> sizes;
    for (const at::Tensor& parameter : trained) sizes.push_back(parameter.nbytes());
    reducer.arena = comm::GradientArena::make(comm::share_memory(impl_->group, comm::GradientArena::part_bytes(sizes)),
                                              impl_->group.rank(), sizes);
    const comm::SharedParts& shared = reducer.arena->shared();
    impl_->own_memory.emplace_back(shared.part(impl_->group.rank()), shared.part_bytes);
  }
  impl_->reducer = std::make_unique<comm::Reducer>(host, std::move(names), std::move(trained), reducer);
}

DdpEngine::~DdpEngine() = default;

void DdpEngine::before_forward(bool training) {
  if (training && impl_->no_sync_depth == 0) memory::end_leak_watch_step();
  for (const auto& [name, tensor] : impl_->untrained) {
    if (!tensor.requires_grad()) continue;
    throw Error(
        ErrorKind::kUnsupported,
        trireme::str("[parallel.ddp] rank ", impl_->group.rank(), "/", impl_->group.size(), ": parameter '", name,
                     "' needed no gradient when the model was wrapped, and needs one now; it would not be ",
                     "averaged. Let it need one first, then wrap the model."));
  }
  if (impl_->reducer) impl_->reducer->prepare();
  if (!training || impl_->no_sync_depth > 0 || impl_->group.size() == 1) return;
  if (impl_->options.broadcast_buffers && !impl_->buffers.empty()) impl_->broadcast_buffers();
  const int64_t every = impl_->options.check_values_every;
  if (every > 0 && impl_->num_steps % every == 0 && impl_->num_steps > 0) impl_->compare_values();
  ++impl_->num_steps;
}

void DdpEngine::watch(const at::Tensor& output) {
  if (!impl_->reducer || impl_->options.gradients != GradientMode::kArena || !output.defined() ||
      !output.requires_grad()) {
    return;
  }
  // Backward reaches the outputs first: from there on gradients are born in shared memory.
  output.register_hook([reducer = impl_->reducer.get()](const at::Tensor& /*gradient*/) { reducer->raise_arena(); });
}

void DdpEngine::sync_buffers() {
  if (impl_->group.size() > 1 && !impl_->buffers.empty()) impl_->broadcast_buffers();
}

void DdpEngine::begin_no_sync() noexcept {
  if (++impl_->no_sync_depth == 1 && impl_->reducer) impl_->reducer->set_sync(false);
}

void DdpEngine::end_no_sync() noexcept {
  if (--impl_->no_sync_depth == 0 && impl_->reducer) impl_->reducer->set_sync(true);
}

const comm::Group& DdpEngine::group() const noexcept { return impl_->group; }
const DdpOptions& DdpEngine::options() const noexcept { return impl_->options; }

DdpEngine::Stats DdpEngine::stats() const {
  Stats stats;
  if (!impl_->reducer) return stats;
  stats.num_buckets = static_cast<int64_t>(impl_->reducer->num_buckets());
  stats.gradient_bytes = impl_->reducer->gradient_bytes();
  stats.rebuilt = impl_->reducer->rebuilt();
  stats.num_reductions = impl_->reducer->num_reductions();
  // In the arena: of every n-th part all n contributions are read and all n results written. Staged: read and written
  // on the way into shared memory, then n contributions read and the result written.
  stats.arena_bytes = impl_->reducer->arena_bytes();
  stats.bytes_touched =
      stats.arena_bytes * 2 + (stats.gradient_bytes - stats.arena_bytes) * (2 + impl_->group.size() + 1);
  return stats;
}

}  // namespace trireme::parallel
