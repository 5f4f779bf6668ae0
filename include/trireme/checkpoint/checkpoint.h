// Checkpoints on disk: parameters, optimizer, random numbers and whatever else a run needs to go on where it stopped.
//
//   checkpoint::State state;
//   checkpoint::add_module_state(state, *model);
//   checkpoint::add_optimizer_state(state, optimizer, named_parameters);
//   state.metadata["epoch"] = "3";
//   checkpoint::save("run7/checkpoints", step, state);   // run7/checkpoints/step-1200/
//
// A checkpoint is a folder of safetensors files and an index.json (docs/formats.md), which Python reads too. It appears
// under its name only when all of it is on disk: a save that is killed, or finds the disk full, changes nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace trireme::checkpoint {

using NamedParameters = std::vector<std::pair<std::string, at::Tensor>>;

/// What one checkpoint holds. The add_ functions put in references to the live tensors, not copies: save before the
/// next step changes them.
struct State {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

struct SaveOptions {
  int keep_last = 2;  ///< older checkpoints are removed after a save; at least 1
};

/// Writes <root>/step-<step> and returns that path. [local, blocking] One rank writes; the others do not call it.
///
/// Replaces a checkpoint of the same step at once. Checkpoints of a higher step are left alone, with a warning, since
/// load_latest would prefer them. Leftovers of writers that were killed are removed, those of living ones are not.
/// Shape    any; values are written row-major whatever the layout is. Tensors on a GPU are copied to the CPU first.
/// Dtype    bool, u8, i8, i16, i32, i64, f16, bf16, f32, f64; dense.
/// Errors   kInvalidArgument   another dtype, sparse or undefined tensor, negative step, keep_last below 1
///          kIo                the path and why (disk full, read-only, ...); what was there before is still there
/// Threads  any, also for one root at a time; writers on several hosts must not share a root.
/// Cost     reads and hashes every byte once, writes it once, and waits for the disk. Ranks that wait for this one meanwhile are told that it
///          is "busy: saving a checkpoint", how far it is, and are no hang (trireme/comm/busy.h).
std::string save(const std::string& root, int64_t step, const State& state, const SaveOptions& options = {});

/// The tensors are on the CPU, contiguous, and share the memory of their file: they live as long as any of them.
struct Loaded {
  State state;
  int64_t step = 0;
  std::string path;
};

/// The complete checkpoint of the highest step below `root`, or `root` itself when it is one; nothing when there is
/// none. One that is damaged (sizes and checksums are compared) is passed over, with a warning that says why.
/// [local, blocking]
///
/// Errors   kIo when there are checkpoints and none of them is good: going on from nothing would hide the loss.
/// Cost     reads and hashes every byte once.
[[nodiscard]] std::optional<Loaded> load_latest(const std::string& root);

/// The optimizer's state as tensors "optim.<parameter name>.<buffer>": momentum_buffer of SGD; exp_avg, exp_avg_sq,
/// max_exp_avg_sq and step of Adam and AdamW. A parameter without state so far adds nothing.
///
/// Errors   kUnsupported for other optimizers; kInvalidArgument when a parameter of the optimizer is not named.
void add_optimizer_state(State& state, torch::optim::Optimizer& optimizer, const NamedParameters& named_parameters);

/// Options such as the learning rate are not part of it: they are the configuration's.
///
/// Errors   as above; kMismatch names a tensor that is missing, unexpected or of another shape or dtype. Nothing is
///          changed then.
void restore_optimizer_state(const State& state, torch::optim::Optimizer& optimizer,
                             const NamedParameters& named_parameters);

/// Every parameter and buffer as "model.<name>".
void add_module_state(State& state, const torch::nn::Module& module);

/// Copies in place, so that optimizers and gradient buckets keep their tensors; the layout (channels_last) stays.
///
/// Errors   kMismatch names the first tensor that is missing, unexpected, or of another shape or dtype, and both sides.
///          Nothing is changed then.
void restore_module_state(const State& state, torch::nn::Module& module);

/// The state of the default CPU generator, copied, as "rng.cpu".
void add_rng_state(State& state);

/// Errors   kMismatch when there is no "rng.cpu" or it is none.
void restore_rng_state(const State& state);

}  // namespace trireme::checkpoint
