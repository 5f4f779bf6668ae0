#include "diagnose/nvidia_smi.h"

#include <algorithm>
#include <map>

#include "base/str.h"
#include "diagnose/scan.h"

namespace trireme::diagnose {
namespace {

constexpr size_t kMostGpus = 1024;
constexpr size_t kMostFindings = 1024;

/// A sentence of the tool that stands for a fault.
struct Refusal {
  const char* text;
  const char* code;
  Severity severity;
  const char* cause;
  const char* advice;
};

constexpr const char* kAskRight =
    "This says nothing about the GPUs. The output of the right call is needed: nvidia-smi topo -m (links), nvidia-smi "
    "-q (details), nvidia-smi.";

constexpr Refusal kRefusals[] = {
    {"command line argument must be used in conjunction with", "nvidia_smi.flags", Severity::kWarning,
     "nvidia-smi refused its flags", kAskRight},
    {"Invalid combination of input arguments", "nvidia_smi.flags", Severity::kWarning, "nvidia-smi refused its flags",
     kAskRight},
    {"Failed to process command line", "nvidia_smi.flags", Severity::kWarning, "nvidia-smi refused its flags",
     kAskRight},
    {"is not recognized. Please run 'nvidia-smi", "nvidia_smi.flags", Severity::kWarning,
     "nvidia-smi refused its flags", kAskRight},
    {"couldn't communicate with the NVIDIA driver", "driver.not_loaded", Severity::kError,
     "the NVIDIA driver does not answer: its kernel module is not loaded",
     "modprobe nvidia; if that fails see dmesg: the module was not built for this kernel (dkms status; reinstall the "
     "driver) or secure boot refuses it."},
    {"Driver/library version mismatch", "driver.mismatch", Severity::kError,
     "the NVIDIA driver's kernel module and its libraries are of two versions",
     "The driver was updated under a running kernel: reboot, or stop all users and run rmmod nvidia_uvm nvidia_drm "
     "nvidia_modeset nvidia; modprobe nvidia."},
    {"Failed to initialize NVML: Unknown Error", "driver.no_access", Severity::kError,
     "NVML cannot be used: the GPU's device files are not accessible any more",
     "In a container this follows a 'systemctl daemon-reload' on the host, which takes the devices away: restart the "
     "container; for good: "
     "docker run with --device for /dev/nvidia*, or set no-cgroups=false with the systemd cgroup driver."},
    {"Failed to initialize NVML", "driver.nvml", Severity::kError, "NVML, the driver's library, cannot start",
     "See the rest of the line; run nvidia-smi as root; look into dmesg for NVRM lines."},
    {"No devices were found", "gpu.none", Severity::kError, "the driver is there and finds no GPU",
     "See lspci | grep -i nvidia and dmesg | grep NVRM. All GPUs may have failed to start, be bound to vfio-pci, or be "
     "hidden (NVIDIA_VISIBLE_DEVICES)."},
    {"Unable to determine the device handle", "gpu.lost", Severity::kError, "a GPU does not answer the driver",
     "It has fallen off the bus or failed (see dmesg for Xid 79 or 119). Reset it (nvidia-smi -r -i <GPU>) or reboot "
     "the host."},
    {"GPU is lost", "gpu.lost", Severity::kError, "a GPU is lost",
     "It has fallen off the bus (see dmesg for Xid 79): reboot the host."},
    {"nvidia-smi: command not found", "nvidia_smi.missing", Severity::kWarning, "nvidia-smi is not installed here",
     "Install the driver's tools (nvidia-utils), or run it outside of the container."},
};

struct GpuLinks {
  int up = 0;
  int down = 0;
  std::string speed;  ///< "25 GB/s" of the links that are up
  bool uneven = false;
  Evidence evidence;
};

class NvidiaSmiReader : public LineReader {
 public:
  [[nodiscard]] const char* kind() const override { return "nvidia-smi"; }
  [[nodiscard]] std::vector<std::string_view> keywords() const override {
    return {"NVIDIA-SMI",
            "Driver Version",
            "CUDA Version",
            "NVML",
            "GPU",
            "command line argument",
            "Invalid combination",
            "Failed to process command",
            "No devices were found",
            "Unable to determine",
            "nvidia-smi",
            " Link ",
            "\tLink ",
            "ERR!",
            "NVIDIA driver",
            "is not recognized"};
  }
  [[nodiscard]] bool wants_next() const override { return details_; }
  void begin_file(const std::string& file) override {
    file_ = file;
    seen_ = false;
    details_ = false;
    gpu_.clear();
    path_.clear();
  }
  [[nodiscard]] bool end_file() override { return seen_; }

