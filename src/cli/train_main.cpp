// trireme-train: `trireme train`. Started alone it starts its own ranks.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/finish_output.h"
#include "base/log.h"
#include "base/str.h"
#include "checkpoint/folder/folder.h"
#include "cli/called_as.h"
#include "cli/shell_word.h"
#include "cli/train_checks.h"
#include "cli/train_job.h"
#include "cli/train_settings.h"
#include "launch/failure_report.h"
#include "launch/job.h"
#include "launch/rank_env.h"
#include "trireme/base/error.h"
#include "trireme/rendezvous/job_env.h"

namespace trireme::cli {
namespace {

/// Ranks save a checkpoint when they are asked to end; that takes a step and a write.
constexpr std::chrono::seconds kTimeToSave{30};

std::string command_to_continue(const std::string& run_dir) {
  return called_as("train") + " --resume " + shell_word(launch::short_path(run_dir));
}

void print_result(const TrainResult& result, bool json) {
  if (json) {
    const nlohmann::json document = {{"schema", 1},
                                     {"recipe", result.recipe},
                                     {"ranks", result.ranks},
                                     {"steps", result.steps},
                                     {"epochs", result.epochs},
                                     {"test_accuracy", result.test_accuracy},
                                     {"train_loss", result.train_loss},
                                     {"training_s", result.training_s},
                                     {"start_s", result.start_s},
                                     {"run_dir", result.run_dir},
                                     {"interrupted", result.interrupted}};
    // A path is bytes; JSON is UTF-8.
    std::printf("%s\n", document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  } else if (result.interrupted) {
    std::printf("interrupted after step %s; continue with: %s\n", grouped(result.steps).c_str(),
                command_to_continue(result.run_dir).c_str());
  } else {
    std::printf("test accuracy %.2f %% after %.1f epochs, %s steps, %.1f s of training on %d %s\nrun folder: %s\n",
                result.test_accuracy * 100, result.epochs, grouped(result.steps).c_str(), result.training_s,
                result.ranks, result.ranks == 1 ? "rank" : "ranks", launch::short_path(result.run_dir).c_str());
  }
  std::fflush(stdout);
}

/// Where this rank's run lies, absolute. Where neither the user nor a launcher gave a folder, rank 0 makes one; the
/// others have no use for it.
std::string own_run_dir(const launch::JobSpec& spec, const rendezvous::JobEnv& env, const std::string& chosen) {
  std::string run_dir = chosen.empty() ? chosen : std::filesystem::absolute(chosen).lexically_normal().string();
  if (run_dir.empty() && env.rank == 0) run_dir = launch::make_run_dir(spec, launch::new_job_id());
  // A world of one that nobody started: its trace goes where its other records are.
  if (env.source == "none") setenv("TRIREME_RUN_DIR", run_dir.c_str(), 1);
  return run_dir;
}

/// config.json holds what was used, also where a launcher decided.
void say_what_is_used(Config& config, const rendezvous::JobEnv& env, const std::string& run_dir) {
  if (config.get_int("ranks") != env.world_size)
    config.set("ranks", int64_t{env.world_size}, Origin::kFlag, "launcher: " + env.source);
  std::string place = config.place("run_dir");
  if (config.get_string("run_dir").empty() && !env.run_dir.empty()) place = "environment TRIREME_RUN_DIR";
  config.set("run_dir", run_dir, Origin::kFlag, place);
}

/// All that can be told before a rank is started; a rank of a launcher does the same for itself.
Start check_start(const TrainCommand& command, const rendezvous::JobEnv& env, const std::string& run_dir) {
  const bool restart = !command.resume && is_restart_of(run_dir, env);
  if (!command.resume && !restart) refuse_used_folder(run_dir);
  if (env.source == "none") {
    if (!run_dir.empty()) (void)lock_run_folder(run_dir);  // told before any rank is started; rank 0 takes it for good
    refuse_too_many_ranks(command.config);
  } else {
    check_number_of_ranks(command.config, env);
  }
  check_job(command.config, command.resume.value_or(""));
  if (command.resume) return Start::kResume;
  return restart ? Start::kRestart : Start::kNew;
}

/// A rank that was killed while it was to save has said nothing.
void say_what_was_lost(const launch::JobResult& job) {
  const bool killed =
      std::any_of(job.ends.begin(), job.ends.end(), [](const auto& end) { return end.signal == SIGKILL; });
  if (job.interrupted_by == 0 || !killed) return;
  const std::vector<int64_t> steps = checkpoint::steps_below(job.run_dir + "/checkpoints");
  if (steps.empty()) {
    std::fprintf(stderr, "[train] killed before there was a checkpoint: nothing is left to continue.\n");
    return;
  }
  std::fprintf(stderr, "[train] killed before it could save; the newest checkpoint is of step %s. Continue with: %s\n",
               grouped(steps.front()).c_str(), command_to_continue(job.run_dir).c_str());
}

int train_main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--version-json") {
    std::printf("%s\n", version_json().c_str());
    return 0;
  }
  log::require_good_filter();
  std::optional<TrainCommand> command = parse_train_command(argc, argv);
  if (!command) return 0;
  const rendezvous::JobEnv env = rendezvous::detect_job_env();
  std::string run_dir = command->config.get_string("run_dir");
  if (run_dir.empty() && env.source != "none") run_dir = env.run_dir;
  const Start start = check_start(*command, env, run_dir);

  launch::JobSpec spec;
  spec.num_ranks = static_cast<int>(command->config.get_int("ranks"));
  spec.run_dir = command->config.get_string("run_dir");
  spec.grace = kTimeToSave;
  spec.out[0] = launch::Show::kRaw;  // the result
  spec.err[0] = launch::Show::kRaw;  // the progress bar
  spec.announce = false;
  std::vector<char*> words(argv, argv + argc);
  std::string resume_word;
  if (command->resume && command->resume_newest) {
    // Found here and told to the ranks: a job that ends meanwhile must not make them find different ones.
    resume_word = "--resume=" + *command->resume;
    for (char*& word : words) {
      if (std::string_view(word) == "--resume" || std::string_view(word) == "--resume=") word = resume_word.data();
    }
  }
  if (const auto job = launch::run_self_as_ranks(argc, words.data(), spec)) {
    say_what_was_lost(*job);
    return job->exit_code;
  }

  RunOptions options;
  options.run_dir = own_run_dir(spec, env, run_dir);
  Fd lock;
  if (env.rank == 0) {
    std::error_code ignored;  // the first file says what is wrong
    std::filesystem::create_directories(options.run_dir, ignored);
    lock = lock_run_folder(options.run_dir);
    if (start == Start::kNew) refuse_used_folder(options.run_dir);  // by a run that ended a moment ago
  }
  options.start = start;
  options.resumed_limit = command->resumed_limit;
  options.job = name_of_job(env);
  say_what_is_used(command->config, env, options.run_dir);
  const TrainResult result = run_training(command->config, options);
  if (env.rank == 0) print_result(result, command->json);
  // An unfinished run is no success: `trireme train && deploy` must not deploy. As a shell says it: 130 Ctrl-C, 143 SIGTERM.
  return result.interrupted ? 128 + result.stop_signal : 0;
}

}  // namespace
}  // namespace trireme::cli

int main(int argc, char** argv) {
  try {
    return trireme::finish_output(trireme::cli::train_main(argc, argv), "train");
  } catch (const trireme::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return trireme::exit_code(error.kind());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "[train] %s\n", error.what());
    return 1;
  }
}
