// Turns stored images into the numbers a network is fed with, with random flips and shifts in training.
#pragma once

#include <cstdint>
#include <span>

#include "trireme/data/idx.h"

namespace trireme::data {

struct AugmentOptions {
  bool flip = false;      ///< left-right, every second time
  int64_t max_shift = 0;  ///< pixels; each axis uniform in -max_shift .. max_shift, black moves in
};

/// Mean and standard deviation of all pixels / 255.
struct PixelStats {
  float mean = 0;
  float deviation = 1;
};
[[nodiscard]] PixelStats pixel_stats(const ImageSet& set);

/// Writes one image after the other, height x width floats each, as (pixel / 255 - mean) / deviation.
///
/// The random numbers of an image depend on (seed, its place in the global batch, step) only: neither on the number of
/// ranks nor on what was drawn before.
///
/// Shape    into: indices.size() * height * width.
/// Errors   kInvalidArgument: an index outside the set, or `into` of another size.
/// Cost     about 1 us for an image of 28 x 28.
struct BatchPlace {
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t first_slot = 0;  ///< place of indices[0] in the global batch
};
void fill_images(const ImageSet& set, std::span<const int64_t> indices, const PixelStats& stats,
                 const AugmentOptions& augment, const BatchPlace& place, std::span<float> into);

}  // namespace trireme::data
