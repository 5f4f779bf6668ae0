// A rank that trains with DistributedDataParallel and, in one step, goes wrong in one way: ddp_fault_rank ddp FAULT CULPRIT STEP NUM_STEPS.
// A step is backward (its buckets), the mean of a metric over the ranks, and a broadcast. Faults: launch/faults.h and calls().
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "launch/faults.h"
#include "trireme/trireme.h"

namespace {

/// What follows backward; `fault` is empty where this rank does nothing wrong.
void calls(const trireme::Group& world, const std::string& fault) {
  const auto dtype = fault == "dtype" ? torch::kFloat64 : torch::kFloat32;
  const auto metric = [&] {
    trireme::comm::all_reduce_avg(world, torch::ones({fault == "shape" ? 3 : 2}, dtype)).wait();
  };
  if (fault == "extra") metric();
  if (fault != "missing" && fault != "swapped") metric();
  trireme::comm::broadcast(world, torch::ones({16}), fault == "root" ? 1 : 0).wait();
  if (fault == "swapped") metric();
}

int train(const std::vector<std::string>& args) {
  const std::string& fault = args.at(1);
  const int culprit = std::atoi(args.at(2).c_str());
  const int at_step = std::atoi(args.at(3).c_str());
  const int num_steps = std::atoi(args.at(4).c_str());
  at::set_num_threads(1);
  // Step 0 is before init().
  static std::vector<at::Tensor> kept;
  const auto allocate = [](size_t bytes) { kept.push_back(torch::empty(static_cast<int64_t>(bytes), torch::kByte)); };
  const char* own = std::getenv("RANK");
  if (at_step == 0 && own != nullptr && std::atoi(own) == culprit) do_fault(fault, allocate);
  const auto world = trireme::init();
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(64, 256), torch::nn::ReLU(), torch::nn::Linear(256, 10));
  trireme::DdpOptions options;
  options.first_bucket_bytes = options.bucket_bytes = 32 << 10;  // several buckets
  trireme::DistributedDataParallel<torch::nn::Sequential> model(world, net, options);
  torch::optim::SGD sgd(model.parameters(), 0.01);
  for (int step = 1; step <= num_steps; ++step) {
    trireme::set_step(static_cast<uint32_t>(step));
    const bool now = world.rank() == culprit && step == at_step;
    if (now) do_fault(fault, allocate);
    sgd.zero_grad();
    {
      // A rank that is alone in no_sync() for the whole step, which takes it a while (SECONDS).
      std::unique_ptr<trireme::parallel::NoSyncGuard> alone;
      if (now && fault == "no_sync") {
        alone.reset(new trireme::parallel::NoSyncGuard(model.no_sync()));
        evaluate(std::atof(args.at(5).c_str()));
      }
      torch::mse_loss(model.forward(torch::rand({16, 64})), torch::zeros({16, 10})).backward();
    }
    sgd.step();
    if (now && fault == "no_sync") continue;
    calls(world, now ? fault : "");
    // An evaluation on rank 0 every 100 steps.
    if (fault == "evaluate" && world.rank() == 0 && step % 100 == 0) evaluate(std::atof(args.at(5).c_str()));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return run_rank(argc, argv, train); }
