#include "diagnose/kernel_log.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/str.h"
#include "diagnose/scan.h"
#include "diagnose/xid.h"

namespace trireme::diagnose {
namespace {

constexpr size_t kMostGroups = 4096;

/// One kind of fault at one device or program, however often it is told.
struct Group {
  Finding finding;
  int64_t times = 0;
};

class KernelLogReader : public LineReader {
 public:
  [[nodiscard]] const char* kind() const override { return "kernel log"; }
  [[nodiscard]] std::vector<std::string_view> keywords() const override {
    return {"NVRM",
            "SXid",
            "NVSwitch",
            "segfault at ",
            "general protection",
            "trap invalid opcode",
            "oom-kill",
            "Out of memory: K",
            "out of memory: K",
            "PCIe Bus Error",
            "AER: ",
            "blocked for more than",
            "soft lockup",
            "hard LOCKUP",
            "Hardware Error",
            "mlx5_core",
            "amdgpu",
            "not responding",
            "EDAC MC",
            "I/O error",
            "I/O timeout"};
  }
  void begin_file(const std::string& file) override {
    file_ = file;
    seen_ = false;
  }
  [[nodiscard]] bool end_file() override { return seen_; }

  void line(const Line& line) override {
    line_ = &line;
    const std::string_view text = line.text;
    if (xid(text) || nvswitch(text) || nvrm(text) || crash(text) || oom(text) || pcie(text) || stuck(text) ||
        machine(text) || fabric(text))
      seen_ = true;
  }

  void finish(Report& report) override {
    for (const std::string& key : order_) {
      Group& group = groups_[key];
      if (group.times > 1) group.finding.cause += str(", ", grouped(group.times), " times");
      report.findings.push_back(std::move(group.finding));
    }
  }

 private:
  /// Counts the fault; `make` writes its finding the first time.
  template <typename Make>
  bool add(const std::string& key, const Make& make) {
    auto found = groups_.find(key);
    if (found == groups_.end()) {
      if (groups_.size() >= kMostGroups) return true;
      found = groups_.emplace(key, Group{make(), 0}).first;
      order_.push_back(key);
    }
    ++found->second.times;
    add_evidence(found->second.finding, {file_, line_->number, std::string(line_->text.substr(0, 400))});
    return true;
  }

  static Finding finding(std::string code, Severity severity, double confidence, std::string cause,
                         std::string advice) {
    Finding made;
    made.code = std::move(code);
    made.severity = severity;
    made.confidence = confidence;
    made.cause = std::move(cause);
    made.advice = std::move(advice);
    return made;
  }

  /// "NVRM: Xid (PCI:0000:9b:00): 119, pid=..., name=...", before driver 367 "Xid (0000:01:00): 31, Ch ..."
  bool xid(std::string_view text) {
    const auto rest = after(text, "NVRM: Xid (");
    if (!rest) return false;
    std::string_view device = until(*rest, ")");
    if (device.starts_with("PCI:")) device.remove_prefix(4);
    const auto number = after(*rest, "): ");
    const auto code = number ? leading_number<int>(*number) : std::nullopt;
    if (!code || device.size() > 32) return false;
    const std::string gpu(device);
    // "45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149": that one is the fault.
    const auto previous = leading_number<int>(after(*number, "caused by previous Xid ").value_or(""));
    const int fault = previous.value_or(*code);
    // Errors of NVLink 5 (144 to 150): "145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (...)".
    const bool goes_on = has(*number, " Nonfatal ");
    return add(str("xid ", fault, goes_on, " ", gpu), [&] {
      const XidMeaning* known = find_xid(fault);
      Severity severity = known != nullptr ? known->severity : Severity::kWarning;
      if (goes_on) severity = Severity::kWarning;
      return finding(
          str("xid.", fault), severity, known != nullptr ? 0.95 : 0.6,
          str("GPU ", gpu, ": ", known != nullptr ? known->meaning : "an error of the driver that is not in our table",
              goes_on ? ", not fatal" : "", " (Xid ", fault, previous ? ", by the Xid 45 that followed" : "", ")"),
          known != nullptr ? known->action : "Look it up: https://docs.nvidia.com/deploy/xid-errors/");
    });
  }

