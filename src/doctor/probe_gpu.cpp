#include <dlfcn.h>

#include <map>
#include <memory>

#include "base/str.h"
#include "diagnose/reader.h"
#include "diagnose/scan.h"
#include "doctor/probes.h"
#include "doctor/tool.h"

namespace trireme::doctor {
namespace {

using diagnose::after;
using diagnose::has;
using std::chrono::seconds;

constexpr seconds kSmiLimit{8};

/// What the readers make of the output.
void read_output(const ToolOutput& output, const std::string& command, Report& report) {
  diagnose::Readers readers = diagnose::all_readers();
  Report read;
  diagnose::read_text(output.out + output.err, command, readers, read);
  diagnose::finish(readers, read);
  read.files.clear();
  join_reports(report, std::move(read));
}

/// "2 x NVIDIA H100 80GB HBM3" from the lines "Product Name : ..." of nvidia-smi -q.
std::string products(std::string_view text) {
  std::map<std::string, int> count;
  for (auto rest = after(text, "Product Name"); rest; rest = after(*rest, "Product Name")) {
    const auto name = after(diagnose::until(*rest, "\n"), ": ");
    if (name) ++count[std::string(diagnose::trimmed(name->substr(0, 100)))];
  }
  std::string list;
  for (const auto& [name, times] : count) list += str(list.empty() ? "" : ", ", times, " x ", name);
  return list;
}

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};
using Library = std::unique_ptr<void, CloseLibrary>;

template <typename Function>
Function* symbol(const Library& library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library.get(), name));
}

std::string cuda_version(int number) { return str(number / 1000, ".", number % 1000 / 10); }

/// Without nvidia-smi, as in many containers: NVML itself. False: it is not there either.
bool probe_nvml(Report& report) {
  const Library nvml(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL));
  if (!nvml) return false;
  auto* init = symbol<int()>(nvml, "nvmlInit_v2");
  auto* driver_version = symbol<int(char*, unsigned)>(nvml, "nvmlSystemGetDriverVersion");
  auto* device_count = symbol<int(unsigned*)>(nvml, "nvmlDeviceGetCount_v2");
  if (init == nullptr || driver_version == nullptr || device_count == nullptr) return false;
  if (const int code = init(); code != 0) {
    add_row(report, "NVIDIA driver", Check::State::kError,
            str("libnvidia-ml.so.1 is there and cannot start: NVML error ", code));
    add_finding(report, "driver.nvml", Severity::kError, 0.8,
                str("NVML, the driver's library, cannot start (error ", code, ")"),
                "18: library and kernel module of two versions (reboot). 9: the kernel module is not loaded (modprobe "
                "nvidia). 999: the device files are "
                "not accessible in this container.");
    return true;
  }
  char version[80] = "";
  unsigned count = 0;
  driver_version(version, sizeof(version));
  device_count(&count);
  report.facts.versions.driver = version;
  add_row(report, "NVIDIA driver", Check::State::kOk,
          str(version, ", ", count, " GPUs (asked NVML; nvidia-smi is not in PATH)"));
  return true;
}

void no_smi(const Place& place, Report& report) {
  if (probe_nvml(report)) return;
  const int gpus = count_gpus(pci_devices(place), kNvidia);
  if (gpus == 0) {
    add_row(report, "NVIDIA driver", Check::State::kOk, "no NVIDIA driver and no NVIDIA GPU here: ranks run on CPUs");
    return;
  }
  const bool module = read_text_file(place.proc + "/driver/nvidia/version").has_value();
  const std::string gpus_text = str(gpus, gpus == 1 ? " NVIDIA GPU" : " NVIDIA GPUs");
  add_row(report, "NVIDIA driver", Check::State::kError,
          str(gpus_text, " on the PCI bus, ",
              module ? "kernel module loaded, but neither nvidia-smi nor libnvidia-ml.so.1 here" : "no driver loaded"));
  add_finding(report, "driver.missing", Severity::kError, 0.9,
              str(gpus_text, " here, and no NVIDIA driver that programs could use"),
              module ? "In a container: start it with the NVIDIA runtime (docker run --gpus all). Else install the "
                       "driver's user part (libnvidia-ml1, nvidia-utils)."
                     : "Install the driver (apt install nvidia-driver, or NVIDIA's package) and load it: modprobe "
                       "nvidia; nvidia-smi",
              place.sys + "/bus/pci/devices", gpus_text);
}

}  // namespace

