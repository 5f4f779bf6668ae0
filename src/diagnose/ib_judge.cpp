#include <algorithm>
#include <cmath>
#include <map>

#include "base/str.h"
#include "diagnose/ib_ports.h"
#include "diagnose/scan.h"

namespace trireme::diagnose {
namespace {

std::string name_of(const PortDetail& detail) { return str(detail.port.device, "/", detail.port.port); }

std::string rate_text(double rate) { return rate == std::floor(rate) ? str(static_cast<int64_t>(rate)) : str(rate); }

bool is_ib(const PortDetail& detail) { return detail.port.link_layer == "InfiniBand"; }

/// "8 x 200 InfiniBand, 1 x 400 RoCE"
std::string usable_text(const std::vector<PortDetail>& ports) {
  std::map<std::string, int> kinds;
  for (const PortDetail& detail : ports) {
    if (detail.port.usable != true) continue;
    const std::string layer =
        detail.port.link_layer == "Ethernet" ? "RoCE" : detail.port.link_layer.value_or("of unknown kind");
    ++kinds[detail.port.rate_gbps ? str(rate_text(*detail.port.rate_gbps), " Gb/s ", layer)
                                  : str(layer, ", rate not told")];
  }
  std::string text;
  for (const auto& [kind, count] : kinds) text += str(text.empty() ? "" : ", ", count, " x ", kind);
  return text;
}

void unusable(const PortDetail& detail, bool any_usable, Report& report) {
  Finding finding;
  finding.host = detail.port.host;
  finding.severity = any_usable ? Severity::kWarning : Severity::kError;
  finding.confidence = any_usable ? 0.5 : 0.9;  // a port that nobody wired is down on purpose
  finding.code = "ports.down";
  finding.cause = str(name_of(detail), " is ", detail.port.state.value_or("in an unknown state"),
                      detail.physical_state.empty() ? "" : str(" (physical state ", detail.physical_state, ")"));
  if (detail.port.state == "Active") {
    finding.code = "ports.no_lid";
    finding.severity = Severity::kError;
    finding.confidence = 0.8;
    finding.cause = str(name_of(detail), " is Active on InfiniBand without a LID: no subnet manager has configured it");
    finding.advice = "Start a subnet manager (systemctl start opensm on one host, or on the switch) and see 'sminfo'.";
  } else if (detail.port.state == "Initializing" || detail.port.state == "Armed") {
    finding.code = "ports.no_subnet_manager";
    finding.severity = Severity::kError;
    finding.advice =
        "The cable works and no subnet manager configures the port: systemctl start opensm on one host, or switch it "
        "on in the switch; see 'sminfo'.";
  } else if (detail.physical_state == "Disabled") {
    finding.advice = detail.port.link_layer == "Ethernet"
                         ? "Switched off, or its interface is down: ip link set <interface> up (rdma link tells "
                           "which). The rate that is printed is a leftover."
                         : "Switched off: ibportstate -D 0 <port> enable. The rate that is printed is a leftover.";
  } else if (detail.physical_state == "Polling" || detail.physical_state == "Sleep") {
    finding.advice = "No partner on the other end: cable not plugged in, of the wrong kind, or the switch port is off.";
  } else {
    finding.advice = "NCCL leaves it out. Check cable and switch port; ip link set <interface> up for RoCE.";
  }
  add_evidence(finding, detail.evidence);
  report.findings.push_back(std::move(finding));
}

void slow(const PortDetail& detail, Report& report) {
  const std::optional<double> most = detail.port.type ? card_rate_gbps(*detail.port.type) : std::nullopt;
  if (!most || !detail.port.rate_gbps || *detail.port.rate_gbps >= 0.9 * *most || *detail.port.rate_gbps <= 0) return;
  Finding finding;
  finding.code = "ports.below_card_rate";
  finding.host = detail.port.host;
  finding.severity = Severity::kWarning;
  finding.confidence = 0.5;
  const double part = *detail.port.rate_gbps / *most;
  finding.cause = str(
      name_of(detail), " runs at ", rate_text(*detail.port.rate_gbps), " Gb/s, ",
      std::abs(part - 0.5) < 0.01 ? "half of the card's rate" : str(std::lround(part * 100), " % of the card's rate"),
      " (", *detail.port.type, ": ", rate_text(*most), " Gb/s)");
  finding.advice =
      "Right if the switch port or cable is of that speed (a split port such as NDR200). Else: reseat the cable, see "
      "the width and speed of both ends "
      "(mlxlink -d DEVICE; iblinkinfo).";
  add_evidence(finding, detail.evidence);
  report.findings.push_back(std::move(finding));
}

/// One port slower than its sisters is a fault even when the switch allows it.
void uneven(const std::vector<PortDetail>& ports, Report& report) {
  std::map<double, std::vector<const PortDetail*>> by_rate;
  for (const PortDetail& detail : ports) {
    if (detail.port.usable != true || !is_ib(detail)) continue;
    if (const std::optional<double> rate_gbps = detail.port.rate_gbps) by_rate[*rate_gbps].push_back(&detail);
  }
  if (by_rate.size() < 2) return;
  const auto& [rate, slower] = *by_rate.begin();
  Finding finding;
  finding.code = "ports.uneven_rates";
  finding.host = slower[0]->port.host;
  finding.severity = Severity::kWarning;
  finding.confidence = 0.7;
  std::string names;
  for (const PortDetail* detail : slower) names += (names.empty() ? "" : ", ") + name_of(*detail);
  finding.cause = str("ports run at unlike rates: ", names, " at ", rate_text(rate), " Gb/s, others at ",
                      rate_text(by_rate.rbegin()->first));
  finding.advice =
      "A ring over all of them runs at the slowest one's speed. Reseat its cable, or leave it out: export "
      "NCCL_IB_HCA='^DEVICE'.";
  for (const PortDetail* detail : slower) add_evidence(finding, detail->evidence);
  report.findings.push_back(std::move(finding));
}

}  // namespace

std::optional<double> card_rate_gbps(const std::string& type) {
  // By the PCI device that the "MT" number is; virtual functions carry numbers of their own and show their port's rate.
  static const std::map<std::string, double> kRates = {
      {"MT4099", 56},  {"MT4103", 56},  {"MT4113", 56},  {"MT4115", 100}, {"MT4119", 100},  {"MT4121", 100},
      {"MT4123", 200}, {"MT4124", 200}, {"MT4129", 400}, {"MT4131", 800}, {"MT41686", 200}, {"MT41692", 400}};
  const auto found = kRates.find(type);
  return found == kRates.end() ? std::nullopt : std::optional<double>(found->second);
}

std::string port_state(std::string_view text) {
  static const std::pair<const char*, const char*> kStates[] = {{"ACTIVE_DEFER", "Active (deferred)"},
                                                                {"ACTIVE", "Active"},
                                                                {"DOWN", "Down"},
                                                                {"INIT", "Initializing"},
                                                                {"ARMED", "Armed"}};
  std::string upper(text.substr(0, 64));
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  for (const auto& [word, state] : kStates) {
    if (has(upper, word)) return state;
  }
  return std::string(trimmed(text.substr(0, 32)));
}

void judge_ports(std::vector<PortDetail> ports, Report& report) {
  if (ports.empty()) return;
  int good = 0;
  for (PortDetail& detail : ports) {
    // LID 0 is normal on RoCE and a fault on InfiniBand.
    const bool lid_missing = is_ib(detail) && (detail.lid == 0 || detail.sm_lid == 0);
    detail.port.usable = detail.port.state == "Active" && !lid_missing;
    if (*detail.port.usable) ++good;
  }
  Check check;
  check.name = "IB and RoCE ports";
  check.host = ports[0].port.host;
  const auto total = static_cast<int>(ports.size());
  check.state = good == total ? Check::State::kOk : good == 0 ? Check::State::kError : Check::State::kWarning;
  check.text =
      str(good, " of ", total, total == 1 ? " port" : " ports", " usable", good > 0 ? ": " + usable_text(ports) : "");
  report.checks.push_back(std::move(check));
  for (const PortDetail& detail : ports) {
    if (detail.port.usable == true) {
      slow(detail, report);
    } else {
      unusable(detail, good > 0, report);
    }
    if (detail.errors && *detail.errors > 0 && detail.port.usable == true) {
      Finding finding;
      finding.code = "ports.errors";
      finding.host = detail.port.host;
      finding.severity = Severity::kWarning;
      finding.confidence = *detail.errors > 1000 ? 0.7 : 0.4;
      finding.cause = str(name_of(detail), " has counted ", grouped(*detail.errors),
                          " link errors since its counters were cleared");
      finding.advice =
          "If the number grows while a job runs, the cable or transceiver is bad. Clear and look again: perfquery -x "
          "-R; ibqueryerrors.";
      add_evidence(finding, detail.evidence);
      report.findings.push_back(std::move(finding));
    }
  }
  uneven(ports, report);
  for (PortDetail& detail : ports) report.facts.ports.push_back(std::move(detail.port));
}

}  // namespace trireme::diagnose
