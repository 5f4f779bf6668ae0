#include "base/str.h"
#include "diagnose/ib_ports.h"
#include "diagnose/scan.h"

namespace trireme::diagnose {
namespace {

constexpr size_t kMostPorts = 4096;
constexpr int64_t kLongestDevice = 400;  // lines of ibv_devinfo -v

class IbPortsReader : public LineReader {
 public:
  [[nodiscard]] const char* kind() const override { return "InfiniBand ports"; }
  [[nodiscard]] std::vector<std::string_view> keywords() const override {
    return {"CA '", "hca_id:", "nfiniband device '", "ibpanic", "IB device"};
  }
  [[nodiscard]] bool wants_next() const override { return !device_.empty(); }
  void begin_file(const std::string& file) override {
    file_ = file;
    seen_ = false;
    device_.clear();
    port_ = nullptr;
  }
  [[nodiscard]] bool end_file() override { return seen_; }

  void line(const Line& line) override {
    if (start(line)) return;
    if (device_.empty()) return;
    if (line.number - device_line_ > kLongestDevice) {
      device_.clear();
      port_ = nullptr;
      return;
    }
    pair(line);
  }

  void finish(Report& report) override {
    judge_ports(std::move(ports_), report);
    for (Finding& finding : findings_) report.findings.push_back(std::move(finding));
  }

 private:
  bool start(const Line& line) {
    const std::string_view text = trimmed(line.text);
    if (const auto name = between(text, "CA '", "'"); name && text.starts_with("CA '")) return device(*name, line);
    if (const auto name = after(text, "hca_id:"); name && text.starts_with("hca_id:"))
      return device(trimmed(*name), line);
    if (const auto name = between(text, "nfiniband device '", "'")) {
      if (!device(*name, line)) return false;
      if (const auto number = after(text, "' port ")) port(leading_number<int>(*number).value_or(1), line);
      return true;
    }
    if (text.starts_with("ibpanic:") || has(text, "No IB devices found") ||
        has(text, "Failed to get IB devices list")) {
      tool_failed(text, line);
      return true;
    }
    return false;
  }

  bool device(std::string_view name, const Line& line) {
    if (name.empty() || name.size() > 64) return false;
    device_ = std::string(name);
    device_line_ = line.number;
    type_.reset();
    port_ = nullptr;
    seen_ = true;
    return true;
  }

  void port(int number, const Line& line) {
    port_ = nullptr;
    if (ports_.size() >= kMostPorts) return;
    PortDetail detail;
    detail.port.device = device_;
    detail.port.port = number;
    detail.port.type = type_;
    detail.evidence = {file_, line.number, str(device_, " port ", number)};
    ports_.push_back(std::move(detail));
    port_ = &ports_.back();
    width_ = speed_ = 0;
  }

  /// "key: value", in any of the three tools' spelling.
  void pair(const Line& line) {
    const std::string_view text = trimmed(line.text);
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos || text.size() > 400) return;
    const std::string_view key = trimmed(text.substr(0, colon));
    const std::string_view value = trimmed(text.substr(colon + 1));
    if (key == "CA type" && value.size() <= 32) type_ = std::string(value);
    if (key == "vendor_part_id") {
      if (const auto number = whole_number(value)) type_ = str("MT", *number);
    }
    if (key == "port") return port(leading_number<int>(value).value_or(1), line);
    if (key.starts_with("Port ") && value.empty()) return port(leading_number<int>(key.substr(5)).value_or(1), line);
    if (port_ == nullptr) return;
    port_pair(key, value);
  }

  void port_pair(std::string_view key, std::string_view value) {
    PortDetail& detail = *port_;
    if (key == "State" || key == "state") {
      detail.port.state = port_state(value);
      detail.evidence.text += str(", State: ", value.substr(0, 40));
    } else if (key == "Physical state" || key == "phys state" || key == "phys_state") {
      std::string_view word = value;
      if (const size_t colon = word.find(": "); colon != std::string_view::npos)
        word.remove_prefix(colon + 2);  // "5: LinkUp"
      detail.physical_state = std::string(until(word, " ").substr(0, 32));
      if (detail.physical_state == "DISABLED") detail.physical_state = "Disabled";
      if (detail.physical_state == "POLLING") detail.physical_state = "Polling";
      detail.evidence.text += str(", Physical state: ", detail.physical_state);
    } else if (key == "Rate" || key == "rate") {
      if (const auto rate = leading_number<double>(value); rate && *rate >= 0 && *rate < 1e6) {
        detail.port.rate_gbps = rate;
        detail.evidence.text += str(", Rate: ", value.substr(0, 40));
      }
    } else if (key == "Base lid" || key == "base lid" || key == "port_lid") {
      detail.lid = number(value);
    } else if (key == "SM lid" || key == "sm lid" || key == "sm_lid") {
      detail.sm_lid = number(value);
    } else if (key == "Link layer" || key == "link_layer") {
      detail.port.link_layer = std::string(value.substr(0, 32));
    } else if (key == "active_width") {
      width_ = leading_number<double>(value).value_or(0);
    } else if (key == "active_speed") {
      speed_ = leading_number<double>(value).value_or(0);
    }
    if (width_ > 0 && speed_ > 0 && width_ <= 16 && speed_ < 1e5) detail.port.rate_gbps = width_ * speed_;
  }

  static std::optional<int64_t> number(std::string_view value) {
    if (!value.starts_with("0x")) return leading_number<int64_t>(value);
    int64_t read = 0;
    const auto [end, error] = std::from_chars(value.data() + 2, value.data() + value.size(), read, 16);
    return error == std::errc{} ? std::optional<int64_t>(read) : std::nullopt;
  }

  void tool_failed(std::string_view text, const Line& line) {
    constexpr size_t kMost = 64;
    seen_ = true;
    if (findings_.size() >= kMost) return;
    Finding finding;
    const auto device = between(text, "IB device '", "'");
    finding.severity = Severity::kWarning;
    if (device && device->size() <= 64) {
      finding.code = "ports.device_unreadable";
      finding.confidence = 0.8;
      finding.cause =
          str("the tool stopped at ", *device, ", which it cannot read; the ports before it are as it says");
      finding.advice =
          str("A device that is half there: a virtual function without driver, or one that is hidden from the "
              "container. See ls -l "
              "/sys/class/infiniband/",
              *device, "; leave it out with export NCCL_IB_HCA='^", *device, "'.");
    } else if (text.starts_with("ibpanic:")) {
      finding.code = "ports.tool_failed";
      finding.confidence = 0.7;
      finding.cause = "the tool ended with a panic; the ports before it are as it says";
      finding.advice = "Run it again as root; see dmesg for the card's driver.";
    } else {
      finding.code = "ports.none";
      finding.confidence = 0.9;
      finding.cause = "no InfiniBand or RoCE device is visible to this program";
      finding.advice =
          "If the host has one: the kernel module (modprobe mlx5_ib ib_uverbs), rdma-core, or in a container docker "
          "run --device=/dev/infiniband.";
    }
    add_evidence(finding, {file_, line.number, std::string(text)});
    findings_.push_back(std::move(finding));
  }

  std::string file_;
  bool seen_ = false;
  std::string device_;
  int64_t device_line_ = 0;
  std::optional<std::string> type_;
  PortDetail* port_ = nullptr;  ///< the last one of ports_, while its lines come
  double width_ = 0;
  double speed_ = 0;
  std::vector<PortDetail> ports_;
  std::vector<Finding> findings_;
};

}  // namespace

std::unique_ptr<LineReader> make_ib_ports_reader() { return std::make_unique<IbPortsReader>(); }

}  // namespace trireme::diagnose
