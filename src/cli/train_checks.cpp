#include "cli/train_checks.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/log.h"
#include "base/str.h"
#include "checkpoint/folder/files.h"
#include "checkpoint/folder/folder.h"
#include "checkpoint/folder/index.h"
#include "trireme/base/error.h"
#include "trireme/data/idx.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void wrong(const std::string& what) { throw Error(ErrorKind::kConfig, "[train] " + what); }

// What LibTorch would answer to with sizes of tensors that nobody has written.
void check_images(const Config& config) {
  const std::string& folder = config.get_string("data.dir");
  const data::ImageSetShape train = data::read_image_set_shape(folder, "train");
  const data::ImageSetShape test = data::read_image_set_shape(folder, "t10k");
  const std::string size = str(train.height, " x ", train.width);
  if (test.height != train.height || test.width != train.width) {
    wrong(str("data.dir '", folder, "': training images are ", size, ", test images ", test.height, " x ", test.width,
              "; both must have the same size."));
  }
  if (config.get_string("recipe") == "vit" && (train.height != train.width || train.height < kViTPatch)) {
    wrong(str("data.dir '", folder, "': images are ", size, "; recipe vit needs square ones of at least ", kViTPatch,
              " x ", kViTPatch, ". Take recipe resnet or mlp."));
  }
  // The recipes' own batch is for sets of any size: a smaller one is a step of its own.
  const bool said = !config.place("global_batch").starts_with("recipe ");
  if (const int64_t batch = config.get_int("global_batch"); said && batch > train.size) {
    wrong(str("global_batch is ", grouped(batch), " (", config.place("global_batch"), "), and '", folder, "' has ",
              grouped(train.size), " training images; use at most as many."));
  }
}

/// The metadata of the newest checkpoint whose index can be read; a damaged one is for load_latest to pass over.
std::optional<checkpoint::Index> newest_index(const std::string& root) {
  for (const int64_t step : checkpoint::steps_below(root)) {
    const std::string path = str(root, '/', checkpoint::kStepPrefix, step, '/', checkpoint::kIndexName);
    try {
      const checkpoint::FileBytes file = checkpoint::read_file(path, checkpoint::kMaxIndexBytes);
      return checkpoint::parse_index({reinterpret_cast<const char*>(file.bytes().data()), file.size}, path);
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch)
    }
  }
  return std::nullopt;
}

void check_resumed(const Config& config, const std::string& run_dir) {
  const std::string root = (fs::path(run_dir) / "checkpoints").string();
  if (checkpoint::steps_below(root).empty()) {
    wrong(str("--resume: no complete checkpoint in ", root, "; start without --resume."));
  }
  const auto index = newest_index(root);
  if (!index) return;
  const auto recipe = index->metadata.find("recipe");
  if (recipe == index->metadata.end() || recipe->second == config.get_string("recipe")) return;
  wrong(str("--resume: the checkpoints in ", root, " are of recipe ", recipe->second, ", and recipe is ",
            config.get_string("recipe"), " (", config.place("recipe"),
            "); leave that out, or start anew without --resume."));
}

std::string job_that_wrote(const std::string& run_dir) {
  std::ifstream in((fs::path(run_dir) / "config.json").string());
  const auto document = nlohmann::json::parse(in, nullptr, false);
  if (!document.is_object() || !document.contains("job") || !document["job"].is_string()) return {};
  return document["job"].get<std::string>();
}

}  // namespace

void check_job(const Config& config, const std::string& resumed) {
  check_images(config);
  if (!resumed.empty()) check_resumed(config, resumed);
}

void refuse_too_many_ranks(const Config& config) {
  constexpr int64_t kRanksPerProcessor = 8;
  const int64_t ranks = config.get_int("ranks");
  const int64_t processors = std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
  if (ranks <= kRanksPerProcessor * processors) return;
  wrong(str("ranks is ", ranks, " (", config.place("ranks"), ") and this host has ", processors,
            " processor(s); use at most ", kRanksPerProcessor * processors, ", ", kRanksPerProcessor,
            " for each, or start them yourself with trireme run."));
}

void check_number_of_ranks(const Config& config, const rendezvous::JobEnv& env) {
  const int64_t ranks = config.get_int("ranks");
  const Origin origin = config.origin("ranks");
  if (ranks == env.world_size || origin == Origin::kDefault) return;
  if (origin == Origin::kFile) {
    if (env.rank == 0) {
      log::warn("train", env.source, " started ", env.world_size, ": those are used, not the ", ranks, " of the file");
    }
    return;
  }
  wrong(str("ranks is ", ranks, " (", config.place("ranks"), "), and ", env.source, " started ", env.world_size,
            "; leave ranks out where a launcher decides."));
}

void refuse_used_folder(const std::string& run_dir) {
  // What a run that was killed at its first save has left is no checkpoint; the next save removes it.
  if (run_dir.empty() || checkpoint::steps_below((fs::path(run_dir) / "checkpoints").string()).empty()) return;
  wrong(str("'", run_dir, "' holds the checkpoints of an earlier run; continue it with --resume ", run_dir,
            ", or give another --run-dir."));
}

Fd lock_run_folder(const std::string& run_dir) {
  Fd folder(open(run_dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return folder;  // not there yet, or what is to be written into it says what is wrong
  while (flock(folder.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      wrong(str("another run is going on in '", run_dir, "'; wait for its end, or give another --run-dir."));
    }
    if (errno == EINTR) continue;
    log::warn("train", "cannot lock '", run_dir, "' (", std::strerror(errno),
              "): a second run in this folder would not be noticed");
    break;
  }
  return folder;
}

std::string name_of_job(const rendezvous::JobEnv& env) {
  if (env.source == "none") return {};
  if (env.source == "trireme run") return env.run_id;
  // torchrun's run id may be "none" or given by the user again and again; its process is the parent of all attempts.
  return str(env.run_id, " of process ", getppid());
}

bool is_restart_of(const std::string& run_dir, const rendezvous::JobEnv& env) {
  return env.restart_count > 0 && !run_dir.empty() && job_that_wrote(run_dir) == name_of_job(env);
}

}  // namespace trireme::cli
