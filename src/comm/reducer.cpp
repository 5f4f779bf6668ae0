#include "comm/reducer.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstring>

#include "base/str.h"
#include "comm/own_code.h"
#include "comm/step.h"
#include "profile/busy_board.h"
#include "trireme/base/error.h"

namespace trireme::comm {

namespace {

/// Whether element k in memory is the same element of both; strides of dims of size 1 do not matter.
bool same_memory_order(const at::Tensor& a, const at::Tensor& b) {
  for (int64_t dim = 0; dim < a.dim(); ++dim) {
    if (a.size(dim) != 1 && a.stride(dim) != b.stride(dim)) return false;
  }
  return true;
}

bool reducible(const at::Tensor& grad, const at::Tensor& parameter) {
  return grad.layout() == at::kStrided && !grad.requires_grad() && grad.scalar_type() == parameter.scalar_type();
}

}  // namespace

class ReadyHook final : public torch::autograd::FunctionPostHook {
 public:
  ReadyHook(Reducer& reducer, size_t index) : reducer_(&reducer), index_(index) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& inputs) override {
    reducer_->on_gradient(index_, !inputs.empty() && inputs[0].defined());
    return outputs;
  }

 private:
  Reducer* reducer_;
  size_t index_;
};

Reducer::Reducer(HostBackend& host, std::vector<std::string> names, std::vector<at::Tensor> parameters,
                 const ReducerOptions& options)
    : host_(host), options_(options), slots_(parameters.size()) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::optional<DType> dtype = to_dtype(parameters[i].scalar_type());
    if (!dtype || !parameters[i].is_cpu() || !parameters[i].is_non_overlapping_and_dense()) {
      throw Error(ErrorKind::kUnsupported,
                  trireme::str(prefix(), "parameter '", names[i], "' is ", describe(parameters[i]), " on ",
                               parameters[i].device(), " with strides ", parameters[i].strides(),
                               "; gradients are reduced for dense CPU tensors of f16, bf16, f32 and f64."));
    }
    slots_[i].name = std::move(names[i]);
    slots_[i].parameter = std::move(parameters[i]);
    items_.push_back({static_cast<int64_t>(slots_[i].parameter.nbytes()), *dtype});
  }
  // Backward reaches the last layer first: until the real order is known, take the reverse of registration.
  std::vector<size_t> order(slots_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
  make_buckets(order);
  ready_order_.reserve(slots_.size());
  usage_.resize(slots_.size());
  for (size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].accumulator = torch::autograd::impl::grad_accumulator(slots_[i].parameter);
    slots_[i].hook = slots_[i].accumulator->add_post_hook(std::make_unique<ReadyHook>(*this, i));
  }
}

Reducer::~Reducer() {
  set_sync(true);
  for (Slot& slot : slots_) {
    if (slot.accumulator) slot.accumulator->del_post_hook(slot.hook);
  }
  try {
    settle();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the group is broken, so nothing is running any more
  }
}

std::string Reducer::prefix() const {
  return trireme::str("[parallel.ddp] rank ", host_.getRank(), "/", host_.getSize(), ": ");
}

int64_t Reducer::gradient_bytes() const noexcept {
  int64_t sum = 0;
  for (const BucketItem& item : items_) sum += item.bytes;
  return sum;
}

void Reducer::set_sync(bool sync) noexcept {
  if (sync == sync_) return;
  sync_ = sync;
  if (sync) {
    profile::end_busy(note_);
  } else {
    note_ = profile::begin_note("no_sync(), where backward takes part in no all_reduce");
  }
}

void Reducer::make_buckets(std::span<const size_t> order) {
  const auto plan = plan_buckets(items_, order, options_.first_bucket_bytes, options_.bucket_bytes);
  buckets_ = std::vector<Bucket>(plan.size());
  for (size_t b = 0; b < plan.size(); ++b) {
    Bucket& bucket = buckets_[b];
    bucket.owner = this;
    bucket.members = plan[b];
    bucket.segments.reserve(plan[b].size());
    bucket.held.reserve(plan[b].size());
    bucket.num_pending = plan[b].size();
    int64_t count = 0;
    for (const size_t index : plan[b]) {
      slots_[index].bucket = b;
      count += slots_[index].parameter.numel();
    }
    if (options_.bucket_view) make_views(bucket, count);
    bucket.info.op = OpKind::kAllReduce;
    bucket.info.reduce = ReduceKind::kAvg;
    bucket.info.dtype = items_[plan[b].front()].dtype;
    bucket.info.num_dims = 1;
    bucket.info.dims[0] = count;
    bucket.info.count = static_cast<uint64_t>(count);
    bucket.info.set_label(trireme::str("bucket ", b));
  }
}

