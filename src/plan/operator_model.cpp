// Networks by operators: data parallel only. docs/planner_costs.md, section 3.11.
#include <algorithm>
#include <cmath>

#include "plan/numbers.h"

namespace trireme::plan {

namespace {

// Passes over an operator's input and output, forward and backward; a product reads and writes each once and is bound by the longer of that and
// its operations.
constexpr double kNormForward = 3,
                 kNormBackward = 4;  // statistics, then the normalised values; twice the same with the gradient
constexpr double kPassForward = 2, kPassBackward = 3;
constexpr double kSoftmaxPasses = 10;  // in fp32 also in half-precision training, and the casts around it
constexpr double kGroupedEfficiency =
    0.065;  // of dense convolutions: what cuDNN reaches in half precision, channels last
constexpr double kDepthwisePasses =
    4;  // a depthwise convolution reads its neighbourhood through caches, not tensor cores
constexpr double kLaunchesForward = 1.2, kLaunchesBackward = 2.2;
constexpr double kReplicaSpread = 0.03;
constexpr Bytes kOptimizerBytes{30};  ///< of one parameter
constexpr Seconds kOptimizerSeconds{2e-3}, kMicroStepSeconds{1e-4};
constexpr Bytes kParameterBytes{4};

struct OperatorTime {
  Seconds product, traffic;  ///< forward and backward; one of them counts where they overlap
};

/// A weight's gradient: few tiles and a long depth, which kernels split among the processors that would idle.
Seconds split_depth_seconds(const MachineNumbers& hw, FlopsPerSecond rate, double m, double n, double k) {
  const double padded = std::ceil(m / 64) * 64 * std::ceil(n / 64) * 64;
  return std::min(matmul_seconds(hw, rate, m, n, k), Flops{2 * padded * k} / rate / 0.8);
}

OperatorTime operator_time(const Operator& op, const MachineNumbers& hw, double batch) {
  OperatorTime time;
  const double in = static_cast<double>(op.in) * static_cast<double>(op.in_positions) * batch;
  const double out = static_cast<double>(op.out) * static_cast<double>(op.positions) * batch;
  const double groups = static_cast<double>(op.groups);
  const double rows = static_cast<double>(op.positions) * batch;
  const Seconds moved = (in + out) * hw.element / hw.memory;
  switch (op.kind) {
    case OperatorKind::kConvolution: {
      const double depth = static_cast<double>(op.in) / groups * static_cast<double>(op.kernel),
                   width = static_cast<double>(op.out) / groups;
      if (op.groups > 1 && op.in == op.groups) {
        time.traffic = 3 * kDepthwisePasses / 2 * moved;
        break;
      }
      // An implicit product of rows x width x depth, and the two of backward. A stem with 3 channels needs no gradient of its input.
      const double passes = op.in > 4 ? 3 : 2;
      Seconds product;
      if (op.groups > 1) {
        product = Flops{passes * 2 * groups * rows * width * depth} / (hw.convolution * kGroupedEfficiency);
      } else {
        product = matmul_seconds(hw, hw.convolution, rows, width, depth) +
                  split_depth_seconds(hw, hw.convolution, depth, width, rows);
        if (op.in > 4) product += matmul_seconds(hw, hw.convolution, rows, depth, width);
      }
      time.product = std::max(product, 3 * moved);
      break;
    }
    case OperatorKind::kLinear: {
      const double k = static_cast<double>(op.in), n = static_cast<double>(op.out);
      const Seconds product = matmul_seconds(hw, hw.linear, rows, n, k) + matmul_seconds(hw, hw.linear, rows, k, n) +
                              split_depth_seconds(hw, hw.linear, k, n, rows);
      time.product = std::max(product, 3 * moved);
      time.traffic = 2 * out * hw.element / hw.memory;  // its bias, forward and backward
      break;
    }
    case OperatorKind::kBatchedMatmul: {
      const Flops flops{2 * groups * static_cast<double>(op.positions) * static_cast<double>(op.in) *
                        static_cast<double>(op.out) * batch};
      const double elements =
          groups * batch *
          (static_cast<double>(op.positions) * (static_cast<double>(op.in) + static_cast<double>(op.out)) +
           static_cast<double>(op.in) * static_cast<double>(op.out));
      time.product = 3 * std::max(flops / hw.batched, elements * hw.element / hw.memory);
      break;
    }
    case OperatorKind::kNorm: {
      // A layer norm keeps a mean and a deviation for each position; in half-precision training it runs in fp32, with casts around it.
      const int64_t whole = op.out * op.positions;
      const bool layer = op.saved % std::max<int64_t>(whole, 1) == 2 * op.positions;
      time.traffic =
          (kNormForward + kNormBackward) * (layer && hw.element < Bytes{4} ? 2 : 1) * out * hw.element / hw.memory;
      break;
    }
    case OperatorKind::kSoftmax:
      time.traffic = kSoftmaxPasses * out * hw.element / hw.memory;
      break;
    case OperatorKind::kElementwise:
    case OperatorKind::kPool:
    case OperatorKind::kGather:
    case OperatorKind::kScatter:
      time.traffic = (1 + kPassBackward / kPassForward) * moved;
      break;
    case OperatorKind::kEmbedding:
      time.traffic = 3 * out * hw.element / hw.memory;
      break;
  }
  return time;
}

}  // namespace

TimeParts operator_step_time(const ModelNumbers& model, const MachineNumbers& hw, const TrainingNumbers& training,
                             const Plan& plan) {
  const auto dp = static_cast<double>(plan.dp), batch = static_cast<double>(plan.micro_batch);
  const double micro_steps = training.global_batch / (batch * dp);
  TimeParts step;
  double parameters = 0, operators = 0;
  for (const Operator& op : model.operators) {
    parameters += static_cast<double>(op.parameters);
    if (op.positions == 0) continue;
    const OperatorTime time = operator_time(op, hw, batch);
    step.matmul += micro_steps * time.product;
    step.elementwise += micro_steps * time.traffic * (hw.compiled ? 0.6 : 1.0);
    ++operators;
  }
  const Seconds device = step.matmul + step.elementwise;
  const Seconds host = micro_steps * operators * (kLaunchesForward + kLaunchesBackward) * hw.launched_share * hw.launch;
  step.launch = std::max(device, host) - device;
  step.fixed = micro_steps * kMicroStepSeconds;
  step.optimizer = kOptimizerBytes * parameters / (plan.zero_stage > 0 ? dp : 1) / hw.memory + kOptimizerSeconds;
  if (dp > 1) {
    const double near = std::min(dp, static_cast<double>(hw.domain));
    const Seconds micro_step = device / micro_steps;
    const auto shown = [&](Seconds comm) {
      return hw.hides_gradients ? comm - std::min(comm * hw.overlap, micro_step * 2 / 3) : comm;
    };
    const Seconds scattered = gather_seconds(hw, parameters * training.gradient_bytes, dp, near, 1);
    const Seconds gathered = gather_seconds(hw, parameters * training.weight_bytes, dp, near, 1);
    if (plan.zero_stage == 0) {
      step.gradients = shown(2 * scattered);
    } else if (plan.zero_stage < 3) {
      step.gradients = shown(scattered + gathered);
      // Where only a part of the gradients is kept each micro-step reduces anew.
      if (plan.zero_stage == 2) step.gradients += (micro_steps - 1) * shown(scattered);
    } else {
      const Seconds comm = 2 * gathered + scattered;
      step.gather =
          micro_steps * (std::max(micro_step, comm) + (1 - hw.overlap) * std::min(micro_step, comm) - micro_step);
    }
    // Replicas wait for the slowest of them: the expected largest of n normal step times, whose spread is the input pipeline's.
    step.gradients += device * kReplicaSpread * std::sqrt(2 * std::log(dp));
  }
  return step;
}

MemoryParts operator_memory(const ModelNumbers& model, const MachineNumbers& hw, const TrainingNumbers& training,
                            const Plan& plan) {
  double parameters = 0, saved = 0, widest = 0;
  for (const Operator& op : model.operators) {
    parameters += static_cast<double>(op.parameters);
    saved += static_cast<double>(op.saved);
    widest = std::max(widest, static_cast<double>(op.out) * static_cast<double>(op.positions));
  }
  const double batch = static_cast<double>(plan.micro_batch), replicas = static_cast<double>(plan.dp);
  MemoryParts m;
  m.weights = kParameterBytes * parameters / (plan.zero_stage >= 3 ? replicas : 1);
  m.gradients = kParameterBytes * parameters / (plan.zero_stage >= 2 ? replicas : 1);
  m.optimizer = training.optimizer_bytes * parameters / (plan.zero_stage >= 1 ? replicas : 1);
  m.activations = saved * batch * hw.element;
  m.temporaries = 2 * widest * batch * hw.element;
  m.context = hw.context;
  return m;
}

}  // namespace trireme::plan
