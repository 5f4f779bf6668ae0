#include "trireme/data/image_batch.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/str.h"
#include "trireme/base/error.h"
#include "trireme/data/random.h"

namespace trireme::data {

PixelStats pixel_stats(const ImageSet& set) {
  // Integer sums: exact, and independent of the order.
  std::array<uint64_t, 256> counts{};
  for (const uint8_t pixel : set.pixels) ++counts[pixel];
  uint64_t sum = 0;
  uint64_t squares = 0;
  for (uint64_t value = 0; value < 256; ++value) {
    sum += counts[value] * value;
    squares += counts[value] * value * value;
  }
  const auto n = static_cast<double>(std::max<size_t>(1, set.pixels.size()));
  const double mean = static_cast<double>(sum) / n;
  const double variance = static_cast<double>(squares) / n - mean * mean;
  PixelStats stats;
  stats.mean = static_cast<float>(mean / 255);
  stats.deviation = variance > 0 ? static_cast<float>(std::sqrt(variance) / 255) : 1.0F;
  return stats;
}

void fill_images(const ImageSet& set, std::span<const int64_t> indices, const PixelStats& stats,
                 const AugmentOptions& augment, const BatchPlace& place, std::span<float> into) {
  const int64_t image_size = set.height * set.width;
  if (static_cast<int64_t>(into.size()) != static_cast<int64_t>(indices.size()) * image_size) {
    throw Error(ErrorKind::kInvalidArgument, str("[data.fill_images] room for ", into.size(), " numbers; ",
                                                 indices.size(), " images of ", image_size, " pixels are asked for."));
  }
  std::array<float, 256> value_of{};
  for (size_t i = 0; i < 256; ++i) {
    value_of[i] = (static_cast<float>(i) / 255.0F - stats.mean) / stats.deviation;
  }
  float* out = into.data();
  for (size_t i = 0; i < indices.size(); ++i) {
    const int64_t index = indices[i];
    if (index < 0 || index >= set.size) {
      throw Error(ErrorKind::kInvalidArgument,
                  str("[data.fill_images] image ", index, " of a set of ", set.size, " images."));
    }
    bool flip = false;
    int64_t shift_y = 0;
    int64_t shift_x = 0;
    if (augment.flip || augment.max_shift > 0) {
      RandomStream random(place.seed, RandomRole::kAugment,
                          static_cast<uint32_t>(place.first_slot) + static_cast<uint32_t>(i),
                          static_cast<uint32_t>(place.step));
      const auto range = static_cast<uint32_t>(2 * augment.max_shift + 1);
      // Drawn in any case, so that switching one kind on does not change the other.
      flip = (random.next() >> 31U) != 0 && augment.flip;
      shift_y = static_cast<int64_t>(random.below(range)) - augment.max_shift;
      shift_x = static_cast<int64_t>(random.below(range)) - augment.max_shift;
    }
    const uint8_t* image = set.pixels.data() + index * image_size;
    for (int64_t y = 0; y < set.height; ++y) {
      const int64_t from_y = y + shift_y;
      if (from_y < 0 || from_y >= set.height) {
        std::fill(out, out + set.width, value_of[0]);
        out += set.width;
        continue;
      }
      const uint8_t* row = image + from_y * set.width;
      for (int64_t x = 0; x < set.width; ++x) {
        int64_t from_x = x + shift_x;
        if (flip) from_x = set.width - 1 - from_x;
        *out++ = from_x >= 0 && from_x < set.width ? value_of[row[from_x]] : value_of[0];
      }
    }
  }
}

}  // namespace trireme::data
