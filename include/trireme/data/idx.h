// Reads IDX files, the format of MNIST and its relatives: big-endian magic 00 00 08 <dims>, one u32 per dimension,
// bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::data {

struct IdxArray {
  std::vector<int64_t> shape;
  std::vector<uint8_t> values;  ///< row-major; as many as the product of shape
};

/// Reads a file, gzip-compressed or not (told by its first two bytes). Elements must be unsigned bytes. [blocking]
///
/// Errors   kIo with the path, what is wrong and what is required: missing, not IDX, another element type, shorter or
///          longer than its header says, damaged gzip data, more than 4 GiB.
/// Cost     47 MB of images: about 0.2 s compressed, 0.02 s plain.
[[nodiscard]] IdxArray read_idx(const std::string& path);

/// What the header says, without the values. [blocking]
///
/// Errors   as read_idx, as far as the header shows them.
[[nodiscard]] std::vector<int64_t> read_idx_shape(const std::string& path);

/// Images with their classes.
struct ImageSet {
  int64_t size = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t num_classes = 0;      ///< largest label + 1
  std::vector<uint8_t> pixels;  ///< size x height x width
  std::vector<uint8_t> labels;  ///< size
};

/// Reads `<folder>/<stem>-images-idx3-ubyte` and `<stem>-labels-idx1-ubyte`, each with or without ".gz". The stems of
/// MNIST-like sets are "train" and "t10k".
///
/// Errors   as read_idx; images and labels that differ in number.
[[nodiscard]] ImageSet read_image_set(const std::string& folder, const std::string& stem);

struct ImageSetShape {
  int64_t size = 0;
  int64_t height = 0;
  int64_t width = 0;
};

/// The sizes of such a set from its headers: cheap, so that a wrong folder is told before anything starts.
///
/// Errors   as read_image_set, as far as the headers show them.
[[nodiscard]] ImageSetShape read_image_set_shape(const std::string& folder, const std::string& stem);

}  // namespace trireme::data
