// What the tests of DDP train: a small net in f64, data without random numbers, and the run of one process that all is compared with.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <type_traits>
#include <vector>

#include "trireme/trireme.h"

namespace trireme::test {

using Sequential = torch::nn::Sequential;

inline constexpr int64_t kBatch = 36;  // divisible by 1 to 4 ranks, and that by 3 micro-batches
inline constexpr int kSteps = 3;

// Built on the calling thread only: rank threads share the default generator.
inline Sequential make_mlp(uint64_t seed) {
  torch::manual_seed(seed);
  Sequential model(torch::nn::Linear(6, 16), torch::nn::Tanh(), torch::nn::Linear(16, 16), torch::nn::ReLU(),
                   torch::nn::Linear(16, 3));
  model->to(torch::kDouble);
  return model;
}
inline std::vector<Sequential> make_mlps(int size) {
  std::vector<Sequential> models;
  // Different by rank: construction must replace all by rank 0's.
  for (int r = 0; r < size; ++r) models.push_back(make_mlp(uint64_t{7} + static_cast<uint64_t>(r)));
  return models;
}

struct Data {
  at::Tensor x, y;
  explicit Data(int step, int64_t rows = kBatch) {
    // No random numbers: rank threads would share the generator.
    x = torch::sin(torch::arange(rows * 6, torch::kDouble) * 0.37 + step).reshape({rows, 6});
    y = torch::remainder(torch::arange(rows) * 5 + step, 3);
  }
  Data part(int rank, int size) const {
    Data mine = *this;
    const int64_t rows = x.size(0) / size;
    mine.x = x.narrow(0, rank * rows, rows);
    mine.y = y.narrow(0, rank * rows, rows);
    return mine;
  }
};

struct Record {
  std::vector<double> losses;
  std::vector<std::vector<at::Tensor>> gradients;  // by step
  std::vector<at::Tensor> parameters;              // after the last step
};

template <typename Model>
Record train(Model& model, int rank, int size) {
  Record record;
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < kSteps; ++step) {
    const Data data = Data(step).part(rank, size);
    optimizer.zero_grad();
    at::Tensor output;
    if constexpr (std::is_same_v<Model, Sequential>) {
      output = model->forward(data.x);
    } else {
      output = model.forward(data.x);
    }
    const at::Tensor loss = torch::nn::functional::cross_entropy(output, data.y);
    loss.backward();
    record.losses.push_back(loss.item<double>());
    record.gradients.emplace_back();
    for (const at::Tensor& p : model->parameters()) record.gradients.back().push_back(p.grad().clone());
    optimizer.step();
  }
  for (const at::Tensor& p : model->parameters()) record.parameters.push_back(p.detach().clone());
  return record;
}

inline Record train_one_process() {
  Sequential model = make_mlp(7);
  return train(model, 0, 1);
}

inline void expect_close(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
  EXPECT_TRUE(at::allclose(got, want, 1e-12, 1e-14)) << what << ": " << (got - want).abs().max().item<double>();
}

}  // namespace trireme::test