void Reducer::make_views(const Bucket& bucket, int64_t count) {
  const at::NoGradGuard no_grad;
  const at::Tensor flat = at::empty({count}, slots_[bucket.members.front()].parameter.options());
  int64_t at = 0;
  for (const size_t index : bucket.members) {
    Slot& slot = slots_[index];
    // On the storage, not a view in autograd's eyes: Optimizer::zero_grad() detaches gradients in place.
    slot.view = at::empty({0}, flat.options());
    slot.view.set_(flat.storage(), at, slot.parameter.sizes(), slot.parameter.strides());
    at += slot.parameter.numel();
  }
}

// A function that gives no gradient for an input still runs the hook, with an undefined one, and nothing is added to .grad.
void Reducer::on_gradient(size_t index, bool defined) {
  const OwnCodeScope own;
  if (defined) {
    slots_[index].accumulated = true;
    slots_[index].preset = false;
  }
  raise_arena();  // for outputs that nobody watches
  if (!sync_) return;
  const int graph_task = torch::autograd::get_current_graph_task_id();
  if (!active_ || graph_task != graph_task_) begin(graph_task);
  mark(index, defined ? Ready::kGradient : Ready::kMissing);
}

// Module::to(dtype) gives a parameter a new AccumulateGrad node, one without our hook: its gradients would stay this rank's own, unnoticed.
void Reducer::require_unchanged() const {
  for (size_t i = 0; i < slots_.size(); ++i) {
    const at::Tensor& now = slots_[i].parameter;
    if (now.nbytes() == static_cast<size_t>(items_[i].bytes) && to_dtype(now.scalar_type()) == items_[i].dtype &&
        now.is_cpu())
      continue;
    throw Error(
        ErrorKind::kUnsupported,
        trireme::str(prefix(), "parameter '", slots_[i].name, "' has become ", describe(now), " on ", now.device(),
                     " since the model was wrapped (", items_[i].bytes, " bytes of ", to_string(items_[i].dtype),
                     "); its gradients would no longer be averaged. Change dtype, device or size first, then wrap."));
  }
}

void Reducer::prepare() {
  require_unchanged();
  if (!options_.bucket_view) return;
  const at::NoGradGuard no_grad;
  for (Slot& slot : slots_) {
    at::Tensor& grad = slot.parameter.mutable_grad();
    if (grad.defined() && grad.is_alias_of(slot.view)) continue;
    if (grad.defined()) {
      slot.view.copy_(grad);
    } else {
      slot.view.zero_();
      slot.preset = true;
    }
    grad = slot.view;
  }
}

void Reducer::raise_arena() noexcept {
  if (options_.arena) options_.arena->raise(torch::autograd::get_current_graph_task_id());
}

void Reducer::begin(int graph_task) {
  settle();                      // what a backward that ended in an exception left behind
  OwnCodeScope::active = false;  // the engine's own list grows here
  torch::autograd::Engine::get_default_engine().queue_callback([this] { finish(); });
  OwnCodeScope::active = true;
  active_ = true;
  graph_task_ = graph_task;
  arena_bytes_ = 0;
}

void Reducer::settle() {
  // Calls that were issued run to their end before the gradients they refer to may go: the peers wait for them too.
  std::exception_ptr first_error;
  for (size_t b = 0; b < next_bucket_; ++b) {
    try {
      if (buckets_[b].call) host_.queue().wait(buckets_[b].call);
    } catch (...) {
      if (!first_error) first_error = std::current_exception();
    }
  }
  for (Bucket& bucket : buckets_) {
    bucket.call = {};
    bucket.held.clear();
    bucket.segments.clear();
    bucket.num_pending = bucket.members.size();
  }
  for (Slot& slot : slots_) slot.ready = Ready::kNo;
  copy_back_.clear();
  ready_order_.clear();
  next_bucket_ = 0;
  refused_ = nullptr;
  active_ = false;
  if (first_error) std::rethrow_exception(first_error);
}

