// What the image models of the recipes have in common.
//
// B batch, C channels (1), H height, W width, K classes
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace trireme::models {

/// An image classifier. forward(x_BCHW) gives logits, shape {B, K}.
class Classifier : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& x_BCHW) = 0;
};

struct ResNetOptions {
  std::vector<int64_t> widths = {16, 32, 64};  ///< channels of each stage; every stage but the first halves H and W
  std::vector<int64_t> blocks = {1, 2, 1};     ///< residual blocks of each stage
  int64_t num_classes = 10;
};

/// A residual network (He et al., "Deep residual learning for image recognition", 2015) for small grey images: a strided 3x3 stem, then
/// blocks of two 3x3 convolutions. The default has 11 convolution layers and 96,314 parameters. Weights are kept channels_last.
[[nodiscard]] std::shared_ptr<Classifier> make_resnet(const ResNetOptions& options = {});

struct ViTOptions {
  int64_t image_size = 28;  ///< pixels, square; a multiple of patch_size
  int64_t patch_size = 7;
  int64_t width = 96;  ///< a multiple of num_heads
  int64_t depth = 4;
  int64_t num_heads = 4;
  int64_t num_classes = 10;
};

/// A vision transformer (Dosovitskiy et al., "An image is worth 16x16 words", 2020), pre-norm, with learned positions and mean pooling.
[[nodiscard]] std::shared_ptr<Classifier> make_vit(const ViTOptions& options = {});

/// A perceptron with one hidden layer, for tests: fast and without BatchNorm.
[[nodiscard]] std::shared_ptr<Classifier> make_mlp(int64_t inputs, int64_t hidden, int64_t num_classes);

}  // namespace trireme::models
