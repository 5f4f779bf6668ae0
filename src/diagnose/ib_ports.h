// InfiniBand and RoCE ports: from ibstat, ibv_devinfo (-v too), ibstatus, or /sys, and what is wrong with them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "diagnose/reader.h"

namespace trireme::diagnose {

struct PortDetail {
  Port port;
  std::string physical_state;  ///< "LinkUp", "Disabled", "Polling"; empty: not told
  std::optional<int64_t> lid;
  std::optional<int64_t> sm_lid;
  std::optional<int64_t> errors;  ///< symbol errors and lost links since the counters were cleared
  Evidence evidence;
};

/// The rate in Gb/s that a card of this type ("MT4129") reaches at most per port; nullopt: not known.
[[nodiscard]] std::optional<double> card_rate_gbps(const std::string& type);

/// "4: ACTIVE", "PORT_ACTIVE (4)", "Active" -> "Active".
[[nodiscard]] std::string port_state(std::string_view text);

/// Sets `usable` of each, adds them to the facts, a row of the table and findings. No ports: nothing.
void judge_ports(std::vector<PortDetail> ports, Report& report);

[[nodiscard]] std::unique_ptr<LineReader> make_ib_ports_reader();

}  // namespace trireme::diagnose
