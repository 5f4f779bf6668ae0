// B batch, T tokens, D width, N heads, E width of a head
#include <torch/torch.h>

#include "models/classifier.h"

namespace trireme::models {
namespace {

struct EncoderBlockImpl : torch::nn::Module {
  EncoderBlockImpl(int64_t width, int64_t num_heads)
      : norm1(register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        qkv(register_module("qkv", torch::nn::Linear(width, 3 * width))),
        out(register_module("out", torch::nn::Linear(width, width))),
        norm2(register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        up(register_module("up", torch::nn::Linear(width, 2 * width))),
        down(register_module("down", torch::nn::Linear(2 * width, width))),
        num_heads(num_heads) {}

  at::Tensor forward(const at::Tensor& x_BTD) {
    const at::Tensor y_BTD = x_BTD + attend(norm1(x_BTD));
    return y_BTD + down(at::gelu(up(norm2(y_BTD))));
  }
  at::Tensor attend(const at::Tensor& x_BTD) {
    const int64_t b = x_BTD.size(0);
    const int64_t t = x_BTD.size(1);
    const int64_t d = x_BTD.size(2);
    const auto parts =
        qkv(x_BTD).view({b, t, 3, num_heads, d / num_heads}).permute({2, 0, 3, 1, 4}).unbind(0);  // each BNTE
    const at::Tensor mixed_BNTE = at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
    return out(mixed_BNTE.transpose(1, 2).reshape({b, t, d}));
  }

  torch::nn::LayerNorm norm1;
  torch::nn::Linear qkv;
  torch::nn::Linear out;
  torch::nn::LayerNorm norm2;
  torch::nn::Linear up;
  torch::nn::Linear down;
  int64_t num_heads;
};
TORCH_MODULE(EncoderBlock);

class ViT final : public Classifier {
 public:
  explicit ViT(const ViTOptions& options) {
    const int64_t side = options.image_size / options.patch_size;
    patches_ = register_module(
        "patches",
        torch::nn::Conv2d(torch::nn::Conv2dOptions(1, options.width, options.patch_size).stride(options.patch_size)));
    positions_ = register_parameter("positions", torch::randn({1, side * side, options.width}) * 0.02);
    for (int64_t i = 0; i < options.depth; ++i) blocks_->push_back(EncoderBlock(options.width, options.num_heads));
    register_module("blocks", blocks_);
    norm_ = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.width})));
    head_ = register_module("head", torch::nn::Linear(options.width, options.num_classes));
  }

  at::Tensor forward(const at::Tensor& x_BCHW) override {
    const at::Tensor x_BTD = patches_(x_BCHW).flatten(2).transpose(1, 2) + positions_;
    return head_(norm_(blocks_->forward(x_BTD)).mean(1));
  }

 private:
  torch::nn::Conv2d patches_{nullptr};
  at::Tensor positions_;
  torch::nn::Sequential blocks_;
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear head_{nullptr};
};

class Mlp final : public Classifier {
 public:
  Mlp(int64_t inputs, int64_t hidden, int64_t num_classes)
      : hidden_(register_module("hidden", torch::nn::Linear(inputs, hidden))),
        head_(register_module("head", torch::nn::Linear(hidden, num_classes))) {}
  at::Tensor forward(const at::Tensor& x_BCHW) override { return head_(at::relu(hidden_(x_BCHW.flatten(1)))); }

 private:
  torch::nn::Linear hidden_;
  torch::nn::Linear head_;
};

}  // namespace

std::shared_ptr<Classifier> make_vit(const ViTOptions& options) { return std::make_shared<ViT>(options); }
std::shared_ptr<Classifier> make_mlp(int64_t inputs, int64_t hidden, int64_t num_classes) {
  return std::make_shared<Mlp>(inputs, hidden, num_classes);
}

}  // namespace trireme::models
