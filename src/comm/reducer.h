// Averages gradients over a group while backward runs.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/algorithms/call_queue.h"
#include "comm/algorithms/communicator.h"
#include "comm/backends/host/host_backend.h"
#include "comm/bucket_plan.h"
#include "comm/gradient_arena.h"

namespace trireme::comm {

struct ReducerOptions {
  int64_t first_bucket_bytes = int64_t{1} << 20;
  int64_t bucket_bytes = int64_t{25} << 20;
  bool find_unused = false;
  std::shared_ptr<GradientArena> arena;  ///< null: every gradient is staged
  bool bucket_view = false;              ///< .grad is preset to a view of its bucket's flat tensor
};

/// Purpose       Hooks on the AccumulateGrad node of every parameter put its gradient into a bucket; a complete bucket
///               is reduced by the progress thread while backward goes on, the rest at its end.
/// Invariants    Buckets are issued in index order, so all ranks issue the same calls although gradients may become
///               ready in another order. A bucket is a list of gradients where they lie: the Communicator gathers them
///               while it publishes them. From the third step on nothing is allocated.
/// Errors        Thrown from the backward under way, at its end where the peers can be served until then; where a bucket cannot be
///               issued, the group is aborted. After an exception the next backward starts afresh.
/// Thread safety None: one backward at a time.
/// Lifetime      Removes its hooks when it goes; `host` must live longer.
class Reducer {
 public:
  Reducer(HostBackend& host, std::vector<std::string> names, std::vector<at::Tensor> parameters,
          const ReducerOptions& options);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /// Whether backward reduces; while off, gradients add up locally.
  void set_sync(bool sync) noexcept;

  /// Before a forward: throws kUnsupported when a parameter is not what it was; presets .grad where they are to be views of
  /// their bucket.
  void prepare();

  /// From inside a backward: its gradients are to be born in the arena from here on.
  void raise_arena() noexcept;

  [[nodiscard]] size_t num_buckets() const noexcept { return buckets_.size(); }
  [[nodiscard]] const std::vector<size_t>& bucket(size_t index) const { return buckets_[index].members; }
  [[nodiscard]] bool rebuilt() const noexcept { return rebuilt_; }
  [[nodiscard]] uint64_t num_reductions() const noexcept { return num_reductions_; }
  [[nodiscard]] int64_t gradient_bytes() const noexcept;
  /// Of the last backward that was reduced: bytes of gradients that lay in this rank's arena.
  [[nodiscard]] int64_t arena_bytes() const noexcept { return arena_bytes_; }

 private:
  friend class ReadyHook;
  enum class Ready : uint8_t { kNo, kGradient, kMissing };
  struct Slot {
    std::string name;
    at::Tensor parameter;
    c10::intrusive_ptr<torch::autograd::Node> accumulator;  // the tensor itself holds it only weakly
    uintptr_t hook = 0;
    size_t bucket = 0;
    Ready ready = Ready::kNo;
    bool accumulated = false;  // since the last reduction, no_sync included
    at::Tensor zeros;          // stands in for a gradient that is missing
    at::Tensor scratch;        // receives the average then
    at::Tensor view;           // of the bucket's flat tensor
    bool preset = false;       // .grad is our zeroed view and nothing was added yet
  };
  struct Bucket {
    Reducer* owner = nullptr;
    std::vector<size_t> members;
    std::vector<Segment> segments;
    std::vector<at::Tensor> held;  // gradients, from issue until finish
    size_t num_pending = 0;
    CallInfo info;
    CallPtr call;
  };

  void require_unchanged() const;
  void on_gradient(size_t index, bool defined);
  void begin(int graph_task);
  void mark(size_t index, Ready how);
  void launch(Bucket& bucket);
  void issue(Bucket& bucket);
  void refuse_gradient(const Slot& slot);
  void add_missing(Bucket& bucket, Slot& slot);
  void add_segment(Bucket& bucket, Slot& slot);
  void finish();
  void finish_buckets();
  void exchange_usage();
  void settle();
  void make_buckets(std::span<const size_t> order);
  void make_views(const Bucket& bucket, int64_t count);
  void rebuild();
  void run_now(const CallInfo& info, const CallQueue::Body& body);
  [[nodiscard]] std::string prefix() const;
  [[noreturn]] void throw_missing(const std::vector<size_t>& missing) const;

  HostBackend& host_;
  ReducerOptions options_;
  std::vector<Slot> slots_;
  std::vector<BucketItem> items_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> ready_order_;
  std::vector<uint8_t> usage_;
  struct CopyBack {
    at::Tensor from, to;
  };
  std::vector<CopyBack> copy_back_;  // gradients whose layout is not their parameter's
  std::exception_ptr refused_;       // the first gradient that cannot be reduced; thrown when the buckets are done
  size_t next_bucket_ = 0;
  int graph_task_ = -1;
  bool active_ = false;
  bool sync_ = true;
  int note_ = -1;  // while sync_ is off: where this rank is, for the watch for hangs
  bool rebuilt_ = false;
  uint64_t num_reductions_ = 0;
  int64_t arena_bytes_ = 0;
};

}  // namespace trireme::comm
