#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>
#include <system_error>

#include "base/log.h"
#include "base/str.h"
#include "checkpoint/folder/folder.h"
#include "checkpoint/folder/index.h"
#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string fresh_temp_path(const std::string& root) {
  std::random_device random;
  return str(root, '/', kTempPrefix, to_hex((uint64_t{random()} << 32U) | random()));
}

void remove_quietly(const std::string& path) noexcept {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

Fd open_folder(const std::string& path) {
  return Fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// A folder of its own that no living writer and no reader looks into; gone at the end unless it was renamed.
class TempFolder {
 public:
  explicit TempFolder(const std::string& root) : path_(fresh_temp_path(root)) {
    // Held while leftovers are looked for and while a new folder has no lock yet, so that none is taken for a leftover.
    const Fd root_lock = Fd(open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!root_lock) throw_io("save", root, "open it", errno);
    while (flock(root_lock.get(), LOCK_EX) != 0) {
      if (errno != EINTR) throw_io("save", root, "lock it", errno);
    }
    remove_leftovers(root);
    if (mkdir(path_.c_str(), 0777) != 0) throw_io("save", path_, "make the folder", errno);
    lock_ = open_folder(path_);
    if (!lock_ || flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
      const int error_number = errno;
      remove_quietly(path_);
      throw_io("save", path_, "lock it", error_number);
    }
  }
  ~TempFolder() { remove_quietly(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  static void remove_leftovers(const std::string& root) {
    std::error_code error;
    std::vector<std::string> found;
    for (fs::directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error)) {
      if (entry->path().filename().string().starts_with(kTempPrefix)) found.push_back(entry->path().string());
    }
    for (const std::string& path : found) {
      const Fd leftover = open_folder(path);
      if (leftover && flock(leftover.get(), LOCK_EX | LOCK_NB) == 0) remove_quietly(path);
    }
  }

  std::string path_;
  Fd lock_;
};

// Makes `temp` the folder `final`. Where one is there already, both names are exchanged in one step, and the old one
// is then the temporary.
void commit(const std::string& root, const std::string& temp, const std::string& final_path) {
  if (rename(temp.c_str(), final_path.c_str()) == 0) return;
  if (errno != ENOTEMPTY && errno != EEXIST) throw_io("save", final_path, "give the checkpoint this name", errno);
  if (renameat2(AT_FDCWD, temp.c_str(), AT_FDCWD, final_path.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS) throw_io("save", final_path, "replace it", errno);
  // Such a file system (NFS) has a moment without this step; the one before it is then the newest.
  const std::string old = fresh_temp_path(root);
  if (rename(final_path.c_str(), old.c_str()) != 0) throw_io("save", final_path, "replace it", errno);
  if (rename(temp.c_str(), final_path.c_str()) != 0) {
    const int error_number = errno;
    (void)rename(old.c_str(), final_path.c_str());
    throw_io("save", final_path, "give the checkpoint this name", error_number);
  }
  remove_quietly(old);
}

// The checkpoint is there already: what cannot be removed now costs room, and the next save tries again.
// Renamed first, so that no reader finds half of one.
void remove_old(const std::string& root, int64_t saved_step, int keep_last) {
  std::vector<int64_t> steps;
  try {
    steps = steps_below(root);
  } catch (const Error& error) {
    log::warn("checkpoint", "saved step ", saved_step, ", but older ones cannot be looked for: ", error.what());
    return;
  }
  if (!steps.empty() && steps.front() > saved_step) {
    log::warn("checkpoint", "saved step ", saved_step, ", but ", root, " has step ", steps.front(),
              " too, which the next load takes. Remove it if this run replaces it.");
  }
  int kept = 0;
  for (const int64_t step : steps) {
    if (step > saved_step || ++kept <= keep_last) continue;
    const std::string folder = str(root, '/', kStepPrefix, step);
    const std::string temp = fresh_temp_path(root);
    if (rename(folder.c_str(), temp.c_str()) == 0) {
      remove_quietly(temp);
    } else if (errno != ENOENT) {
      log::warn("checkpoint", "cannot remove the old ", folder, ": ", std::generic_category().message(errno));
    }
  }
}

FileEntry write_shard(const std::string& path, const Contents& contents, const Progress& progress) {
  constexpr size_t kToldBytes = size_t{64} << 20;
  size_t total = 0;
  for (const safetensors::TensorBytes& tensor : contents.tensors) total += tensor.bytes.size();
  size_t done = 0;
  FileWriter file(path);
  const std::string header = safetensors::make_header(contents.tensors, {{"format", "pt"}});
  file.write(std::as_bytes(std::span(header)));
  for (const safetensors::TensorBytes& tensor : contents.tensors) {
    for (std::span<const std::byte> left = tensor.bytes; !left.empty();) {
      const std::span<const std::byte> piece = left.first(std::min(kToldBytes, left.size()));
      file.write(piece);
      left = left.subspan(piece.size());
      done += piece.size();
      if (progress) progress(static_cast<double>(done) / static_cast<double>(total));
    }
  }
  file.finish();
  return {file.size(), to_hex(file.checksum())};
}

// A new folder is only there for good when the one above it is on disk too.
void make_root(const std::string& root) {
  std::error_code error;
  std::vector<std::string> to_sync;
  for (fs::path path = fs::absolute(root, error).lexically_normal(); !error && !fs::exists(path, error);) {
    path = path.parent_path();
    to_sync.push_back(path.string());
  }
  fs::create_directories(root, error);
  if (error) throw_io("save", root, "make the folder", error.value());
  for (const std::string& path : to_sync) {
    // Some folders may be written to, but not be opened.
    if (access(path.c_str(), R_OK) == 0) sync_folder(path);
  }
}

}  // namespace

std::string write_checkpoint(const std::string& root, Contents contents, int keep_last, const Progress& progress) {
  if (contents.step < 0 || keep_last < 1) {
    throw Error(ErrorKind::kInvalidArgument,
                str("[checkpoint.save] step is ", contents.step, " and keep_last ", keep_last,
                    "; a step of at least 0 and a keep_last of at least 1 are required."));
  }
  // Widest elements first, so that each tensor is aligned for its type in the file and can be used where it lies.
  std::sort(contents.tensors.begin(), contents.tensors.end(), [](const auto& a, const auto& b) {
    const size_t bytes_a = safetensors::size_of(a.dtype);
    const size_t bytes_b = safetensors::size_of(b.dtype);
    return bytes_a != bytes_b ? bytes_a > bytes_b : a.name < b.name;
  });
  make_root(root);
  const TempFolder temp(root);
  Index index{contents.step, {}, {}, contents.metadata};
  index.files[kShardName] = write_shard(temp.path() + '/' + kShardName, contents, progress);
  for (const auto& tensor : contents.tensors) index.weight_map[tensor.name] = kShardName;
  FileWriter index_file(temp.path() + '/' + kIndexName);
  const std::string text = to_text(index);
  index_file.write(std::as_bytes(std::span(text)));
  index_file.finish();
  sync_folder(temp.path());

  const std::string final_path = str(root, '/', kStepPrefix, contents.step);
  commit(root, temp.path(), final_path);
  sync_folder(root);
  remove_old(root, contents.step, keep_last);
  return final_path;
}

}  // namespace trireme::checkpoint