  /// "nvidia-nvswitch3: SXid (PCI:0000:86:00.0): 12028, Non-fatal, Link 32 ...", and the fabric manager's
  /// "detected NVSwitch non-fatal error 12028 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 physical id 3 port 61".
  bool nvswitch(std::string_view text) {
    std::string device;
    std::optional<int> code;
    bool fatal = false;
    if (const auto rest = after(text, "SXid (")) {
      device = std::string(until(*rest, ")"));
      if (device.starts_with("PCI:")) device.erase(0, 4);
      if (const auto number = after(*rest, "): ")) code = leading_number<int>(*number);
      fatal = has(text, ", Fatal");
    } else if (const auto told = after(text, "detected NVSwitch ")) {
      fatal = told->starts_with("fatal");
      if (const auto number = after(*told, "error ")) code = leading_number<int>(*number);
      if (const auto bus = after(*told, "pci bus id ")) device = std::string(until(*bus, " ,"));
    }
    if (!code || device.size() > 40) return false;
    return add(str("sxid ", *code, " ", device), [&] {
      return finding(str("sxid.", *code), fatal ? Severity::kError : Severity::kWarning, 0.9,
                     str("NVSwitch ", device, ": ", fatal ? "fatal" : "non-fatal", " error ", *code, " (SXid)"),
                     fatal ? "Jobs over this switch die. Reset all GPUs and switches of the host together (reboot, or "
                             "nvidia-smi -r with the fabric manager stopped)."
                           : "Jobs go on; a link that shows it often is about to fail: nvidia-smi nvlink -e; "
                             "journalctl -u nvidia-fabricmanager.");
    });
  }

  bool nvrm(std::string_view text) {
    if (!has(text, "NVRM: ")) return false;
    if (has(text, "fallen off the bus")) {
      return add("off the bus", [&] {
        return finding("gpu.off_the_bus", Severity::kError, 0.95, "a GPU has fallen off the PCIe bus",
                       find_xid(79)->action);
      });
    }
    if (has(text, "API mismatch")) {
      return add("api mismatch", [&] {
        return finding("driver.mismatch", Severity::kError, 0.95,
                       "the NVIDIA driver's kernel module and its libraries are of two versions",
                       "The driver was updated under a running kernel, or a container brings its own libraries. "
                       "Reboot, or unload and load the module: "
                       "rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia; modprobe nvidia");
      });
    }
    if (has(text, "RmInitAdapter failed") || has(text, "rm_init_adapter failed")) {
      return add("init failed", [&] {
        return finding("gpu.init_failed", Severity::kError, 0.9, "the NVIDIA driver cannot start a GPU",
                       "Reboot; if it stays: reseat the GPU, check power cables and the BIOS (above 4G decoding).");
      });
    }
    return has(text, "NVRM: loading NVIDIA");
  }

  /// "pt_main_thread[2536443]: segfault at 7f79 ip ... sp ... error 4 in libnccl.so.2[7f7c+d3d3000]"
  bool crash(std::string_view text) {
    constexpr std::array kKinds = {std::pair{"]: segfault at ", "segmentation fault"},
                                   std::pair{"] general protection", "general protection fault"},
                                   std::pair{"] trap invalid opcode", "illegal instruction"}};
    const auto* kind =
        std::find_if(kKinds.begin(), kKinds.end(), [&](const auto& one) { return has(text, one.first); });
    if (kind == kKinds.end()) return false;
    const char* what = kind->second;
    std::string_view program = text.substr(0, text.find(kind->first));
    const size_t open = program.rfind('[');
    program = open == std::string_view::npos ? std::string_view{} : program.substr(0, open);
    const size_t blank = program.find_last_of(" :");
    if (blank != std::string_view::npos) program.remove_prefix(blank + 1);
    std::string_view library;
    if (const size_t in = text.rfind(" in "); in != std::string_view::npos) library = until(text.substr(in + 4), "[ ");
    if (program.size() > 64 || library.size() > 128) return false;
    const std::string place = library.empty() ? "" : str(" inside ", library);
    return add(str("crash ", what, program, library), [&] {
      std::string advice =
          "Find where: run it with a core file (ulimit -c unlimited; then gdb PROGRAM core, bt), or under 'trireme "
          "run', which keeps the stack.";
      if (has(library, "nccl")) {
        advice =
            "A crash inside NCCL: often a communicator used after its end or from two threads, a peer that died, or a "
            "broken network plugin. Rerun with "
            "NCCL_DEBUG=INFO; without the plugin (NCCL_NET_PLUGIN=none); with the NCCL that LibTorch was built with.";
      } else if (std::string_view(what) == "illegal instruction") {
        advice = "The program was built for another CPU (-march=native on a newer one). Build it on, or for, this one.";
      }
      return finding("process.crash", Severity::kError, 0.9,
                     str(program.empty() ? "a program" : program, " crashed: ", what, place), advice);
    });
  }

