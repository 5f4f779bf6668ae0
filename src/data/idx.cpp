#include "trireme/data/idx.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::data {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{4} << 30U;
constexpr unsigned kUnsignedByte = 0x08;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw Error(ErrorKind::kIo, str("[data.idx] '", path, "': ", what));
}

// zlib reads plain files through the same calls.
class Input {
 public:
  explicit Input(const std::string& path) : path_(path) {
    // A pipe of that name would wait for a writer.
    const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat status{};
    if (fd >= 0 && fstat(fd, &status) == 0 && !S_ISREG(status.st_mode)) {
      close(fd);
      fail(path, "it is no regular file; give a folder of IDX files with --data.");
    }
    const int reason = fd < 0 ? errno : ENOMEM;
    if (fd >= 0) file_ = gzdopen(fd, "rb");
    if (file_ == nullptr) {
      if (fd >= 0) close(fd);
      fail(path, str(std::strerror(reason),
                     ". Give a folder of IDX files with --data, or install the Debian package dataset-fashion-mnist."));
    }
    gzbuffer(file_, 1U << 18U);
  }
  ~Input() { gzclose_r(file_); }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  // Fewer bytes than asked for: the end of the file.
  size_t read(uint8_t* into, size_t size) {
    size_t done = 0;
    while (done < size) {
      const auto piece = static_cast<unsigned>(std::min<size_t>(size - done, 1U << 30U));
      const int got = gzread(file_, into + done, piece);
      int code = Z_OK;
      const char* text = gzerror(file_, &code);
      // A stream that was cut off is reported as Z_BUF_ERROR while bytes are still returned.
      if (got < 0 || code == Z_BUF_ERROR) {
        fail(path_, str("its compressed data is damaged or cut off (", code == Z_ERRNO ? std::strerror(errno) : text,
                        "); fetch the file again."));
      }
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  }

 private:
  const std::string& path_;
  gzFile file_ = nullptr;
};

std::string existing(const std::string& folder, const std::string& name) {
  std::error_code ignored;
  std::string plain = folder + '/' + name;
  if (std::filesystem::exists(plain, ignored)) return plain;
  return plain + ".gz";
}

struct Header {
  std::vector<int64_t> shape;
  uint64_t total = 1;
};

Header read_header(Input& input, const std::string& path) {
  uint8_t magic[4] = {};
  if (input.read(magic, 4) != 4) fail(path, "it has fewer than 4 bytes; an IDX file is required.");
  if (magic[0] != 0 || magic[1] != 0 || magic[3] == 0) {
    fail(path, str("its first bytes are ", int{magic[0]}, ' ', int{magic[1]}, ' ', int{magic[2]}, ' ', int{magic[3]},
                   "; an IDX file starts with 0 0 8 and its number of dimensions."));
  }
  if (magic[2] != kUnsignedByte) {
    fail(path, str("its elements are of IDX type ", int{magic[2]}, "; unsigned bytes, type 8, are required."));
  }
  Header header;
  for (int dim = 0; dim < magic[3]; ++dim) {
    uint8_t bytes[4] = {};
    if (input.read(bytes, 4) != 4) fail(path, str("it ends within its header of ", int{magic[3]}, " dimensions."));
    const uint32_t size =
        (uint32_t{bytes[0]} << 24U) | (uint32_t{bytes[1]} << 16U) | (uint32_t{bytes[2]} << 8U) | uint32_t{bytes[3]};
    header.shape.push_back(size);
    if (__builtin_mul_overflow(header.total, uint64_t{size}, &header.total)) header.total = UINT64_MAX;
    if (header.total > kMaxBytes) fail(path, str("its header claims [", join(header.shape), "...], more than 4 GiB."));
  }
  return header;
}

struct SetPaths {
  std::string images;
  std::string labels;
};

SetPaths paths_of(const std::string& folder, const std::string& stem) {
  return {existing(folder, stem + "-images-idx3-ubyte"), existing(folder, stem + "-labels-idx1-ubyte")};
}

void check_shapes(const SetPaths& paths, const std::vector<int64_t>& images, const std::vector<int64_t>& labels) {
  if (images.size() != 3) {
    fail(paths.images, str("its shape is [", join(images), "]; images, height and width are required."));
  }
  if (labels.size() != 1 || labels[0] != images[0]) {
    fail(paths.labels, str("its shape is [", join(labels), "]; one label for each of the ", images[0], " images of '",
                           paths.images, "' is required."));
  }
  if (std::any_of(images.begin(), images.end(), [](int64_t size) { return size == 0; })) {
    fail(paths.images, str("its shape is [", join(images), "]: no image in it."));
  }
}

}  // namespace

IdxArray read_idx(const std::string& path) {
  Input input(path);
  const Header header = read_header(input, path);
  IdxArray array{header.shape, {}};
  const uint64_t total = header.total;
  // In pieces, so that a header that lies costs no memory.
  constexpr uint64_t kPiece = 16U << 20U;
  uint64_t have = 0;
  while (have < total) {
    const uint64_t piece = std::min(kPiece, total - have);
    if (array.values.capacity() < have + piece) array.values.reserve(std::min(total, 2 * have + piece));
    array.values.resize(have + piece);
    const size_t got = input.read(array.values.data() + have, piece);
    have += got;
    if (got < piece) {
      fail(path, str("it holds ", have, " elements; its header [", join(array.shape), "] requires ", total, "."));
    }
  }
  uint8_t extra = 0;
  if (input.read(&extra, 1) != 0) {
    fail(path, str("it holds more than the ", total, " elements of its header [", join(array.shape), "]."));
  }
  return array;
}

ImageSet read_image_set(const std::string& folder, const std::string& stem) {
  const SetPaths paths = paths_of(folder, stem);
  IdxArray images = read_idx(paths.images);
  IdxArray labels = read_idx(paths.labels);
  check_shapes(paths, images.shape, labels.shape);
  ImageSet set;
  set.size = images.shape[0];
  set.height = images.shape[1];
  set.width = images.shape[2];
  set.num_classes = *std::max_element(labels.values.begin(), labels.values.end()) + 1;
  set.pixels = std::move(images.values);
  set.labels = std::move(labels.values);
  return set;
}

std::vector<int64_t> read_idx_shape(const std::string& path) {
  Input input(path);
  return read_header(input, path).shape;
}

ImageSetShape read_image_set_shape(const std::string& folder, const std::string& stem) {
  const SetPaths paths = paths_of(folder, stem);
  const std::vector<int64_t> images = read_idx_shape(paths.images);
  check_shapes(paths, images, read_idx_shape(paths.labels));
  return {images[0], images[1], images[2]};
}

}  // namespace trireme::data
