#include <algorithm>
#include <filesystem>
#include <functional>
#include <system_error>

#include "base/log.h"
#include "base/str.h"
#include "checkpoint/folder/folder.h"
#include "checkpoint/folder/index.h"
#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void damaged(const std::string& path, const std::string& what) {
  throw Error(ErrorKind::kIo,
              str("[checkpoint.load] ", path, ": ", what, ". The checkpoint is damaged or incomplete."));
}

void add_file(const std::string& path, const std::string& name, const FileEntry& entry, const Index& index,
              ReadCheckpoint* checkpoint) {
  // Before memory is taken for it: a shard that was cut off is the most frequent damage.
  std::error_code error;
  const uint64_t found = fs::file_size(path, error);
  if (error) throw_io("load", path, "open it", error.value());
  if (found != entry.bytes) damaged(path, str("it has ", found, " bytes; ", entry.bytes, " are required"));
  const auto file = std::make_shared<const FileBytes>(read_file(path));
  if (file->size != entry.bytes) damaged(path, str("it has ", file->size, " bytes; ", entry.bytes, " are required"));
  if (to_hex(file->checksum) != entry.checksum) {
    damaged(path, str("its checksum is ", to_hex(file->checksum), "; ", entry.checksum, " is required"));
  }
  for (auto& [tensor, view] : safetensors::parse(file->bytes(), path).tensors) {
    const auto place = index.weight_map.find(tensor);
    if (place == index.weight_map.end() || place->second != name) {
      damaged(path, str("it has a tensor '", tensor, "' that the index does not place there"));
    }
    checkpoint->tensors[tensor] = {std::move(view), file};
  }
}

}  // namespace

std::vector<int64_t> steps_below(const std::string& root) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error)) {
    if (const auto step = step_of(entry->path().filename().string())) steps.push_back(*step);
  }
  if (error && error != std::errc::no_such_file_or_directory) throw_io("load", root, "list it", error.value());
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

ReadCheckpoint read_checkpoint(const std::string& folder) {
  const std::string index_path = folder + '/' + kIndexName;
  const FileBytes index_file = read_file(index_path, kMaxIndexBytes);
  const Index index = parse_index({reinterpret_cast<const char*>(index_file.data.get()), index_file.size}, index_path);
  if (const auto step = step_of(fs::path(folder).filename().string()); step && *step != index.step) {
    damaged(index_path, str("it says step ", index.step, " in the folder of step ", *step));
  }
  ReadCheckpoint checkpoint;
  checkpoint.step = index.step;
  checkpoint.path = folder;
  checkpoint.metadata = index.metadata;
  for (const auto& [name, entry] : index.files) add_file(str(folder, '/', name), name, entry, index, &checkpoint);
  for (const auto& [tensor, file] : index.weight_map) {
    if (!checkpoint.tensors.contains(tensor)) damaged(index_path, str("tensor '", tensor, "' is not in ", file));
  }
  return checkpoint;
}

std::optional<ReadCheckpoint> read_latest(const std::string& root) {
  std::error_code ignored;  // what cannot be looked at fails below, with its path
  if (fs::exists(root + '/' + kIndexName, ignored)) return read_checkpoint(root);
  const std::vector<int64_t> steps = steps_below(root);
  std::string first_reason;
  for (const int64_t step : steps) {
    const std::string folder = str(root, '/', kStepPrefix, step);
    try {
      ReadCheckpoint checkpoint = read_checkpoint(folder);
      if (!first_reason.empty()) log::warn("checkpoint", "using ", folder, " instead, the last good one");
      return checkpoint;
    } catch (const Error& error) {
      // Too little memory, say, is no reason to lose a thousand steps.
      if (error.kind() != ErrorKind::kIo) throw;
      log::warn("checkpoint", "passing over ", folder, ": ", error.what());
      if (first_reason.empty()) first_reason = error.what();
    }
  }
  if (steps.empty()) return std::nullopt;
  throw Error(ErrorKind::kIo, str("[checkpoint.load] ", root, ": none of its ", steps.size(),
                                  " checkpoints is good; one is required. Restore one from a copy, or start anew in "
                                  "another folder. The newest: ",
                                  first_reason));
}

}  // namespace trireme::checkpoint
