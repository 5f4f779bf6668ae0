#include "cli/train_recipe.h"

#include <algorithm>

#include "cli/train_checks.h"

namespace trireme::cli {

std::shared_ptr<models::Classifier> make_model(const std::string& recipe, const data::ImageSet& set) {
  if (recipe == "vit") {
    models::ViTOptions options;
    options.image_size = set.height;
    options.patch_size = kViTPatch;
    options.num_classes = set.num_classes;
    return models::make_vit(options);
  }
  if (recipe == "mlp") return models::make_mlp(set.height * set.width, 128, set.num_classes);
  models::ResNetOptions options;
  options.num_classes = set.num_classes;
  return models::make_resnet(options);
}

// Weights decay, biases and norms do not.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& recipe, const Config& config,
                                                        const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> decaying;
  std::vector<at::Tensor> plain;
  for (const at::Tensor& parameter : parameters) (parameter.dim() > 1 ? decaying : plain).push_back(parameter);
  const double rate = config.get_double("optim.learning_rate");
  const double decay = config.get_double("optim.weight_decay");
  auto with_decay = [&](auto options) { return std::make_unique<decltype(options)>(options.weight_decay(decay)); };
  auto without = [&](auto options) { return std::make_unique<decltype(options)>(options.weight_decay(0)); };
  std::vector<torch::optim::OptimizerParamGroup> groups;
  if (recipe == "vit") {
    const torch::optim::AdamWOptions options(rate);
    groups.emplace_back(decaying, with_decay(options));
    groups.emplace_back(plain, without(options));
    return std::make_unique<torch::optim::AdamW>(groups, options);
  }
  auto options = torch::optim::SGDOptions(rate).momentum(config.get_double("optim.momentum"));
  options.nesterov(config.get_double("optim.momentum") > 0);
  groups.emplace_back(decaying, with_decay(options));
  groups.emplace_back(plain, without(options));
  return std::make_unique<torch::optim::SGD>(groups, options);
}

double learning_rate_at(int64_t step, int64_t total, double warmup_share, double peak) {
  const auto warmup = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(total) * warmup_share));
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  return peak * std::max(0.0, 1.0 - static_cast<double>(step - warmup) /
                                        static_cast<double>(std::max<int64_t>(1, total - warmup)));
}

}  // namespace trireme::cli
