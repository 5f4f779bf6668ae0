// Oracle: closed form on images of 2 x 3 pixels.
#include "trireme/data/image_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "trireme/base/error.h"

namespace trireme::data {
namespace {

ImageSet two_images() {
  ImageSet set;
  set.size = 2;
  set.height = 2;
  set.width = 3;
  set.num_classes = 2;
  set.pixels = {0, 51, 102, 153, 204, 255, 255, 0, 0, 0, 0, 0};
  set.labels = {0, 1};
  return set;
}

TEST(ImageBatch, NormalizesInOrder) {
  const ImageSet set = two_images();
  const std::vector<int64_t> indices = {1, 0};
  std::vector<float> out(12);
  fill_images(set, indices, {0.5F, 0.25F}, {}, {}, out);
  EXPECT_EQ(out[0], 2.0F);
  EXPECT_EQ(out[1], -2.0F);
  EXPECT_FLOAT_EQ(out[7], (51.0F / 255 - 0.5F) / 0.25F);
  EXPECT_EQ(out[11], 2.0F);
}

TEST(ImageBatch, ComputesMeanAndDeviation) {
  ImageSet set = two_images();
  set.pixels = {0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255};
  const PixelStats stats = pixel_stats(set);
  EXPECT_FLOAT_EQ(stats.mean, 0.5F);
  EXPECT_FLOAT_EQ(stats.deviation, 0.5F);
}

// Each augmented image must be one of the images that flips and shifts can make; over many draws all of them appear.
TEST(ImageBatch, DrawsEveryFlipAndShiftAndNothingElse) {
  const ImageSet set = two_images();
  std::set<std::vector<float>> possible;
  for (const bool flip : {false, true}) {
    for (int dy = -1; dy <= 1; ++dy) {
      for (int dx = -1; dx <= 1; ++dx) {
        std::vector<float> image;
        for (int y = 0; y < 2; ++y) {
          for (int x = 0; x < 3; ++x) {
            const int from_y = y + dy;
            const int from_x = flip ? 2 - (x + dx) : x + dx;
            const bool inside = from_y >= 0 && from_y < 2 && from_x >= 0 && from_x < 3;
            const int at = 3 * from_y + from_x;
            image.push_back(inside ? static_cast<float>(set.pixels[static_cast<size_t>(at)]) / 255.0F : 0.0F);
          }
        }
        possible.insert(image);
      }
    }
  }
  const std::vector<int64_t> indices(400, 0);
  std::vector<float> out(size_t{400} * 6);
  fill_images(set, indices, {0, 1}, {.flip = true, .max_shift = 1}, {.seed = 3, .step = 5, .first_slot = 0}, out);
  std::set<std::vector<float>> seen;
  for (size_t i = 0; i < 400; ++i) {
    const std::vector<float> image(out.begin() + static_cast<int64_t>(6 * i),
                                   out.begin() + static_cast<int64_t>(6 * i + 6));
    EXPECT_EQ(possible.count(image), 1U) << i;
    seen.insert(image);
  }
  EXPECT_EQ(seen, possible);
}

TEST(ImageBatch, DoesNotDependOnTheSplitOverRanks) {
  const ImageSet set = two_images();
  const std::vector<int64_t> indices = {0, 1, 0, 0, 1, 1, 0};
  const AugmentOptions augment{.flip = true, .max_shift = 1};
  std::vector<float> whole(size_t{7} * 6);
  fill_images(set, indices, {0, 1}, augment, {9, 4, 0}, whole);
  for (size_t cut = 0; cut <= 7; ++cut) {
    std::vector<float> parts(size_t{7} * 6);
    const std::span<const int64_t> all(indices);
    const std::span<float> into(parts);
    fill_images(set, all.first(cut), {0, 1}, augment, {9, 4, 0}, into.first(6 * cut));
    fill_images(set, all.subspan(cut), {0, 1}, augment, {9, 4, static_cast<int64_t>(cut)}, into.subspan(6 * cut));
    EXPECT_EQ(whole, parts) << cut;
  }
}

TEST(ImageBatch, RefusesIndicesOutsideTheSet) {
  const ImageSet set = two_images();
  std::vector<float> out(6);
  for (const int64_t index : {int64_t{-1}, int64_t{2}}) {
    EXPECT_THROW(fill_images(set, std::vector<int64_t>{index}, {}, {}, {}, out), Error);
  }
  EXPECT_THROW(fill_images(set, std::vector<int64_t>{0, 1}, {}, {}, {}, out), Error);
}

}  // namespace
}  // namespace trireme::data