  bool oom(std::string_view text) {
    const auto killed = after(text, "Killed process ");
    if (!killed) {
      return has(text, "oom-kill:") || has(text, "invoked oom-killer");  // told again by the line with the process
    }
    if (!has(text, "ut of memory")) return false;
    const auto name = between(*killed, "(", ")");
    const auto pid = leading_number<int64_t>(*killed);
    const bool cgroup = has(text, "emory cgroup out of memory");
    const auto rss = between(text, "anon-rss:", "kB");
    const std::string program = name && name->size() <= 64 ? std::string(*name) : "a process";
    return add(str("oom ", cgroup, " ", program), [&] {
      std::string cause = str("the kernel killed ", program, pid ? str(" (pid ", *pid, ")") : "",
                              cgroup ? ": its memory cgroup was full" : ": the host's memory was full");
      if (const auto kib = rss ? whole_number(*rss) : std::nullopt; kib && *kib > 0 && *kib < (int64_t{1} << 45)) {
        const bool large = *kib >= 1 << 20;
        cause += str(", it had ", large ? (*kib + (1 << 19)) >> 20 : *kib >> 10, large ? " GiB" : " MiB");
      }
      return finding("oom.killed", Severity::kError, 0.95, cause,
                     cgroup ? "Raise the limit (Slurm: --mem; Docker: --memory; Kubernetes: resources.limits.memory) "
                              "or use less: fewer data-loader workers, smaller prefetch."
                            : "Use less host memory: fewer ranks or data-loader workers, smaller prefetch; see what "
                              "else runs there: ps aux --sort=-rss | head");
    });
  }

  /// "pcieport 0000:5d:02.0: AER: Corrected error received: ...", "PCIe Bus Error: severity=Uncorrected (Fatal), type=..."
  bool pcie(std::string_view text) {
    if (!has(text, "PCIe Bus Error: severity=") && !has(text, "AER: ")) return false;
    const bool corrected = has(text, "Corrected") && !has(text, "Uncorrected");
    const bool uncorrected = has(text, "Uncorrect") || has(text, "Fatal") || has(text, "Non-Fatal");
    if (!corrected && !uncorrected) return false;
    std::string device = "a device";
    for (const std::string_view word : words(text, 16)) {
      if (std::count(word.begin(), word.end(), ':') >= 2 && word.find('.') != std::string_view::npos &&
          word.size() <= 16 && word.find_first_not_of("0123456789abcdef:.") == std::string_view::npos) {
        device = std::string(word.ends_with(':') ? word.substr(0, word.size() - 1) : word);
        break;
      }
    }
    return add(str("pcie ", corrected, device), [&] {
      return finding(
          corrected ? "pcie.corrected" : "pcie.uncorrected", corrected ? Severity::kWarning : Severity::kError,
          corrected ? 0.6 : 0.9, str("PCIe errors at ", device, corrected ? " (corrected)" : " (not corrected)"),
          corrected ? "The link repeats packets and is slower; many of them: reseat the card or riser. See: lspci -vvv "
                      "-s DEVICE | grep -E 'LnkSta|CESta'"
                    : "Data was lost and the device may be gone: reboot; reseat or replace the card or riser.");
    });
  }

