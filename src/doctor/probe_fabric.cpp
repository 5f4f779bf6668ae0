#include <unistd.h>

#include "base/str.h"
#include "diagnose/ib_ports.h"
#include "diagnose/scan.h"
#include "doctor/probes.h"
#include "doctor/tool.h"

namespace trireme::doctor {
namespace {

using diagnose::has;
using diagnose::PortDetail;

PortDetail read_port(const std::string& device_folder, const std::string& device, const std::string& number) {
  const std::string folder = device_folder + "/ports/" + number;
  PortDetail detail;
  detail.port.device = device;
  detail.port.port = diagnose::leading_number<int>(number).value_or(1);
  if (const auto type = read_text_file(device_folder + "/hca_type")) detail.port.type = *type;
  if (const auto state = read_text_file(folder + "/state")) detail.port.state = diagnose::port_state(*state);
  if (const auto state = read_text_file(folder + "/phys_state"))
    detail.physical_state = state->substr(std::min(state->size(), state->find(' ') + 1));
  if (const auto rate = read_text_file(folder + "/rate"))
    detail.port.rate_gbps = diagnose::leading_number<double>(*rate);
  if (const auto layer = read_text_file(folder + "/link_layer")) detail.port.link_layer = *layer;
  detail.lid = read_number_file(folder + "/lid");
  detail.sm_lid = read_number_file(folder + "/sm_lid");
  for (const char* counter : {"symbol_error", "link_error_recovery", "port_rcv_errors"}) {
    if (const auto count = read_number_file(folder + "/counters/" + counter))
      detail.errors = detail.errors.value_or(0) + *count;
  }
  detail.evidence = {folder, 0,
                     str("state ", detail.port.state.value_or("?"), ", physical state ", detail.physical_state)};
  return detail;
}

}  // namespace

void probe_ports(const Place& place, Report& report) {
  const std::string folder = place.sys + "/class/infiniband";
  std::vector<PortDetail> ports;
  for (const std::string& device : names_in(folder)) {
    for (const std::string& number : names_in(str(folder, "/", device, "/ports")))
      ports.push_back(read_port(str(folder, "/", device), device, number));
  }
  int cards = 0;
  constexpr int64_t kInfinibandController = 0x0207;
  for (const PciDevice& device : pci_devices(place)) cards += device.kind == kInfinibandController ? 1 : 0;
  if (ports.empty()) {
    if (cards == 0) {
      add_row(report, "IB and RoCE ports", Check::State::kOk,
              "no InfiniBand or RoCE adapter: other hosts are reached by TCP");
      return;
    }
    add_row(report, "IB and RoCE ports", Check::State::kWarning,
            str(cards, " InfiniBand adapters on the PCI bus, none in ", folder));
    add_finding(report, "ports.no_driver", Severity::kWarning, 0.8,
                str(cards, " InfiniBand adapters have no driver, or are hidden from this container"),
                "modprobe mlx5_ib ib_uverbs; in a container: docker run --device=/dev/infiniband --network=host.",
                folder);
    return;
  }
  bool files = false;
  for (const std::string& name : names_in(place.dev + "/infiniband")) files |= name.starts_with("uverbs");
  judge_ports(std::move(ports), report);
  if (!files) {
    add_finding(report, "ports.no_device_files", Severity::kError, 0.9,
                "the adapters are there, but not their device files (/dev/infiniband/uverbs*)",
                "Programs find no verbs device and fall back to TCP. In a container: docker run "
                "--device=/dev/infiniband --cap-add=IPC_LOCK --ulimit memlock=-1; "
                "else modprobe ib_uverbs.",
                place.dev + "/infiniband");
  }
  if (count_gpus(pci_devices(place), kNvidia) > 0) {
    const std::string modules = read_text_file(place.proc + "/modules").value_or("");
    if (!has(modules, "nvidia_peermem") && !has(modules, "nv_peer_mem")) {
      add_finding(report, "ports.no_peermem", Severity::kInfo, 0.5,
                  "GPUDirect RDMA: the module nvidia_peermem is not loaded",
                  "Open GPU kernel modules with a kernel from 5.12 on use DMA-BUF and do not need it; else: modprobe "
                  "nvidia_peermem.",
                  place.proc + "/modules");
    }
  }
}

void probe_isolation(const Place& place, Report& report) {
  const std::vector<PciDevice> devices = pci_devices(place);
  const int gpus = count_gpus(devices, kNvidia) + count_gpus(devices, kAmd) + count_gpus(devices, kIntel);
  if (gpus == 0) return;
  // The IOMMU is in the way when a GPU's own domain translates; "identity" is what iommu=pt gives.
  std::string translating;
  for (const PciDevice& device : devices) {
    if (count_gpus({device}, device.vendor) == 0) continue;
    const auto type = read_text_file(str(place.sys, "/bus/pci/devices/", device.address, "/iommu_group/type"));
    if (type && type->starts_with("DMA")) translating = device.address;
  }
  const bool guest = has(read_text_file(place.proc + "/cpuinfo").value_or(""), " hypervisor");
  // Bridges whose ACS sends peers' requests up to the CPU. lspci shows it to root only.
  std::string redirecting;
  int bridges = 0;
  const ToolOutput lspci = run_tool({"lspci", "-vvv"}, std::chrono::seconds(4));
  std::string device;
  diagnose::split_lines(lspci.out, [&](const diagnose::Line& line) {
    if (!line.text.empty() && line.text[0] != '\t' && line.text[0] != ' ')
      device = std::string(diagnose::until(line.text, " ").substr(0, 16));
    if (has(line.text, "ACSCtl:") && has(line.text, "ReqRedir+")) {
      ++bridges;
      redirecting = device;
    }
    return true;
  });
  const bool acs_known = lspci.ok() && (geteuid() == 0 || bridges > 0);
  std::string text =
      translating.empty() ? "the IOMMU does not translate for GPUs" : str("the IOMMU translates for GPU ", translating);
  text += acs_known ? bridges > 0 ? str("; ACS redirects at ", bridges, " bridges") : "; ACS is off"
                    : "; ACS not known (lspci -vvv as root tells)";
  if (guest) text += "; this is a virtual machine, whose host decides";
  const bool bad = gpus > 1 && !guest && (bridges > 0 || !translating.empty());
  add_row(report, "ACS and IOMMU", bad ? Check::State::kWarning : Check::State::kOk, text);
  if (!bad) return;
  if (bridges > 0) {
    add_finding(
        report, "acs.redirects", Severity::kWarning, 0.7,
        str("ACS sends traffic between GPUs up to the CPU, at ", bridges, " PCIe bridges such as ", redirecting),
        "Peer-to-peer is slow or hangs. Switch it off in the BIOS, or until the next boot at each bridge: setpci -s "
        "BRIDGE ECAP_ACS+0x6.w=0000",
        "lspci -vvv", redirecting);
  }
  if (!translating.empty()) {
    add_finding(report, "iommu.translates", Severity::kWarning, 0.6,
                "the IOMMU translates what GPUs read from each other",
                "Peer-to-peer is slow, gives wrong data or hangs on some chipsets. Boot with iommu=pt (or switch the "
                "IOMMU off in the BIOS).",
                str(place.sys, "/bus/pci/devices/", translating, "/iommu_group/type"));
  }
}

}  // namespace trireme::doctor
