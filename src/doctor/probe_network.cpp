#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/timex.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/env.h"
#include "base/fd.h"
#include "base/str.h"
#include "doctor/interfaces.h"
#include "doctor/probes.h"

namespace trireme::doctor {
namespace {

std::string env(const char* value) { return value == nullptr ? "" : value; }

std::string speed_text(const std::vector<Interface>& all, const std::string& name) {
  for (const Interface& one : all) {
    if (one.name == name && one.speed_mbit > 0) return str(" (", static_cast<double>(one.speed_mbit) / 1000, " Gb/s)");
  }
  return {};
}

}  // namespace

void probe_interfaces(const Place& place, Report& report) {
  const std::vector<Interface> all = list_interfaces(place.sys);
  const std::string nccl_only = env(env_value("NCCL_SOCKET_IFNAME"));
  const std::string gloo_only = env(env_value("GLOO_SOCKET_IFNAME"));
  const std::vector<std::string> nccl = nccl_interfaces(all, nccl_only);
  const std::string gloo = gloo_interface(all, resolve(own_host_name(), nullptr), gloo_only);
  std::string up;
  std::string candidate;  // what could be named instead
  for (const Interface& one : all) {
    if (!one.up || one.addresses.empty()) continue;
    up += str(up.empty() ? "" : ", ", one.name, " ", one.addresses[0]);
    if (candidate.empty() && !is_host_local(one.name)) candidate = one.name;
  }
  const bool nccl_bad = !nccl.empty() && is_host_local(nccl[0]);
  const bool gloo_bad = is_host_local(gloo);
  // A host without any other interface is a host alone; that is no fault.
  const bool alone = candidate.empty();
  const bool bad = (nccl.empty() && !nccl_only.empty()) || (!alone && (nccl_bad || gloo_bad));
  add_row(report, "interfaces", bad ? Check::State::kWarning : Check::State::kOk,
          str(up.empty() ? "none is up" : up, "; NCCL would take ", nccl.empty() ? "none" : join(nccl),
              nccl.empty() ? "" : speed_text(all, nccl[0]), ", Gloo ", gloo, alone ? ": jobs on this host only" : ""));
  if (nccl.empty() && !nccl_only.empty()) {
    add_finding(report, "network.no_such_interface", Severity::kError, 0.95,
                str("NCCL_SOCKET_IFNAME=", nccl_only, " matches no interface that is up"),
                str("NCCL fails with 'no socket interface found'. Choose one of: ", up));
  }
  if (alone) return;
  if (nccl_bad) {
    add_finding(report, "network.local_interface", Severity::kWarning, 0.8,
                str("NCCL would take ", nccl[0], ", which other hosts cannot reach"),
                str("export NCCL_SOCKET_IFNAME=", candidate));
  }
  if (gloo_bad) {
    add_finding(
        report, "network.gloo_local", Severity::kWarning, 0.6,
        str("Gloo would take ", gloo, ", which other hosts cannot reach, because the host's name resolves to it"),
        str("Matters for jobs on several hosts: export GLOO_SOCKET_IFNAME=", candidate,
            ", or give the name its real address in /etc/hosts."));
  }
}

void probe_names(Report& report) {
  const std::string name = own_host_name();
  std::string error;
  const std::vector<std::string> addresses = resolve(name, &error);
  if (addresses.empty()) {
    add_row(report, "host name", Check::State::kWarning, str(name, " does not resolve: ", error));
    add_finding(
        report, "names.unresolved", Severity::kWarning, 0.7,
        str("this host's own name, ", name, ", does not resolve (", error, ")"),
        str("Programs that look it up fail or wait for the time-out of the name server. Add to /etc/hosts: <address> ",
            name));
    return;
  }
  const bool loopback = std::all_of(addresses.begin(), addresses.end(), is_loopback_address);
  add_row(report, "host name", loopback ? Check::State::kWarning : Check::State::kOk,
          str(name, " is ", join(addresses)));
  if (!loopback) return;
  add_finding(report, "names.loopback", Severity::kWarning, 0.6,
              str("this host's own name, ", name, ", resolves to ", join(addresses), " only"),
              str("With MASTER_ADDR=", name,
                  " other hosts would connect to themselves. Give it its real address in /etc/hosts (Debian writes "
                  "127.0.1.1 there), or use the address."),
              "/etc/hosts");
}

void probe_tcp_ports(Report& report) {
  constexpr uint16_t kTorchrunPort = 29500;
  const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kTorchrunPort);
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  const int yes = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  const bool used =
      fd && bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 && errno == EADDRINUSE;
  const std::string range = read_text_file("/proc/sys/net/ipv4/ip_local_port_range").value_or("");
  add_row(report, "TCP ports", Check::State::kOk,
          str("29500 (torchrun's default) is ", used ? "in use" : "free",
              range.empty() ? ""
                            : "; clients take " + range.substr(0, range.find('\t')) + " to " +
                                  range.substr(range.find('\t') + 1)));
  if (used) {
    add_finding(report, "port.in_use", Severity::kInfo, 0.6,
                "port 29500, torchrun's default, is in use: another job, or what an old one left",
                "'trireme run' needs no fixed port. Else: --master-port=0, or see who has it: ss -ltnp sport = :29500");
  }
}

void probe_clock(Report& report) {
  timex state{};
  const int code = adjtimex(&state);
  if (code < 0) return add_row(report, "clock", Check::State::kUnknown, std::strerror(errno));
  const bool synchronised = (state.status & STA_UNSYNC) == 0;
  add_row(report, "clock", Check::State::kOk,
          synchronised ? str("set by NTP, at most ", state.maxerror / 1000, " ms off")
                       : "not set by NTP as far as the kernel knows; --hostfile compares hosts");
}

}  // namespace trireme::doctor