  void line(const Line& line) override {
    line_ = &line;
    if (details_) detail(line.text);
    refusal(line.text);
    version(line.text);
    link(line.text);
    if (has(line.text, "ERR!") && line.text.starts_with('|')) broken_row();
  }

  void finish(Report& report) override {
    if (!driver_.empty() && !report.facts.versions.driver) report.facts.versions.driver = driver_;
    if (!cuda_.empty() && !report.facts.versions.cuda) report.facts.versions.cuda = cuda_;
    links(report);
    for (Finding& finding : findings_) report.findings.push_back(std::move(finding));
  }

 private:
  Finding* add(std::string code, Severity severity, double confidence, std::string cause, std::string advice) {
    seen_ = true;
    for (Finding& known : findings_) {
      if (known.code == code && known.cause == cause) {
        add_evidence(known, here());
        return nullptr;
      }
    }
    if (findings_.size() >= kMostFindings) return nullptr;
    Finding finding;
    finding.code = std::move(code);
    finding.severity = severity;
    finding.confidence = confidence;
    finding.cause = std::move(cause);
    finding.advice = std::move(advice);
    add_evidence(finding, here());
    findings_.push_back(std::move(finding));
    return &findings_.back();
  }

  [[nodiscard]] Evidence here() const { return {file_, line_->number, std::string(line_->text.substr(0, 400))}; }

  void refusal(std::string_view text) {
    for (const Refusal& one : kRefusals) {
      if (!has(text, one.text)) continue;
      std::string cause = one.cause;
      // "Unable to determine the device handle for GPU0000:9B:00.0: GPU is lost."
      if (const auto gpu = between(text, "device handle for GPU", ": "); gpu && gpu->size() < 32)
        cause = str("GPU ", trimmed(*gpu), " does not answer the driver");
      add(one.code, one.severity, 0.95, cause, one.advice);
      return;
    }
  }

  void version(std::string_view text) {
    const auto take = [&](std::string_view marker, std::string& into) {
      auto rest = after(text, marker);
      if (!rest) return;
      std::string_view value = trimmed(*rest);
      if (value.starts_with(':')) value = trimmed(value.substr(1));
      value = until(value, " |");
      if (!value.empty() && value.size() < 32 && value.front() >= '0' && value.front() <= '9' && into.empty())
        into = std::string(value);
    };
    const bool table = has(text, "NVIDIA-SMI ") && has(text, "Driver Version:");
    const bool query = text.starts_with("Driver Version ") || text.starts_with("CUDA Version ");
    if (!table && !query) {
      if (text.starts_with("Attached GPUs")) details_ = seen_ = true;
      return;
    }
    seen_ = true;
    details_ |= query;
    take("Driver Version", driver_);
    take("CUDA Version", cuda_);
    if (const auto tool = between(text, "NVIDIA-SMI ", " ");
        table && tool && !driver_.empty() && *tool != driver_ && tool->size() < 32) {
      add("driver.mismatch", Severity::kWarning, 0.7,
          str("nvidia-smi is of version ", *tool, ", the driver of ", driver_),
          "A container brings its own tools, or an update is half done. Use the host's: reinstall nvidia-utils of the "
          "driver's version.");
    }
  }