void Reducer::mark(size_t index, Ready how) {
  Slot& slot = slots_[index];
  if (slot.ready != Ready::kNo) {
    const std::string text = trireme::str(
        prefix(), "parameter '", slot.name, "' got its gradient twice in one backward; each parameter may ",
        "be reached once. A re-entrant recompute inside the layer does this: use the non-reentrant kind.");
    // What was sent of it is not the gradient, and the buckets to come will not be sent.
    host_.communicator().abort(text);
    throw Error(ErrorKind::kUnsupported, text);
  }
  slot.ready = how;
  ready_order_.push_back(index);
  if (--buckets_[slot.bucket].num_pending > 0) return;
  const size_t before = next_bucket_;
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].num_pending == 0) launch(buckets_[next_bucket_++]);
  // The last bucket is executed by this very thread at the end of backward, any other beside the computation.
  if (next_bucket_ != before && next_bucket_ < buckets_.size()) host_.queue().kick();
}

void Reducer::launch(Bucket& bucket) {
  try {
    for (const size_t index : bucket.members) add_segment(bucket, slots_[index]);
    issue(bucket);
  } catch (const std::exception& error) {
    // The peers wait in this bucket; they must not wait for their time-out.
    host_.communicator().abort(trireme::str(bucket.info.label_view(), " could not be sent: ", error.what()));
    throw;
  }
}

void Reducer::issue(Bucket& bucket) {
  bucket.info.step = current_step();
  // One word, so that std::function keeps it without an allocation.
  bucket.call = host_.queue().issue(bucket.info, [b = &bucket](const CallInfo& info) {
    const OwnCodeScope own;
    Communicator& communicator = b->owner->host_.communicator();
    if (const auto& arena = b->owner->options_.arena) {
      communicator.all_reduce_shared(info, b->segments, arena->shared());
    } else {
      communicator.all_reduce(info, b->segments);
    }
  });
}

// What goes out for a parameter without a gradient of this backward: what no_sync has added up, or zeros.
void Reducer::add_missing(Bucket& bucket, Slot& slot) {
  const at::Tensor& parameter = slot.parameter;
  const at::Tensor& grad = parameter.grad();
  if (!slot.scratch.defined()) slot.scratch = at::empty_like(parameter);
  const void* in = nullptr;
  if (grad.defined() && reducible(grad, parameter)) {
    bucket.held.push_back(same_memory_order(grad, parameter) ? grad : at::empty_like(parameter).copy_(grad));
    in = bucket.held.back().const_data_ptr();
  } else {
    if (!slot.zeros.defined()) slot.zeros = at::zeros_like(parameter);
    in = slot.zeros.const_data_ptr();
  }
  bucket.segments.push_back({in, slot.scratch.mutable_data_ptr(), static_cast<size_t>(parameter.numel())});
}

// Noted, and thrown when the buckets are done: until then the peers get zeros in its place.
void Reducer::refuse_gradient(const Slot& slot) {
  const at::Tensor& grad = slot.parameter.grad();
  if (refused_) return;
  refused_ = std::make_exception_ptr(
      Error(ErrorKind::kUnsupported, trireme::str(prefix(), "the gradient of '", slot.name, "' is ", describe(grad),
                                                  grad.layout() != at::kStrided ? " (sparse)" : "",
                                                  grad.requires_grad() ? " and part of a graph (create_graph)" : "",
                                                  "; a dense one of the parameter's dtype, ", describe(slot.parameter),
                                                  ", outside any graph ", "is required.")));
}

void Reducer::add_segment(Bucket& bucket, Slot& slot) {
  const at::Tensor& parameter = slot.parameter;
  at::Tensor& grad = slot.parameter.mutable_grad();
  const auto count = static_cast<size_t>(parameter.numel());
  if (slot.ready == Ready::kGradient && !reducible(grad, parameter)) refuse_gradient(slot);
  if (slot.ready == Ready::kMissing || !reducible(grad, parameter)) {
    add_missing(bucket, slot);
    return;
  }
  if (same_memory_order(grad, parameter)) {
    void* data = grad.mutable_data_ptr();
    bucket.held.push_back(grad);
    bucket.segments.push_back({data, data, count});
    if (options_.arena && options_.arena->contains(data)) arena_bytes_ += static_cast<int64_t>(parameter.nbytes());
    return;
  }
  // Ranks agree on the parameter's layout only, so another one is brought into it and back.
  at::Tensor copy = at::empty_like(parameter);
  copy.copy_(grad);
  void* data = copy.mutable_data_ptr();
  bucket.segments.push_back({data, data, count});
  bucket.held.push_back(copy);
  copy_back_.push_back({copy, grad});
}

