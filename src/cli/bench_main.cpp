// trireme-bench: `trireme bench comm|ddp|overhead|launch`. Started alone it starts its own ranks.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/finish_output.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/str.h"
#include "cli/bench.h"
#include "cli/flag_errors.h"
#include "launch/job.h"
#include "trireme/base/error.h"
#include "trireme/rendezvous/job_env.h"

namespace trireme::bench {
namespace {

using nlohmann::json;

constexpr const char* kStdout = "-";

struct Flags {
  int ranks = 2;
  std::string json_file;
  int repetitions = 0;
  CommOptions comm;
  DdpBenchOptions ddp;
  OverheadOptions overhead;
};

std::string human(int64_t bytes) {
  if (bytes >= (1 << 20) && bytes % (1 << 20) == 0) return str(bytes >> 20, " MiB");
  if (bytes >= 1024 && bytes % 1024 == 0) return str(bytes >> 10, " KiB");
  return str(bytes, " B");
}

json print(const std::vector<CommRow>& rows, FILE* table) {
  json out = json::array();
  if (!rows.empty()) {
    std::fprintf(table, "%-15s %9s %10s %5s %5s %10s %10s %10s %10s %10s %10s %6s\n", "op", "size", "count", "dtype",
                 "ranks", "min us", "p50 us", "p99 us", "max us", "algbw GB/s", "busbw GB/s", "wrong");
  }
  for (const CommRow& row : rows) {
    std::fprintf(table, "%-15s %9s %10lld %5s %5d %10.1f %10.1f %10.1f %10.1f %10.2f %10.2f %6lld\n", row.op.c_str(),
                 human(row.bytes).c_str(), static_cast<long long>(row.count), "f32", row.ranks, row.min_us,
                 row.median_us, row.p99_us, row.max_us, row.algbw_gb_s, row.busbw_gb_s,
                 static_cast<long long>(row.wrong));
    out.push_back({{"op", row.op},
                   {"bytes", row.bytes},
                   {"count", row.count},
                   {"dtype", "f32"},
                   {"ranks", row.ranks},
                   {"repetitions", row.repetitions},
                   {"median_us", row.median_us},
                   {"min_us", row.min_us},
                   {"p50_us", row.median_us},
                   {"p99_us", row.p99_us},
                   {"max_us", row.max_us},
                   {"algbw_gb_per_s", row.algbw_gb_s},
                   {"busbw_gb_per_s", row.busbw_gb_s},
                   {"wrong", row.wrong}});
  }
  return out;
}

json print(const std::vector<DdpRow>& rows, FILE* table) {
  json out = json::array();
  if (!rows.empty()) {
    std::fprintf(table, "%-18s %5s %-11s %9s %9s %9s %9s %6s %8s %14s\n", "model", "ranks", "gradients", "step ms",
                 "p90", "local ms", "p90", "ratio", "buckets", "bytes touched");
  }
  for (const DdpRow& row : rows) {
    std::fprintf(table, "%-18s %5d %-11s %9.2f %9.2f %9.2f %9.2f %6.2f %8lld %14lld\n", row.model.c_str(), row.ranks,
                 row.gradients.c_str(), row.step_ms, row.step_p90_ms, row.local_ms, row.local_p90_ms, row.ratio,
                 static_cast<long long>(row.num_buckets), static_cast<long long>(row.bytes_touched));
    out.push_back({{"model", row.model},
                   {"ranks", row.ranks},
                   {"gradients", row.gradients},
                   {"repetitions", row.repetitions},
                   {"step_ms", row.step_ms},
                   {"step_min_ms", row.step_min_ms},
                   {"step_p90_ms", row.step_p90_ms},
                   {"local_ms", row.local_ms},
                   {"local_min_ms", row.local_min_ms},
                   {"local_p90_ms", row.local_p90_ms},
                   {"ratio", row.ratio},
                   {"gradient_bytes", row.gradient_bytes},
                   {"bytes_touched", row.bytes_touched},
                   {"num_buckets", row.num_buckets}});
  }
  return out;
}

json print(const std::vector<OverheadRow>& rows, FILE* table) {
  json out = json::array();
  if (!rows.empty()) {
    std::fprintf(table, "%-17s %-18s %5s %6s %8s %8s %10s %10s %8s %8s %10s %6s\n", "what", "model", "ranks", "pairs",
                 "on ms", "off ms", "diff us", "95 % us", "diff %", "95 % %", "watch %", "calls");
  }
  for (const OverheadRow& row : rows) {
    std::fprintf(table, "%-17s %-18s %5d %6d %8.3f %8.3f %10.2f %10.2f %8.3f %8.3f %10.3f %6lld\n", row.what.c_str(),
                 row.model.c_str(), row.ranks, row.repetitions, row.on_ms, row.off_ms, row.difference_us, row.upper_us,
                 100 * row.overhead, 100 * row.overhead_upper, 100 * row.watch_share,
                 static_cast<long long>(row.num_calls));
    out.push_back({{"what", row.what},
                   {"model", row.model},
                   {"ranks", row.ranks},
                   {"repetitions", row.repetitions},
                   {"on_ms", row.on_ms},
                   {"off_ms", row.off_ms},
                   {"difference_us", row.difference_us},
                   {"upper_us", row.upper_us},
                   {"overhead", row.overhead},
                   {"overhead_upper", row.overhead_upper},
                   {"watch_share", row.watch_share >= 0 ? json(row.watch_share) : json()},
                   {"calls", row.num_calls}});
  }
  return out;
}

json print(const std::vector<LaunchRow>& rows, FILE* table) {
  json out = json::array();
  std::fprintf(table, "%-18s %5s %10s %10s %10s\n", "what", "ranks", "min ms", "p50 ms", "max ms");
  for (const LaunchRow& row : rows) {
    std::fprintf(table, "%-18s %5d %10.1f %10.1f %10.1f\n", row.what.c_str(), row.ranks, row.min_ms, row.median_ms,
                 row.max_ms);
    out.push_back({{"what", row.what},
                   {"ranks", row.ranks},
                   {"repetitions", row.repetitions},
                   {"median_ms", row.median_ms},
                   {"min_ms", row.min_ms},
                   {"max_ms", row.max_ms}});
  }
  return out;
}

int64_t count_wrong(const json& rows) {
  int64_t wrong = 0;
  for (const json& row : rows) wrong += row.value("wrong", int64_t{0});
  return wrong;
}

// Returns the exit code; 3 when a value was wrong.
int report(const json& rows, const std::string& json_file) {
  if (rows.empty()) return 0;  // not rank 0
  if (json_file == kStdout) {
    std::puts(json{{"schema", 1}, {"rows", rows}}.dump(1).c_str());
  } else if (!json_file.empty()) {
    std::ofstream file(json_file);
    file << json{{"schema", 1}, {"rows", rows}}.dump(1) << '\n';
    if (!file.flush()) {
      throw Error(ErrorKind::kIo, str("[bench] cannot write '", json_file, "'; --json needs a file that can be made."));
    }
  }
  return count_wrong(rows) == 0 ? 0 : 3;
}

/// Before minutes of measuring rather than after them.
void require_place_for(const std::string& json_file) {
  if (json_file.empty() || json_file == kStdout) return;
  const std::filesystem::path folder = std::filesystem::absolute(json_file).parent_path();
  const bool exists = std::filesystem::exists(json_file);
  const bool good = exists ? !std::filesystem::is_directory(json_file) && access(json_file.c_str(), W_OK) == 0
                           : access(folder.c_str(), W_OK) == 0;
  if (good) return;
  throw Error(ErrorKind::kIo, str("[bench] cannot write '", json_file, "'; --json needs a file that can be made."));
}

void require_known(const char* what, const std::vector<std::string>& given, const std::vector<std::string>& known) {
  for (const std::string& word : given) {
    if (std::find(known.begin(), known.end(), word) != known.end()) continue;
    const std::string hint = did_you_mean(word, known);
    throw Error(ErrorKind::kConfig, str("[bench] unknown ", what, " '", word, "'", hint,
                                        hint.empty() ? "; known" : " Known", " are ", join(known), "."));
  }
}

constexpr const char* kCommand = "trireme bench";

int run(int argc, char** argv) {
  log::require_good_filter();
  Flags flags;
  CLI::App app("Measures collectives, data-parallel steps and start-up on this machine.", kCommand);
  app.require_subcommand(1);
  const auto common = [&flags](CLI::App* command) {
    command->add_option("--ranks", flags.ranks, "ranks to start; default 2 (ignored in ranks of a launcher)")
        ->check(cli::whole_number(1, 64));
    command
        ->add_option(
            "--json", flags.json_file,
            "write {\"schema\":1,\"rows\":[...]} to this file, without one to stdout; the table then goes to stderr")
        ->expected(0, 1)
        ->type_name("[FILE]");
    command->add_option("--repetitions", flags.repetitions, "timed calls of each kind; default by size")
        ->check(cli::whole_number(1, 1'000'000));
  };
  CLI::App* comm =
      app.add_subcommand("comm", "collectives through ProcessGroup, f32, default allocator, values verified");
  common(comm);
  comm->add_option("--op", flags.comm.ops, str("which: ", join(comm_ops()), "; default all"))->delimiter(',');
  comm->add_option("--bytes", flags.comm.bytes,
                   "bytes of the tensor that one rank passes in; default 4096,65536,1048576,8388608,33554432")
      ->delimiter(',')
      ->check(cli::whole_number(4, int64_t{1} << 34));
  CLI::App* ddp = app.add_subcommand("ddp", "training steps, interleaved with the same step without communication");
  common(ddp);
  ddp->add_option("--model", flags.ddp.models, "784-256-10, 784-2048-2048-10, 784-60x128-10; default all")
      ->delimiter(',');
  ddp->add_option("--gradients", flags.ddp.gradients, "staged, bucket_view or arena; default arena");
  ddp->add_option("--set", flags.ddp.overrides, "NAME=VALUE of another DDP option, such as bucket_bytes=1048576");
  ddp->add_option("--batch", flags.ddp.batch, "samples per rank; default 32")->check(cli::whole_number(1, 1 << 20));
  CLI::App* overhead =
      app.add_subcommand("overhead", "what the diagnosis that is on by default costs a step: on and off by turns");
  common(overhead);
  overhead->add_option("--model", flags.overhead.models, "784-256-10, 784-2048-2048-10, 784-60x128-10; default all")
      ->delimiter(',');
  overhead->add_option("--batch", flags.overhead.batch, "samples per rank; default 32")
      ->check(cli::whole_number(1, 1 << 20));
  overhead->add_flag("--leak-watch", flags.overhead.leak_watch, "of the leak watch instead, which is off by default");
  CLI::App* launch = app.add_subcommand("launch", "start-up: trireme --help, run true, a two-rank hello");
  common(launch);
  app.add_subcommand("hello")->group("");  // what `launch` starts
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    cli::throw_flag_error(app, error, "bench", kCommand);
  }
  for (const CLI::App* command : app.get_subcommands()) {
    const CLI::Option* option = command->get_option_no_throw("--json");
    if (option != nullptr && option->count() > 0 && flags.json_file.empty()) flags.json_file = kStdout;
  }
  require_place_for(flags.json_file);
  FILE* table = flags.json_file == kStdout ? stderr : stdout;
  if (app.got_subcommand("hello")) return hello();
  if (launch->parsed()) return report(print(bench_launch(flags.ranks, flags.repetitions), table), flags.json_file);

