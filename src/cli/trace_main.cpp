// trireme-trace: `trireme trace report|merge|export`. A program of its own, because it links simdjson and zlib.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>

#include "base/finish_output.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/replace_file.h"
#include "base/str.h"
#include "cli/flag_errors.h"
#include "plan/machine_file.h"
#include "trace/merge.h"
#include "trace/read_timeline.h"
#include "trace/report.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

constexpr const char* kCommand = "trireme trace";

struct Flags {
  std::vector<std::string> paths;
  std::string output;
  std::string html;
  std::string format = "chrome";
  bool json = false;
  bool steps = false;
  bool gzip = false;
  double peak_tflops = 0;
  std::string device;
  std::string precision = "bf16";
  int64_t limit_mb = 500;
};

/// The dense peak that MFU is a part of; 0: not asked for.
double peak_flops(const Flags& flags) {
  if (flags.device.empty()) return flags.peak_tflops * 1e12;
  const plan::MachineCatalog machines = plan::load_machines();
  const plan::DeviceDesc& device = machines.device(flags.device);
  const auto found = device.peak_flops.find(flags.precision);
  if (found != device.peak_flops.end()) return found->second.value;
  std::string known;
  for (const auto& [precision, peak] : device.peak_flops) known += (known.empty() ? "" : ", ") + precision;
  throw Error(ErrorKind::kConfig,
              str("[cli.trace] --precision is '", flags.precision, "', and the peak of ", device.name, " is known for ",
                  known, ". Name one of these, or give --peak-tflops."));
}

int report(const Flags& flags) {
  trace::ReportOptions options;
  options.peak_flops = peak_flops(flags);
  std::vector<trace::Timeline> timelines = trace::load_timelines(flags.paths, options.notices);
  trace::ReportDetails details;
  const trace::TraceReport result =
      trace::make_report(std::move(timelines), options, flags.html.empty() ? nullptr : &details);
  if (!flags.html.empty()) replace_file(flags.html, trace::report_html(result, details), "cli.trace");
  const std::string text = flags.json ? trace::report_json(result) : trace::report_text(result, flags.steps);
  (void)std::fputs(text.c_str(), stdout);  // finish_output() tells when it was lost
  return 0;
}