  bool stuck(std::string_view text) {
    if (const auto task = between(text, "INFO: task ", " blocked for more than")) {
      const std::string_view program = until(*task, ":");
      if (program.size() > 64) return false;
      return add(str("hung ", program), [&] {
        return finding("process.hung_in_kernel", Severity::kWarning, 0.8,
                       str(program, " waits inside the kernel for minutes (D state)"),
                       "It waits for a device or file system, mostly NFS, Lustre or a dead GPU, and cannot be killed "
                       "until that answers. See what: cat /proc/PID/stack");
      });
    }
    if (has(text, "soft lockup") || has(text, "hard LOCKUP")) {
      return add("lockup", [&] {
        return finding(
            "cpu.lockup", Severity::kError, 0.8, "a CPU was stuck inside the kernel",
            "Driver or hardware fault; see the stack that follows in the log, update kernel and drivers, reboot.");
      });
    }
    if (has(text, "nfs: server ") && has(text, " not responding")) {
      return add("nfs", [&] {
        return finding("nfs.not_responding", Severity::kWarning, 0.9,
                       str("the file server ", until(*after(text, "nfs: server "), " "), " does not answer"),
                       "Ranks that read data or write checkpoints there stand still. Check server and network; keep "
                       "hot files on local disks.");
      });
    }
    return false;
  }

  bool machine(std::string_view text) {
    if (has(text, "[Hardware Error]") || has(text, "mce: ")) {
      return add("mce", [&] {
        return finding("cpu.hardware_error", Severity::kError, 0.8, "the CPU or memory reports a hardware error",
                       "Take the host out and test it: rasdaemon (ras-mc-ctl --errors), the vendor's diagnostics.");
      });
    }
    if (has(text, "EDAC MC") && (has(text, " UE ") || has(text, " CE "))) {
      const bool bad = has(text, " UE ");
      return add(str("edac ", bad), [&] {
        return finding(
            bad ? "memory.uncorrected" : "memory.corrected", bad ? Severity::kError : Severity::kWarning, 0.8,
            bad ? "host memory had an error that ECC cannot correct" : "host memory has errors that ECC corrects",
            "Find the module: ras-mc-ctl --errors; replace it.");
      });
    }
    if (has(text, "amdgpu") && (has(text, "GPU reset") || has(text, "ring ") || has(text, "hardware error")) &&
        (has(text, "timeout") || has(text, "reset") || has(text, "uncorrectable"))) {
      return add("amdgpu", [&] {
        return finding("gpu.amd_reset", Severity::kError, 0.8, "an AMD GPU hung or was reset",
                       "Programs on it die. See: rocm-smi --showrasinfo all; reboot if it stays.");
      });
    }
    return false;
  }

  /// Lines of network cards: cables, firmware.
  bool fabric(std::string_view text) {
    if (!has(text, "mlx5_core")) return false;
    if (has(text, "health compromised") || has(text, "Health issue") || has(text, "FW fatal")) {
      return add("mlx5 health", [&] {
        return finding("nic.firmware", Severity::kError, 0.9, "a network card's firmware has failed",
                       "Reset or reboot; update its firmware (mlxfwmanager).");
      });
    }
    if (has(text, "Cable unplugged") || has(text, "Link down") || has(text, "link down")) {
      return add("mlx5 link", [&] {
        return finding(
            "nic.link_down", Severity::kWarning, 0.7, "a network card lost its link",
            "See which: ibstat, ip -br link. Once at boot is normal; again and again is a cable or switch port.");
      });
    }
    if (has(text, "insufficient power")) {
      return add("mlx5 power", [&] {
        return finding("nic.power", Severity::kWarning, 0.8, "a network card gets too little power from its slot",
                       "Another slot, or the slot's power limit in the BIOS.");
      });
    }
    return false;
  }

  std::string file_;
  bool seen_ = false;
  const Line* line_ = nullptr;
  std::map<std::string, Group> groups_;
  std::vector<std::string> order_;
};

}  // namespace

std::unique_ptr<LineReader> make_kernel_log_reader() { return std::make_unique<KernelLogReader>(); }

}  // namespace trireme::diagnose