  // nvidia-smi nvlink --status: "GPU 0: NVIDIA A100 (UUID: GPU-...)", then "\t Link 0: 25 GB/s" or "\t Link 0: <inactive>".
  void link(std::string_view text) {
    if (text.starts_with("GPU ") && has(text, "(UUID: ")) {
      link_gpu_ = std::string(until(text, ":"));
      return;
    }
    const std::string_view plain = trimmed(text);
    if (!plain.starts_with("Link ") || link_gpu_.empty()) return;
    const auto rest = after(plain, ": ");
    if (!rest || links_.size() >= kMostGpus) return;
    seen_ = true;
    GpuLinks& gpu = links_[str(file_, "\n", link_gpu_)];
    if (gpu.evidence.file.empty()) gpu.evidence = here();
    if (has(*rest, "GB/s")) {
      const std::string speed(trimmed(*rest).substr(0, 32));
      gpu.uneven |= gpu.up > 0 && gpu.speed != speed;
      gpu.speed = speed;
      ++gpu.up;
    } else if (has(*rest, "inactive")) {
      if (gpu.down == 0) gpu.evidence = here();
      ++gpu.down;
    }
  }

  void links(Report& report) const {
    if (links_.empty()) return;
    int most = 0;
    for (const auto& [key, gpu] : links_) most = std::max(most, gpu.up);
    Check check;
    check.name = "NVLink";
    std::string bad;
    std::string speed;
    for (const auto& [key, gpu] : links_) {
      if (gpu.up == most && speed.empty()) speed = gpu.speed;
      // Cards without a bridge have all links inactive; that is no fault.
      if (gpu.up == most && (gpu.down == 0 || gpu.up > 0)) continue;
      bad = key.substr(key.find('\n') + 1);
      Finding finding;
      finding.code = "nvlink.down";
      finding.severity = Severity::kError;
      finding.confidence = 0.8;
      finding.cause = str(bad, " has ", gpu.up, " NVLinks up, other GPUs have ", most);
      finding.advice =
          "Reset the GPUs that are joined, together: nvidia-smi -r; see dmesg for Xid 74 and nvidia-smi nvlink -e; "
          "check the fabric manager (systemctl status nvidia-fabricmanager).";
      add_evidence(finding, gpu.evidence);
      report.findings.push_back(std::move(finding));
    }
    check.state = bad.empty() ? Check::State::kOk : Check::State::kError;
    check.text = most == 0 ? str(links_.size(), " GPUs, no link is active")
                           : str(links_.size(), links_.size() == 1 ? " GPU, " : " GPUs, ", most, " links x ", speed,
                                 bad.empty() ? " each" : "; fewer on " + bad);
    report.checks.push_back(std::move(check));
  }

  void broken_row() {
    add("gpu.unreadable", Severity::kError, 0.85, "nvidia-smi shows ERR! for a GPU: it answers only in part",
        "The GPU or its firmware has failed; see dmesg for Xid lines; reset it (nvidia-smi -r -i <GPU>) or reboot.");
  }

  /// "    PCIe Generation" and "        Current    : 4" of nvidia-smi -q: the path of headings by indentation.
  void detail(std::string_view text) {
    if (text.starts_with("GPU 0")) {
      gpu_ = std::string(until(trimmed(text), " \t").size() == 3 ? trimmed(text).substr(0, 32) : "");
      path_.clear();
      width_max_.clear();
      return;
    }
    if (gpu_.empty()) return;
    const size_t indent = text.find_first_not_of(' ');
    if (indent == std::string_view::npos || indent > 40) return;
    while (!path_.empty() && path_.back().first >= indent) path_.pop_back();
    const size_t colon = text.find(" : ");
    if (colon == std::string_view::npos) {
      constexpr size_t kDeepest = 8;
      if (path_.size() < kDeepest) path_.emplace_back(indent, std::string(trimmed(text).substr(0, 64)));
      return;
    }
    value(path_.empty() ? "" : path_.back().second, trimmed(text.substr(0, colon)), trimmed(text.substr(colon + 3)));
  }

