#include <sys/klog.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/str.h"
#include "diagnose/reader.h"
#include "diagnose/scan.h"
#include "doctor/probes.h"
#include "doctor/tool.h"

namespace trireme::doctor {
namespace {

using std::chrono::seconds;

/// "12.6" of "2.13.0+cu126"; empty for a build without CUDA.
std::string cuda_of(const std::string& torch) {
  const auto digits = diagnose::after(torch, "+cu");
  if (!digits || digits->size() < 3 || !diagnose::all_digits(digits->substr(0, 3))) return {};
  return str(digits->substr(0, 2), ".", digits->substr(2, 1));
}

/// "2.13.0+cu126": the library itself says only "2.13.0"; the wheel's version.py and the archive's build-version, beside its lib folder, say for what
/// it was built. Empty when neither is there.
std::string full_version(const std::string& train_program) {
  const ToolOutput libraries = run_tool({"ldd", train_program}, seconds(4));
  const auto path = diagnose::between(libraries.out, "libtorch.so => ", "/lib/libtorch.so");
  if (!path) return {};
  const std::string folder(*path);
  const std::string python = read_text_file(folder + "/version.py").value_or("");
  if (const auto version = diagnose::between(python, "__version__ = '", "'"); version && version->size() < 64)
    return std::string(*version);
  const std::string archive = read_text_file(folder + "/build-version").value_or("");
  return archive.size() < 64 ? archive : std::string{};
}

}  // namespace

void probe_mpi(Report& report) {
  std::string text;
  const auto add = [&](const std::string& what) { text += str(text.empty() ? "" : "; ", what); };
  if (!find_in_path("mpirun").empty()) {
    const ToolOutput mpi = run_tool({"mpirun", "--version"}, seconds(2));
    add(mpi.ok() ? mpi.first_line()
                 : str("mpirun is there and does not tell its version (",
                       mpi.timed_out ? "no answer within 2 s" : mpi.first_line(), ")"));
  }
  if (!find_in_path("ucx_info").empty()) {
    const ToolOutput ucx = run_tool({"ucx_info", "-v"}, seconds(2));
    add(ucx.ok() ? str("UCX: ", ucx.first_line()) : "ucx_info is there and does not tell its version");
  }
  if (!find_in_path("srun").empty()) add("srun");
  add_row(report, "MPI, UCX, Slurm", Check::State::kOk, text.empty() ? "none in PATH; 'trireme run' needs none" : text);
}

void probe_libtorch(const std::string& train_program, Report& report) {
  if (train_program.empty()) {
    add_row(report, "LibTorch", Check::State::kOk, "not known: trireme-train is neither beside trireme nor in PATH");
    return;
  }
  const ToolOutput output = run_tool({train_program, "--version-json"}, seconds(8));
  const auto info = nlohmann::json::parse(output.out, nullptr, false);
  if (!output.ok() || !info.is_object() || !info.contains("torch_loaded")) {
    add_row(report, "LibTorch", Check::State::kError,
            str(train_program,
                output.timed_out ? " does not answer within 8 s" : str(" cannot start: ", output.first_line())));
    add_finding(report, "libtorch.broken", Severity::kError, 0.8,
                "trireme-train cannot start, so LibTorch cannot be loaded",
                str("Run it by hand to see why: ", train_program, " --version-json; ldd ", train_program,
                    " | grep 'not found'"),
                train_program, output.first_line());
    return;
  }
  const auto text = [&](const char* key) {
    return info.contains(key) && info[key].is_string() ? info[key].get<std::string>() : std::string("?");
  };
  const std::string built = text("torch_built");
  std::string loaded = text("torch_loaded");
  if (const std::string full = full_version(train_program); full.starts_with(loaded)) loaded = full;
  report.facts.versions.torch = loaded;
  const bool same = loaded.starts_with(built.substr(0, built.find('+')));
  add_row(report, "LibTorch", same ? Check::State::kOk : Check::State::kError,
          str(loaded, same ? "" : str(" is loaded, but trireme-train was built with ", built)));
  if (!same) {
    add_finding(report, "libtorch.mismatch", Severity::kError, 0.8,
                str("LibTorch ", loaded, " is loaded, and trireme-train was built with ", built),
                "LibTorch promises no binary compatibility between releases. Rebuild, or correct LD_LIBRARY_PATH.",
                train_program);
  }
}

void probe_kernel_log(const Place& /*place*/, Report& report) {
  constexpr int kReadAll = 3;
  constexpr int kSize = 10;
  const int size = klogctl(kSize, nullptr, 0);
  std::string text(static_cast<size_t>(std::max(size, 0)), '\0');
  const int got = size <= 0 ? size : klogctl(kReadAll, text.data(), size);
  if (got < 0) {
    const bool denied = errno == EPERM || errno == EACCES;
    add_row(report, "kernel log", Check::State::kUnknown,
            denied ? "not readable: permission denied (as root, or after sysctl kernel.dmesg_restrict=0, it is)"
                   : str("not readable: ", std::strerror(errno)));
    return;
  }
  text.resize(static_cast<size_t>(got));
  diagnose::Readers readers = diagnose::all_readers();
  Report read;
  diagnose::read_text(text, "kernel log", readers, read);
  diagnose::finish(readers, read);
  // It tells what happened since the host was started, not what is so now: no error of the present.
  for (Finding& finding : read.findings) {
    if (finding.severity == Severity::kError) finding.severity = Severity::kWarning;
    if (finding.code == "process.crash") finding.severity = Severity::kInfo;
    finding.confidence = finding.confidence >= 0.9 ? 0.6 : 0.5;
    // Levels such as "<4>" are for dmesg to translate; the numbers of lines mean nothing outside of this process.
    for (diagnose::Evidence& evidence : finding.evidence) {
      if (evidence.text.starts_with('<') && evidence.text.find('>') < 6)
        evidence.text.erase(0, evidence.text.find('>') + 1);
      evidence.line = 0;
    }
    finding.cause = "since the host was started: " + finding.cause;
  }
  const size_t found = read.findings.size();
  const bool warn = std::any_of(read.findings.begin(), read.findings.end(),
                                [](const Finding& finding) { return finding.severity != Severity::kInfo; });
  add_row(report, "kernel log", warn ? Check::State::kWarning : Check::State::kOk,
          found > 0 ? str(found, found == 1 ? " kind of fault" : " kinds of faults", " since the host was started")
                    : "no Xid, NVLink, memory or PCIe fault, nobody killed");
  read.checks.clear();
  read.files.clear();
  join_reports(report, std::move(read));
}

void judge_versions(const Place& place, Report& report) {
  const diagnose::Versions& versions = report.facts.versions;
  const int gpus = count_gpus(pci_devices(place), kNvidia);
  if (!versions.torch) return;
  if (gpus > 0 && versions.torch->ends_with("+cpu")) {
    add_finding(report, "libtorch.cpu_only", Severity::kWarning, 0.8,
                str("there are ", gpus, " NVIDIA GPUs, and LibTorch ", *versions.torch, " is a build for CPUs"),
                "Ranks would run on CPUs. Install the CUDA build of the wheel and configure with -DTRIREME_CUDA=ON.");
  }
  const std::string cuda = cuda_of(*versions.torch);
  if (cuda.empty()) return;
  if (!versions.cuda) return;
  const auto number = [](const std::string& text) { return diagnose::leading_number<double>(text).value_or(0); };
  const double driver = number(*versions.cuda);
  const double torch = number(cuda);
  if (torch <= driver) return;
  const bool major = std::floor(torch) > std::floor(driver);
  add_finding(report, "driver.too_old", major ? Severity::kError : Severity::kWarning, major ? 0.95 : 0.4,
              str("LibTorch is built for CUDA ", cuda, ", the driver supports ", *versions.cuda, " at most"),
              major ? "CUDA will not start ('driver version is insufficient'). Update the driver, or install a "
                      "LibTorch for the driver's CUDA."
                    : "Works within one major version, but for kernels that are compiled at run time. Update the "
                      "driver when those fail with 'unsupported toolchain'.",
              "versions", str("driver ", versions.driver.value_or("?")));
}

}  // namespace trireme::doctor