  require_known("operation", flags.comm.ops, comm_ops());
  for (const auto* models : {&flags.ddp.models, &flags.overhead.models}) {
    require_known("model", *models, {"784-256-10", "784-2048-2048-10", "784-60x128-10"});
  }
  check_ddp_bench(flags.ddp);
  launch::JobSpec self;
  self.num_ranks = flags.ranks;
  self.announce = false;
  self.out[0] = self.err[0] = launch::Show::kRaw;
  // A measurement leaves nothing behind unless it failed.
  // Only the launcher makes it, under a name that nobody can have prepared.
  if (flags.ranks > 1 && rendezvous::detect_job_env().source == "none") {
    self.run_dir = (std::filesystem::temp_directory_path() / "trireme_bench_XXXXXX").string();
    if (mkdtemp(self.run_dir.data()) == nullptr) {
      throw Error(ErrorKind::kIo,
                  str("[bench] cannot make ", self.run_dir, ": ", std::strerror(errno), ". Set TMPDIR."));
    }
  }
  if (const std::optional<launch::JobResult> job = launch::run_self_as_ranks(argc, argv, self)) {
    std::error_code ignored;
    if (job->exit_code == 0) std::filesystem::remove_all(self.run_dir, ignored);
    return job->exit_code;
  }
  flags.comm.repetitions = flags.ddp.repetitions = flags.overhead.repetitions = flags.repetitions;
  if (comm->parsed()) return report(print(bench_comm(flags.comm), table), flags.json_file);
  if (overhead->parsed()) return report(print(bench_overhead(flags.overhead), table), flags.json_file);
  return report(print(bench_ddp(flags.ddp), table), flags.json_file);
}

}  // namespace
}  // namespace trireme::bench

int main(int argc, char** argv) {
  try {
    return trireme::finish_output(trireme::bench::run(argc, argv), "bench");
  } catch (const trireme::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return trireme::exit_code(error.kind());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "[bench] %s\n", error.what());
    return 1;
  }
}
