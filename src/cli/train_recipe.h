// What a recipe of `trireme train` consists of: its model, its optimizer and its learning rate.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "models/classifier.h"
#include "trireme/data/idx.h"

namespace trireme::cli {

/// The classifier of `recipe` (resnet, vit or mlp) for the images and classes of `set`, with parameters drawn from torch's generator.
[[nodiscard]] std::shared_ptr<models::Classifier> make_model(const std::string& recipe, const data::ImageSet& set);

/// AdamW for vit, SGD with Nesterov's momentum for the others, as `config` says. Weights decay, biases and norms do not.
[[nodiscard]] std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& recipe, const Config& config,
                                                                      const std::vector<at::Tensor>& parameters);

/// Rises linearly from 0 to `peak` in the first `warmup_share` of `total` steps, then falls linearly to 0 at the end.
[[nodiscard]] double learning_rate_at(int64_t step, int64_t total, double warmup_share, double peak);

}  // namespace trireme::cli
