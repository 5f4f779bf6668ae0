#include <torch/torch.h>

#include "models/classifier.h"

namespace trireme::models {
namespace {

torch::nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

struct BlockImpl : torch::nn::Module {
  BlockImpl(int64_t in, int64_t out, int64_t stride)
      : conv1(register_module("conv1", conv(in, out, 3, stride))),
        norm1(register_module("norm1", torch::nn::BatchNorm2d(out))),
        conv2(register_module("conv2", conv(out, out, 3, 1))),
        norm2(register_module("norm2", torch::nn::BatchNorm2d(out))) {
    if (in != out || stride != 1) {
      shortcut =
          register_module("shortcut", torch::nn::Sequential(conv(in, out, 1, stride), torch::nn::BatchNorm2d(out)));
    }
  }
  at::Tensor forward(const at::Tensor& x_BCHW) {
    const at::Tensor y_BCHW = norm2(conv2(norm1(conv1(x_BCHW)).relu_()));
    return (y_BCHW + (shortcut.is_empty() ? x_BCHW : shortcut->forward(x_BCHW))).relu_();
  }
  torch::nn::Conv2d conv1;
  torch::nn::BatchNorm2d norm1;
  torch::nn::Conv2d conv2;
  torch::nn::BatchNorm2d norm2;
  torch::nn::Sequential shortcut{nullptr};
};
TORCH_MODULE(Block);

class ResNet final : public Classifier {
 public:
  explicit ResNet(const ResNetOptions& options) {
    int64_t channels = options.widths.at(0);
    stem_ = register_module(
        "stem", torch::nn::Sequential(conv(1, channels, 3, 2), torch::nn::BatchNorm2d(channels), torch::nn::ReLU()));
    for (size_t stage = 0; stage < options.widths.size(); ++stage) {
      for (int64_t i = 0; i < options.blocks.at(stage); ++i) {
        body_->push_back(Block(channels, options.widths[stage], stage > 0 && i == 0 ? 2 : 1));
        channels = options.widths[stage];
      }
    }
    register_module("body", body_);
    head_ = register_module("head", torch::nn::Linear(channels, options.num_classes));
    initialise();
    to_channels_last();
  }

  at::Tensor forward(const at::Tensor& x_BCHW) override {
    return head_(body_->forward(stem_->forward(x_BCHW)).mean({2, 3}));
  }

 private:
  void initialise() {
    torch::NoGradGuard no_grad;
    for (const auto& module : modules(/*include_self=*/false)) {
      if (auto* layer = module->as<torch::nn::Conv2d>())
        torch::nn::init::kaiming_normal_(layer->weight, 0.0, torch::kFanOut, torch::kReLU);
      // Each block starts as the identity (Goyal et al., "Accurate, large minibatch SGD", 2017, section 5.1).
      if (auto* block = module->as<Block>()) block->norm2->weight.zero_();
    }
  }
  // oneDNN's convolutions on one thread are fastest with the channels innermost.
  void to_channels_last() {
    torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters()) {
      if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
    }
  }

  torch::nn::Sequential stem_{nullptr};
  torch::nn::Sequential body_;
  torch::nn::Linear head_{nullptr};
};

}  // namespace

std::shared_ptr<Classifier> make_resnet(const ResNetOptions& options) { return std::make_shared<ResNet>(options); }

}  // namespace trireme::models