void Reducer::finish() {
  const OwnCodeScope own;
  const at::NoGradGuard no_grad;
  GradientArena::lower();
  std::vector<size_t> missing;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].ready == Ready::kGradient) continue;
    missing.push_back(i);
    // The peers wait for these buckets even if this rank is about to report an error.
    if (slots_[i].ready == Ready::kNo) mark(i, Ready::kMissing);
  }
  finish_buckets();
  if (options_.find_unused) exchange_usage();
  ++num_reductions_;
  for (Slot& slot : slots_) slot.accumulated = false;
  const std::exception_ptr refused = refused_;
  if (!rebuilt_) rebuild();
  settle();
  if (refused) std::rethrow_exception(refused);
  if (!missing.empty() && !options_.find_unused) throw_missing(missing);
}

void Reducer::finish_buckets() {
  try {
    for (Bucket& bucket : buckets_) {
      host_.queue().wait(bucket.call);
      bucket.call = {};
    }
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    try {
      settle();
    } catch (...) {  // NOLINT(bugprone-empty-catch): the first error says it all
    }
    std::rethrow_exception(error);
  }
  for (CopyBack& copy : copy_back_) copy.to.copy_(copy.from);
}

void Reducer::exchange_usage() {
  for (size_t i = 0; i < slots_.size(); ++i) usage_[i] = slots_[i].accumulated ? 1 : 0;
  CallInfo info;
  info.op = OpKind::kAllReduce;
  info.reduce = ReduceKind::kMax;
  info.dtype = DType::kU8;
  info.num_dims = 1;
  info.dims[0] = static_cast<int64_t>(usage_.size());
  info.count = usage_.size();
  info.set_label("used parameters");
  run_now(info, [this](const CallInfo& numbered) {
    const Segment segment{usage_.data(), usage_.data(), usage_.size()};
    host_.communicator().all_reduce(numbered, {&segment, 1});
  });
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.ready != Ready::kMissing) continue;
    at::Tensor& grad = slot.parameter.mutable_grad();
    if (usage_[i] == 0) {  // unused on every rank: left as it was
      if (slot.preset) grad.reset();
      continue;
    }
    if (grad.defined()) {
      grad.copy_(slot.scratch);
    } else {
      grad = std::exchange(slot.scratch, {});
    }
  }
}

void Reducer::run_now(const CallInfo& info, const CallQueue::Body& body) {
  CallInfo stamped = info;
  stamped.step = current_step();
  host_.queue().wait(host_.queue().issue(stamped, body));
}

void Reducer::rebuild() {
  rebuilt_ = true;
  if (buckets_.size() == 1) return;
  // Ranks may have seen different orders; all take rank 0's.
  std::vector<int64_t> order(ready_order_.begin(), ready_order_.end());
  CallInfo info;
  info.op = OpKind::kBroadcast;
  info.dtype = DType::kI64;
  info.num_dims = 1;
  info.dims[0] = static_cast<int64_t>(order.size());
  info.count = order.size();
  info.root = 0;
  info.set_label("bucket order");
  run_now(info, [this, &order](const CallInfo& numbered) {
    host_.communicator().broadcast(numbered, order.data(), order.size() * sizeof(int64_t));
  });
  settle();
  make_buckets(std::vector<size_t>(order.begin(), order.end()));
}

void Reducer::throw_missing(const std::vector<size_t>& missing) const {
  constexpr size_t kMaxNames = 20;
  std::string names;
  for (size_t i = 0; i < std::min(missing.size(), kMaxNames); ++i) {
    names += trireme::str(i == 0 ? "'" : ", '", slots_[missing[i]].name, "'");
  }
  if (missing.size() > kMaxNames) names += trireme::str(" and ", missing.size() - kMaxNames, " more");
  throw Error(ErrorKind::kInvalidArgument,
              trireme::str(prefix(), missing.size(), " of ", slots_.size(), " parameters got no gradient in this ",
                           "backward: ", names, "; every parameter must take part in the loss on every rank. Set ",
                           "DdpOptions::find_unused_parameters = true if that is intended, or use all outputs of ",
                           "forward in the loss."));
}

}  // namespace trireme::comm
