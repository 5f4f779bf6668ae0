#include "launch/rank_env.h"

#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "base/env.h"
#include "base/log.h"
#include "base/own_folder.h"
#include "base/str.h"
#include "trireme/base/error.h"

extern char** environ;

namespace trireme::launch {
namespace {

void make_folder(const std::filesystem::path& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) {
    throw Error(ErrorKind::kIo, str("[launch.start] cannot make the run folder ", dir.string(), ": ", error.message(),
                                    ". Choose another with --run-dir."));
  }
}

}  // namespace

bool sets_one_thread(const JobSpec& spec) {
  return spec.num_ranks > 1 && env_value("OMP_NUM_THREADS") == nullptr && !spec.env.contains("OMP_NUM_THREADS");
}

std::map<std::string, std::string> rank_variables(const JobSpec& spec, const Attempt& attempt, int rank) {
  const std::string rank_text = std::to_string(rank);
  const std::string size = std::to_string(spec.num_ranks);
  std::map<std::string, std::string> env = {
      {"RANK", rank_text},
      {"LOCAL_RANK", rank_text},
      {"WORLD_SIZE", size},
      {"LOCAL_WORLD_SIZE", size},
      {"GROUP_RANK", "0"},
      {"GROUP_WORLD_SIZE", "1"},
      {"ROLE_NAME", spec.role},
      {"ROLE_RANK", rank_text},
      {"ROLE_WORLD_SIZE", size},
      {"MASTER_ADDR", spec.master_addr},
      {"MASTER_PORT", attempt.port},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(attempt.number)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(spec.max_restarts)},
      {"TORCHELASTIC_RUN_ID", spec.run_id.empty() ? attempt.job_id : spec.run_id},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
      {"TORCHELASTIC_ERROR_FILE", str(attempt.run_dir, "/logs/rank", rank, ".error.json")},
      {"TRIREME_RUN_DIR", attempt.run_dir},
      {"TRIREME_JOB_ID", attempt.job_id},
      {"TRIREME_WATCHER", attempt.watcher},
      {"TRIREME_STACKS_PROGRAM", attempt.stacks_program},
  };
  if (env_value("TORCH_NCCL_ASYNC_ERROR_HANDLING") == nullptr) env["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "1";
  if (sets_one_thread(spec)) env["OMP_NUM_THREADS"] = "1";
  // Set only where it is true, so that a rank which writes to a pipe can know that it may redraw a line.
  const auto err = spec.err.find(rank);
  const bool raw = err != spec.err.end() && err->second == Show::kRaw;
  env["TRIREME_TERMINAL"] = raw && isatty(STDERR_FILENO) != 0 ? "1" : "";
  for (const auto& [name, value] : spec.env) env[name] = value;
  return env;
}

std::vector<std::string> with_changes(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> all;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const char* equals = std::strchr(*entry, '=');
    if (equals == nullptr || changes.contains(std::string(*entry, static_cast<size_t>(equals - *entry)))) continue;
    all.emplace_back(*entry);
  }
  for (const auto& [name, value] : changes) {
    if (!value.empty()) all.push_back(str(name, "=", value));
  }
  return all;
}

std::string new_job_id() {
  std::array<unsigned char, 6> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw Error(ErrorKind::kIo, str("[launch.start] the kernel gives no random numbers: ", std::strerror(errno), "."));
  }
  std::string id;
  for (const unsigned char byte : bytes) {
    id += "0123456789abcdef"[byte >> 4];
    id += "0123456789abcdef"[byte & 15];
  }
  return id;
}

std::string make_run_dir(const JobSpec& spec, const std::string& job_id) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path dir = spec.run_dir;
  if (dir.empty()) {
    const std::string name = date_and_time("%Y%m%d-%H%M%S-") + job_id;
    dir = fs::path(spec.log_dir.empty() ? "runs" : spec.log_dir) / name;
    if (spec.log_dir.empty() && !fs::create_directories(dir, error) && error) {
      const fs::path instead = fs::path(own_tmp_folder()) / name;
      if (const std::string problem = make_own_folder(own_tmp_folder()); !problem.empty()) {
        throw Error(ErrorKind::kIo,
                    str("[launch.start] cannot make ", dir.string(), " here: ", error.message(), "; and ",
                        own_tmp_folder(), " instead: ", problem, ". --run-dir chooses another place."));
      }
      log::warn("launch", "cannot make ", dir.string(), " here: ", error.message(), "; logs go to ", instead.string(),
                ". --run-dir chooses another place.");
      dir = instead;
    }
  }
  make_folder(dir);
  return fs::absolute(dir).lexically_normal().string();
}

void make_log_dir(const std::string& run_dir, int num_ranks) {
  make_folder(std::filesystem::path(run_dir) / "logs");
  const auto put_aside = [&run_dir](const std::string& name) {
    std::error_code ignored;  // there is none, as a rule
    std::filesystem::rename(str(run_dir, "/", name), str(run_dir, "/", name, ".old"), ignored);
  };
  put_aside("failure.json");
  put_aside("hang.json");
  put_aside("slow.json");
  for (int rank = 0; rank < num_ranks; ++rank) {
    put_aside(str("logs/rank", rank, ".error.json"));
    put_aside(str("reports/rank", rank, ".txt"));
  }
}

std::string date_and_time(const char* format) {
  std::array<char, 64> text{};
  const time_t now = time(nullptr);
  tm local{};
  localtime_r(&now, &local);
  std::strftime(text.data(), text.size(), format, &local);
  return text.data();
}

std::string find_program(const std::string& name) {
  namespace fs = std::filesystem;
  std::string reason = "there is no such file";
  const auto usable = [&reason](const std::string& path) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) {
      reason = str(path, " is a folder");
      return false;
    }
    if (access(path.c_str(), X_OK) == 0) return true;
    if (errno == EACCES) reason = str(path, " is not executable (chmod +x)");
    return false;
  };
  if (name.find('/') != std::string::npos) {
    if (usable(name)) return name;
    throw Error(ErrorKind::kConfig, str("[launch.start] cannot run '", name, "': ", reason, "."));
  }
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  while (!name.empty()) {
    const size_t colon = rest.find(':');
    const std::string folder(rest.substr(0, colon));
    const std::string candidate = str(folder.empty() ? "." : folder, "/", name);
    if (usable(candidate)) return candidate;
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  const char* advice = access(name.c_str(), F_OK) == 0 ? " There is one in this folder: write ./ in front." : "";
  throw Error(ErrorKind::kConfig, str("[launch.start] '", name, "' was not found in PATH",
                                      reason.starts_with("there") ? "" : str(" (", reason, ")"), ".", advice));
}

}  // namespace trireme::launch
