// Which network interface NCCL and Gloo would take: their rules, as functions of what is there.
#pragma once

#include <string>
#include <vector>

namespace trireme::doctor {

struct Interface {
  std::string name;
  std::vector<std::string> addresses;  ///< IPv4 and IPv6, as text
  bool up = false;                     ///< up, with a carrier
  bool loopback = false;
  int64_t speed_mbit = 0;  ///< 0: not known
};

/// Those of this host, in the kernel's order.
[[nodiscard]] std::vector<Interface> list_interfaces(const std::string& sys);

/// The interfaces that NCCL's sockets use, in order; `only` is NCCL_SOCKET_IFNAME ("eth,ib", "^docker", "=eth0"; empty: not set). Without it: those that
/// begin with "ib"; else all but docker*, lo and virbr*; else docker*; else lo.
[[nodiscard]] std::vector<std::string> nccl_interfaces(const std::vector<Interface>& all, const std::string& only);

/// The interface that has one of the addresses of the host's own name, which is what Gloo binds to; "lo" when none has. `only` is
/// GLOO_SOCKET_IFNAME.
[[nodiscard]] std::string gloo_interface(const std::vector<Interface>& all,
                                         const std::vector<std::string>& own_addresses, const std::string& only);

/// Reachable from this host only: lo, docker0, virbr0, br-*, veth*.
[[nodiscard]] bool is_host_local(const std::string& name);

/// Addresses of a name, as text; `error` says why there are none.
[[nodiscard]] std::vector<std::string> resolve(const std::string& name, std::string* error);
[[nodiscard]] bool is_loopback_address(const std::string& address);
[[nodiscard]] std::string own_host_name();

}  // namespace trireme::doctor
