#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/str.h"
#include "cli/bench.h"
#include "cli/external.h"
#include "trireme/base/error.h"

extern char** environ;

namespace trireme::bench {
namespace {

double run_ms(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  const auto start = std::chrono::steady_clock::now();
  pid_t pid = 0;
  const int error = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (error == 0) waitpid(pid, &status, 0);
  const double took = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  if (error != 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw Error(ErrorKind::kUnavailable,
                str("[bench.launch] '", join(command, " "), "' did not work (",
                    error != 0 ? str("cannot start: errno ", error) : str("wait status ", status),
                    "); build the target trireme next to trireme-bench."));
  }
  return took;
}

LaunchRow measure(const std::string& what, int ranks, int repetitions, const std::vector<std::string>& command) {
  std::vector<double> times;
  run_ms(command);  // once from a cold page cache
  for (int i = 0; i < repetitions; ++i) times.push_back(run_ms(command));
  std::sort(times.begin(), times.end());
  return {what, ranks, repetitions, times[times.size() / 2], times.front(), times.back()};
}

}  // namespace

std::vector<LaunchRow> bench_launch(int ranks, int repetitions) {
  const std::string folder = cli::own_folder();
  const std::string trireme = folder + "/trireme";
  const std::filesystem::path run_dir =
      std::filesystem::temp_directory_path() / str("trireme_bench_launch_", static_cast<int>(getpid()));
  const std::vector<std::string> run = {trireme, "run", "--nproc-per-node", str(ranks), "--run-dir", run_dir.string()};
  const auto with = [&run](std::vector<std::string> program) {
    std::vector<std::string> command = run;
    command.insert(command.end(), program.begin(), program.end());
    return command;
  };
  const int count = repetitions > 0 ? repetitions : 10;
  std::vector<LaunchRow> rows;
  rows.push_back(measure("trireme --help", 0, count, {trireme, "--help"}));
  rows.push_back(measure("run true", ranks, count, with({"/bin/true"})));
  rows.push_back(measure("hello", ranks, count, with({folder + "/trireme-bench", "hello"})));
  std::error_code ignored;
  std::filesystem::remove_all(run_dir, ignored);
  return rows;
}

}  // namespace trireme::bench