  void value(std::string_view section, std::string_view key, std::string_view value) {
    if (section == "Link Width" && key == "Max") width_max_ = std::string(value.substr(0, 8));
    if (section == "Link Width" && key == "Current" && !width_max_.empty() && value != width_max_ && value != "N/A" &&
        width_max_ != "N/A") {
      add("gpu.pcie_width", Severity::kWarning, 0.8,
          str(gpu_, " uses ", value.substr(0, 8), " of its ", width_max_, " PCIe lanes"),
          "Copies to and from the host run at that fraction. Reseat card or riser; some slots have fewer lanes.");
    }
    if (section == "Remapped Rows" && key == "Pending" && value == "Yes") {
      add("gpu.row_remap_pending", Severity::kWarning, 0.9, str(gpu_, " has a bad memory row that waits for a reset"),
          "Reset it when its jobs have ended: nvidia-smi -r -i <GPU>.");
    }
    if (section == "Remapped Rows" && key == "Remapping Failure Occurred" && value == "Yes") {
      add("gpu.row_remap_failed", Severity::kError, 0.9, str(gpu_, " has run out of spare memory rows"),
          "The GPU must be replaced.");
    }
    if (value == "Active" &&
        (key == "HW Slowdown" || key == "HW Thermal Slowdown" || key == "HW Power Brake Slowdown")) {
      add("gpu.slowed", Severity::kWarning, 0.8, str(gpu_, " is slowed down by its hardware: ", key),
          "Too hot or too little power: fans, airflow, power supply. A slow GPU makes every rank wait. See nvidia-smi "
          "-q -d PERFORMANCE,TEMPERATURE,POWER.");
    }
    if (section == "Fabric" && key == "State" && (value == "In Progress" || value == "Not Started")) {
      add("gpu.fabric", Severity::kError, 0.85, str(gpu_, ": the NVSwitch fabric is not ready (", value, ")"),
          "CUDA fails with error 802. Start the fabric manager of the driver's version: systemctl start "
          "nvidia-fabricmanager; systemctl status nvidia-fabricmanager.");
    }
    if (section == "MIG Mode" && key == "Current" && value == "Enabled") {
      add("gpu.mig", Severity::kInfo, 0.9, str(gpu_, " is divided (MIG)"),
          "NCCL cannot use peer-to-peer between instances. For one whole GPU: nvidia-smi -mig 0.");
    }
    if (key == "Compute Mode" && (value == "Exclusive_Process" || value == "Prohibited")) {
      add("gpu.compute_mode", value == "Prohibited" ? Severity::kError : Severity::kInfo, 0.9,
          str(gpu_, ": compute mode ", value),
          "Only one process may use it (none, if Prohibited). For more: nvidia-smi -c DEFAULT.");
    }
    const bool uncorrectable = has(key, "Uncorrectable") || key == "Double Bit";
    if (uncorrectable && !has(key, "Aggregate")) {
      const bool volatile_count =
          std::any_of(path_.begin(), path_.end(), [](const auto& part) { return part.second == "Volatile"; });
      const auto count = whole_number(value);
      if (volatile_count && count && *count > 0) {
        add("gpu.ecc", Severity::kError, 0.85,
            str(gpu_, " had memory errors that ECC cannot correct since it was started (", key, ")"),
            "Reset it (nvidia-smi -r -i <GPU>) and test it (dcgmi diag -r 3); replace it if they come back.");
      }
    }
  }

  std::string file_;
  bool seen_ = false;
  bool details_ = false;  ///< inside nvidia-smi -q
  const Line* line_ = nullptr;
  std::string driver_;
  std::string cuda_;
  std::string link_gpu_;
  std::map<std::string, GpuLinks> links_;
  std::string gpu_;
  std::string width_max_;
  std::vector<std::pair<size_t, std::string>> path_;
  std::vector<Finding> findings_;
};

}  // namespace

std::unique_ptr<LineReader> make_nvidia_smi_reader() { return std::make_unique<NvidiaSmiReader>(); }

}  // namespace trireme::diagnose