int merge(const Flags& flags) {
  const trace::MergeResult result =
      trace::merge_traces(flags.paths, flags.output, {static_cast<uint64_t>(flags.limit_mb) * 1'000'000});
  if (flags.json) {
    nlohmann::ordered_json json = {
        {"schema", 1}, {"num_events", result.num_events}, {"num_left_out", result.num_left_out}};
    json["files"] = nlohmann::ordered_json::array();
    for (size_t i = 0; i < result.files.size(); ++i) {
      json["files"].push_back(
          {{"file", result.files[i]}, {"bytes", result.file_bytes[i]}, {"num_events", result.file_events[i]}});
    }
    json["clocks"] = result.clock_lines;
    json["notices"] = result.notices;
    std::puts(json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
    return 0;
  }
  for (size_t i = 0; i < result.files.size(); ++i) {
    std::printf("%s: %s events, %.1f MB uncompressed\n", result.files[i].c_str(),
                grouped(static_cast<int64_t>(result.file_events[i])).c_str(),
                static_cast<double>(result.file_bytes[i]) / 1e6);
  }
  for (const std::string& line : result.clock_lines) std::printf("%s\n", line.c_str());
  for (const std::string& notice : result.notices) std::fprintf(stderr, "note: %s\n", printable(notice).c_str());
  return 0;
}

int export_traces(const Flags& flags) {
  const trace::ExportFormat format = flags.format == "chrome"            ? trace::ExportFormat::kChrome
                                     : flags.format == "flight-recorder" ? trace::ExportFormat::kFlightRecorder
                                                                         : trace::ExportFormat::kFlightRecorderJson;
  if (flags.gzip && format != trace::ExportFormat::kChrome) {
    throw Error(
        ErrorKind::kConfig,
        "[cli.trace] --gzip goes with --format chrome; readers of flight-recorder dumps take them as they are.");
  }
  const trace::ExportResult result = trace::export_run(flags.paths.front(), flags.output, format, flags.gzip);
  for (const std::string& file : result.files) std::printf("%s\n", file.c_str());
  for (const std::string& notice : result.notices) std::fprintf(stderr, "note: %s\n", printable(notice).c_str());
  return 0;
}

int run(int argc, char** argv) {
  log::require_good_filter();
  Flags flags;
  CLI::App app("Where the time of a job goes: traces of its ranks, reported or joined into one.", kCommand);
  app.require_subcommand(1);
  CLI::App* reporting =
      app.add_subcommand("report", "each step's shares by rank, who is waited for, a verdict in words");
  reporting
      ->add_option("paths", flags.paths,
                   "Chrome traces of the ranks (.json, .json.gz; PyTorch's or ours), or a run folder")
      ->required()
      ->type_name("PATH...");
  reporting->add_flag("--json", flags.json, "the result for programs");
  reporting
      ->add_option("--html", flags.html,
                   "also write one page with time line, shares and communication matrix; needs no network")
      ->type_name("FILE");
  reporting->add_flag("--steps", flags.steps, "a line for each step and rank");
  CLI::Option* device =
      reporting
          ->add_option("--device", flags.device,
                       "the device that the ranks ran on, by a name of the planner's (H100, A100-80, ...); gives MFU")
          ->type_name("NAME");
  reporting
      ->add_option("--precision", flags.precision,
                   "with --device: fp32, tf32, fp16, bf16, fp8 or fp4, as the job's matrix products use. Default bf16")
      ->type_name("P")
      ->needs(device);
  reporting
      ->add_option("--peak-tflops", flags.peak_tflops,
                   "instead of --device: dense peak of one device in that precision, in 1e12 FLOP a second")
      ->check(number_within(1e-6, 1e6))
      ->excludes(device);
  CLI::App* merging = app.add_subcommand("merge", "join the ranks' traces into one, on one clock");
  merging->add_option("paths", flags.paths, "Chrome traces of the ranks, or a run folder")
      ->required()
      ->type_name("PATH...");
  merging->add_option("-o,--output", flags.output, "file to write; compressed when it ends with .gz")
      ->required()
      ->type_name("FILE");
  merging
      ->add_option(
          "--limit-mb", flags.limit_mb,
          "largest file, uncompressed; more is written as slices of time FILE.1, FILE.2, ... Default 500, 0: no limit")
      ->check(whole_number(0, 1'000'000));
  merging->add_flag("--json", flags.json, "the result for programs");
  CLI::App* exporting =
      app.add_subcommand("export", "the collective traces of a run folder in forms that other programs read");
  exporting->add_option("run_dir", flags.paths, "the run folder of a job")
      ->required()
      ->expected(1)
      ->type_name("RUN_DIR");
  exporting->add_option("-o,--output", flags.output, "folder to write a file for each rank into")
      ->required()
      ->type_name("DIR");
  exporting
      ->add_option("--format", flags.format,
                   "chrome (Perfetto, TensorBoard), flight-recorder (a pickle for PyTorch's fr_trace), "
                   "flight-recorder-json. Default chrome")
      ->check(CLI::IsMember({"chrome", "flight-recorder", "flight-recorder-json"}));
  exporting->add_flag("--gzip", flags.gzip, "write rankN.json.gz");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    throw_flag_error(app, error, "trace", kCommand);
  }
  if (reporting->parsed()) return report(flags);
  return merging->parsed() ? merge(flags) : export_traces(flags);
}

}  // namespace
}  // namespace trireme::cli

int main(int argc, char** argv) {
  try {
    return trireme::finish_output(trireme::cli::run(argc, argv), "trace");
  } catch (const trireme::Error& error) {
    std::fprintf(stderr, "%s\n", trireme::printable(error.what()).c_str());
    return trireme::exit_code(error.kind());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "[trace] out of memory. Give fewer files at once.\n");
    return trireme::exit_code(trireme::ErrorKind::kOutOfMemory);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "[trace] %s. This is a bug in Trireme; please report it.\n",
                 trireme::printable(error.what()).c_str());
    return trireme::exit_code(trireme::ErrorKind::kInternal);
  }
}
