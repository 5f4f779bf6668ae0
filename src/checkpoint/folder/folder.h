// Checkpoints as folders of bytes, without LibTorch: written whole or not at all, read back only when complete.
//
//   root/step-1100/          the one before
//   root/step-1200/          index.json, model-00001-of-00001.safetensors
//   root/.tmp-3f09c2d1aa57/  of a writer; locked (flock) while it lives, and only its own until it is renamed
//
// Why this order survives a kill or a power cut at any moment: files, then their folder are brought to disk under a
// name that no reader looks at; the rename makes it visible in one step; only after that too is on disk, old ones go.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/safetensors.h"
#include "checkpoint/folder/files.h"

namespace trireme::checkpoint {

struct Contents {
  int64_t step = 0;
  std::vector<safetensors::TensorBytes> tensors;
  std::map<std::string, std::string> metadata;
};

/// Told again and again how much of the bytes is written, 0 to 1, at least every 64 MiB.
using Progress = std::function<void(double fraction)>;

/// Writes root/step-<step>, makes the folders above it, removes leftovers of dead writers and all but the last
/// `keep_last` checkpoints up to this step. The path. Errors as checkpoint::save. `progress` may be empty.
std::string write_checkpoint(const std::string& root, Contents contents, int keep_last, const Progress& progress = {});

struct ReadCheckpoint {
  int64_t step = 0;
  std::string path;
  std::map<std::string, std::string> metadata;
  struct Tensor {
    safetensors::TensorView view;
    std::shared_ptr<const FileBytes> file;  ///< keeps the bytes
  };
  std::map<std::string, Tensor> tensors;
};

/// One folder, whatever its name. kIo with what is damaged or missing.
[[nodiscard]] ReadCheckpoint read_checkpoint(const std::string& folder);

/// As checkpoint::load_latest.
[[nodiscard]] std::optional<ReadCheckpoint> read_latest(const std::string& root);

/// Steps of the folders that are named like checkpoints, highest first; empty when there is no such root.
[[nodiscard]] std::vector<int64_t> steps_below(const std::string& root);

}  // namespace trireme::checkpoint