void probe_nvidia(const Place& place, Report& report) {
  const ToolOutput output = run_tool({"nvidia-smi", "-q"}, kSmiLimit);
  if (output.missing) return no_smi(place, report);
  if (output.timed_out) {
    add_row(report, "NVIDIA driver", Check::State::kError,
            str("nvidia-smi does not answer within ", kSmiLimit.count(), " s; how many GPUs work is not known"));
    add_finding(
        report, "driver.hangs", Severity::kError, 0.85,
        "nvidia-smi hangs: the driver waits for a GPU that does not answer",
        "See dmesg | grep -E 'Xid|NVRM' for the GPU; end its jobs, then nvidia-smi -r -i <GPU>, or reboot the host.",
        "nvidia-smi -q", output.first_line());
    return;
  }
  read_output(output, "nvidia-smi -q", report);
  if (output.exit_code != 0) {
    add_row(report, "NVIDIA driver", Check::State::kError,
            str("nvidia-smi ended with exit code ", output.exit_code, ": ", output.first_line(),
                "; how many GPUs work is not known"));
    if (report.findings.empty()) {
      add_finding(report, "nvidia_smi.failed", Severity::kError, 0.7,
                  str("nvidia-smi ended with exit code ", output.exit_code),
                  "Run it by hand: nvidia-smi; then dmesg | grep NVRM.", "nvidia-smi -q", output.first_line());
    }
    return;
  }
  const std::string gpus = products(output.out);
  const auto& versions = report.facts.versions;
  const bool bad = report.has_errors();
  add_row(report, "NVIDIA driver",
          bad                       ? Check::State::kError
          : report.findings.empty() ? Check::State::kOk
                                    : Check::State::kWarning,
          str(versions.driver.value_or("unknown version"), ", CUDA up to ", versions.cuda.value_or("?"),
              gpus.empty() ? "; nvidia-smi names no GPU" : "; " + gpus));
}

void probe_nvidia_links(Report& report) {
  // Failures of the tool itself are told by probe_nvidia.
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"nvidia-smi", "topo", "-m"}, {"nvidia-smi", "nvlink", "--status"}}) {
    const ToolOutput output = run_tool(command, kSmiLimit);
    if (output.ok()) read_output(output, join(command, " "), report);
    if (output.missing || output.timed_out) return;
  }
}

void probe_cuda(const Place& place, Report& report) {
  const int gpus = count_gpus(pci_devices(place), kNvidia);
  if (const Library cuda(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)); cuda) {
    auto* init = symbol<int(unsigned)>(cuda, "cuInit");
    auto* version = symbol<int(int*)>(cuda, "cuDriverGetVersion");
    int number = 0;
    if (version != nullptr && version(&number) == 0 && number > 0) report.facts.versions.cuda = cuda_version(number);
    const int code = init == nullptr ? 0 : init(0);
    if (code != 0 && (gpus > 0 || code != 100)) {
      add_row(report, "CUDA", Check::State::kError, str("libcuda.so.1 cannot start: error ", code));
      add_finding(report, "cuda.init_failed", Severity::kError, 0.85,
                  str("CUDA cannot start: cuInit gives error ", code),
                  "802: the NVSwitch fabric is not ready (systemctl start nvidia-fabricmanager). 803: driver and "
                  "library of two versions (reboot). 100, 101: "
                  "no GPU that this process may use (CUDA_VISIBLE_DEVICES, the container's devices). 999: often "
                  "nvidia_uvm (modprobe nvidia_uvm) or a GPU that failed.");
    } else {
      add_row(report, "CUDA", Check::State::kOk, str("libcuda.so.1, CUDA ", report.facts.versions.cuda.value_or("?")));
    }
  }
  const Library nccl(dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL));
  if (!nccl) {
    if (gpus > 0)
      add_row(report, "NCCL", Check::State::kUnknown,
              "libnccl.so.2 is not in the library path; LibTorch's own wheel brings one");
    return;
  }
  auto* version = symbol<int(int*)>(nccl, "ncclGetVersion");
  int number = 0;
  if (version == nullptr || version(&number) != 0)
    return add_row(report, "NCCL", Check::State::kUnknown, "libnccl.so.2 does not tell its version");
  // 2809 is 2.8.9; from 2.9 on 22304 is 2.23.4.
  const int base = number < 10'000 ? 1000 : 10'000;
  report.facts.versions.nccl = str(number / base, ".", number % base / 100, ".", number % 100);
  add_row(report, "NCCL", Check::State::kOk, *report.facts.versions.nccl);
}

void probe_other_gpus(const Place& place, Report& report) {
  const std::vector<PciDevice> devices = pci_devices(place);
  struct Tool {
    int64_t vendor;
    const char* name;
    std::vector<std::string> command;
  };
  for (const Tool& tool : {Tool{kAmd, "AMD GPUs", {"rocm-smi", "--showtopo"}},
                           Tool{kIntel, "Intel GPUs", {"xpu-smi", "topology", "-m"}}}) {
    const int gpus = count_gpus(devices, tool.vendor);
    const ToolOutput output = run_tool(tool.command, kSmiLimit);
    if (output.ok()) {
      read_output(output, join(tool.command, " "), report);
    } else if (output.timed_out) {
      add_row(report, tool.name, Check::State::kError,
              str(tool.command[0], " does not answer within ", kSmiLimit.count(), " s"));
    } else if (!output.missing) {
      add_row(report, tool.name, Check::State::kUnknown,
              str(tool.command[0], " ended with exit code ", output.exit_code, ": ", output.first_line()));
    } else if (gpus > 0) {
      add_row(report, tool.name, Check::State::kUnknown,
              str(gpus, " on the PCI bus, and ", tool.command[0], " is not in PATH: their links are not known"));
    }
  }
}

}  // namespace trireme::doctor
