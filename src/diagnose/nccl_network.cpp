#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/str.h"
#include "diagnose/nccl_log.h"
#include "diagnose/scan.h"

namespace trireme::diagnose {
namespace {

constexpr size_t kMostProcesses = 65'536;
constexpr size_t kMostHosts = 4096;
constexpr size_t kMostNames = 64;
constexpr size_t kLongestName = 256;

/// What one process said about its network.
struct Process {
  std::optional<int> rank;
  std::string transport;  ///< of the "NET/X : Using" line
  std::string network;    ///< of the "Using network X" line
  std::vector<std::string> devices;
  bool infiniband = false;
  bool roce = false;
};

/// What all processes of one host said together.
struct Host {
  std::set<std::string> transports;
  std::set<std::string> interfaces;   ///< that sockets use
  std::optional<Evidence> sockets;    ///< the line that says so
  std::optional<Evidence> no_device;  ///< "NET/IB : No device found."
  std::optional<Evidence> bootstrap;  ///< "Bootstrap : Using ibp12s0:..."
  std::string bootstrap_interface;
  std::optional<Evidence> mixed;  ///< InfiniBand and RoCE in one list
  std::string roce_devices;
  bool ib_found = false;
};

/// A name that the kernel gives to InfiniBand interfaces: ib0, ibp12s0, ibs108, ibP111p0s0.
bool is_ib_interface(std::string_view name) {
  return name.size() > 2 && name.starts_with("ib") &&
         (name[2] == 'p' || name[2] == 's' || name[2] == 'P' || std::isdigit(static_cast<unsigned char>(name[2])));
}

/// One that other hosts cannot reach.
bool is_local_interface(std::string_view name) {
  return name == "lo" || name.starts_with("docker") || name.starts_with("virbr") || name.starts_with("br-") ||
         name.starts_with("veth") || name.starts_with("cni") || name.starts_with("podman") || name.starts_with("lxcbr");
}

class NcclNetworkReader : public LineReader {
 public:
  [[nodiscard]] const char* kind() const override { return "NCCL log"; }
  [[nodiscard]] std::vector<std::string_view> keywords() const override { return {"NCCL ", "#  Rank"}; }
  void begin_file(const std::string& file) override {
    file_ = file;
    seen_ = false;
  }
  [[nodiscard]] bool end_file() override { return seen_; }

  void line(const Line& line) override {
    if (!has(line.text, "NCCL ")) {
      if (line.text.starts_with("#  Rank")) bench_line(line.text);
      return;
    }
    const auto parsed = parse_nccl_line(line.text);
    if (!parsed || (parsed->host.empty() && parsed->level != "version")) return;
    seen_ = true;
    const Evidence evidence{file_, line.number, std::string(line.text.substr(0, 400))};
    if (parsed->level == "version") {
      version(parsed->text, evidence);
    } else {
      told(*parsed, evidence);
    }
  }

  void finish(Report& report) override {
    facts(report);
    sockets(report);
    disagreement(report);
    mixed(report);
    one_rank(report);
    versions(report);
  }

 private:
  using Key = std::tuple<std::string, int64_t>;

  Process* process(const NcclLine& line) {
    const Key key{std::string(line.host), line.pid};
    const auto found = processes_.find(key);
    if (found != processes_.end()) return &found->second;
    if (processes_.size() >= kMostProcesses || line.host.size() > kLongestName) return nullptr;
    order_.push_back(key);
    return &processes_[key];
  }

  Host* host(std::string_view name) {
    const auto found = hosts_.find(name);
    if (found != hosts_.end()) return &found->second;
    if (hosts_.size() >= kMostHosts || name.size() > kLongestName) return nullptr;
    return &hosts_[std::string(name)];
  }

  void version(std::string_view text, const Evidence& evidence) {
    constexpr size_t kMostVersions = 16;
    const std::string found(until(text, " "));
    if (found.empty() || nccl_versions_.contains(found) || nccl_versions_.size() >= kMostVersions) return;
    if (nccl_versions_.empty()) first_version_ = found;
    nccl_versions_.emplace(found, evidence);
  }

  /// "#  Rank  0 Group  0 Pid  23654 on      node-01 device  0 [0000:07:00] NVIDIA A100-SXM4-80GB" of nccl-tests.
  void bench_line(std::string_view text) {
    const auto part = words(text, 12);
    if (part.size() < 9 || part[3] != "Group" || part[5] != "Pid" || part[7] != "on") return;
    const auto rank = leading_number<int>(part[2]);
    const auto pid = leading_number<int64_t>(part[6]);
    if (!rank || !pid) return;
    NcclLine line;
    line.host = part[8];
    line.pid = *pid;
    if (Process* one = process(line)) one->rank = rank;
  }

  void told(const NcclLine& line, const Evidence& evidence) {
    const std::string_view text = line.text;
    if (text.starts_with("NCCL version ")) return version(text.substr(13), evidence);
    if (text.starts_with("cudaDriverVersion ")) {
      const auto number = leading_number<int>(text.substr(18));
      if (number && *number > 0 && cuda_.empty()) cuda_ = str(*number / 1000, ".", *number % 1000 / 10);
      return;
    }
    Process* one = process(line);
    Host* where = host(line.host);
    if (one == nullptr || where == nullptr) return;
    if (line.prefix_rank && !one->rank) one->rank = line.prefix_rank;
    if (const auto rank = between(text, " rank ", " nranks ")) ranks_line(text, *rank, *one, evidence);
    if (text.starts_with("Using network ")) one->network = std::string(until(text.substr(14, kLongestName), " "));
    if (text.starts_with("NET/IB : No device found")) where->no_device = where->no_device.value_or(evidence);
    if (text.starts_with("Bootstrap : Using ")) {
      // "Using ib0:192.0.2.1<0>", before 2.12 "Using [0]ib0:192.0.2.1<0>".
      std::string_view name = text.substr(18);
      if (name.starts_with("[0]")) name.remove_prefix(3);
      where->bootstrap_interface = std::string(until(name.substr(0, kLongestName), ":"));
      where->bootstrap = where->bootstrap.value_or(evidence);
    }
    if (text.starts_with("NET/")) net_line(text, *one, *where, evidence);
  }

  void ranks_line(std::string_view text, std::string_view rank, Process& one, const Evidence& evidence) {
    if (has(rank, " ")) return;
    if (const auto number = leading_number<int>(rank)) one.rank = number;
    const auto size_text = after(text, " nranks ");
    const auto size = size_text ? leading_number<int>(*size_text) : std::nullopt;
    if (!size) return;
    if (*size == 1 && !one_rank_) one_rank_ = evidence;
    if (*size > 1) several_ranks_ = true;
  }

  /// "NET/IB : Using [0]mlx5_2:1/IB ...", "NET/Socket : Using [0]eth0:...", "NET/OFI Selected Provider is efa (found 4 nics)".
  static void net_line(std::string_view text, Process& one, Host& where, const Evidence& evidence) {
    if (const auto provider = after(text, "NET/OFI Selected Provider is ")) {
      one.transport = str("OFI/", until(provider->substr(0, kLongestName), " ,("));
      if (where.transports.size() < kMostNames) where.transports.insert(one.transport);
      return;
    }
    const std::string_view name = trimmed(until(text.substr(4), ":"));
    const auto list = after(text, ": Using [");
    if (!list || has(name, " ") || name.size() > kLongestName) return;
    const NcclDevices devices = parse_nccl_devices(str_view(text, *list));
    one.devices.assign(devices.devices.begin(), devices.devices.end());
    std::erase(one.devices, std::string{});  // of a line that is cut behind its number
    one.infiniband = devices.infiniband;
    one.roce = devices.roce;
    one.transport = !devices.infiniband && devices.roce ? "RoCE" : devices.roce ? "IB+RoCE" : std::string(name);
    if (where.transports.size() < kMostNames) where.transports.insert(one.transport);
    if (name == "Socket" || name == "FastSocket") {
      if (where.interfaces.size() < kMostNames) where.interfaces.insert(one.devices.begin(), one.devices.end());
      if (name == "Socket" && !where.sockets) where.sockets = evidence;
      return;
    }
    where.ib_found = true;
    if (devices.infiniband && devices.roce && !where.mixed) {
      where.mixed = evidence;
      for (const std::string_view device : devices.devices) {
        const auto rest = after(text, str("]", device, "/"));
        if (rest && rest->starts_with("RoCE"))
          where.roce_devices += str(where.roce_devices.empty() ? "" : ",", until(device, ":"));
      }
    }
  }

  /// The list with the "[" that the search took away.
  static std::string_view str_view(std::string_view text, std::string_view list) {
    return text.substr(static_cast<size_t>(list.data() - text.data()) - 1);
  }

  void facts(Report& report) {
    for (const Key& key : order_) {
      const Process& one = processes_[key];
      if (one.transport.empty() && one.network.empty()) continue;
      Network network;
      network.host = std::get<0>(key);
      network.rank = one.rank;
      network.devices = one.devices;
      network.transport = one.transport.empty() ? one.network : one.transport;
      if (!one.network.empty() && one.network != one.transport) network.plugin = one.network;
      // What was used in the end is the last word: a list of adapters may be printed and another network chosen.
      if (one.network == "Socket") {
        network.transport = "Socket";
        network.plugin.reset();
      }
      report.facts.network.push_back(std::move(network));
    }
    if (!first_version_.empty() && !report.facts.versions.nccl) report.facts.versions.nccl = first_version_;
    if (!cuda_.empty() && !report.facts.versions.cuda) report.facts.versions.cuda = cuda_;
  }

  void sockets(Report& report) const {
    for (const auto& [name, where] : hosts_) {
      const bool only_sockets = where.sockets && !where.ib_found;
      if (where.no_device && !only_sockets && !where.ib_found && is_ib_interface(where.bootstrap_interface))
        no_verbs(report, name, where);
      if (!only_sockets) continue;
      const bool on_ib = !where.interfaces.empty() && is_ib_interface(*where.interfaces.begin());
      if (on_ib && where.no_device) no_verbs(report, name, where);
      Finding finding;
      finding.code = "nccl.socket";
      finding.host = name;
      finding.severity = Severity::kWarning;
      finding.confidence = where.no_device ? 0.9 : 0.8;
      const std::string on = where.interfaces.empty() ? std::string{} : str(" (", join(where.interfaces), ")");
      finding.cause = str("NCCL talks over TCP sockets", on, ", not over InfiniBand or RoCE",
                          where.no_device ? ": it found no InfiniBand device" : "");
      finding.advice =
          "Slow if this host has InfiniBand or RoCE (370 ms against 50 ms for an all-reduce of 1 GB was reported). The "
          "line would then read "
          "'NET/IB : Using [0]mlx5_0:1/IB ...'. See 'ibstat' for ports that are Active; in a container give it the "
          "devices "
          "(docker run --device=/dev/infiniband --cap-add=IPC_LOCK --ulimit memlock=-1) and rdma-core; NCCL_IB_DISABLE "
          "must not be 1.";
      for (const std::string& interface : where.interfaces) {
        if (interface.starts_with("bond"))
          finding.advice += " TCP over a bond is known to be 4 to 5 times slower than RDMA over its members.";
        if (!is_local_interface(interface)) continue;
        finding.severity = Severity::kError;
        finding.code = "nccl.local_interface";
        finding.cause = str("NCCL talks over ", interface, ", which other hosts cannot reach");
        finding.advice =
            "Jobs on several hosts fail or hang so. Name the interface that joins the hosts: export "
            "NCCL_SOCKET_IFNAME=eth0 (see 'ip -br addr').";
      }
      add_evidence(finding, *where.sockets);
      if (where.no_device) add_evidence(finding, *where.no_device);
      report.findings.push_back(std::move(finding));
    }
  }

  static void no_verbs(Report& report, const std::string& name, const Host& where) {
    Finding finding;
    finding.code = "nccl.no_verbs_device";
    finding.host = name;
    finding.severity = Severity::kError;
    finding.confidence = 0.9;
    finding.cause = str("the InfiniBand interface ", where.bootstrap_interface,
                        " is there, but no InfiniBand (verbs) device is found");
    finding.advice =
        "The IP side of the card works and its RDMA side cannot be opened: /dev/infiniband is not in the container, or "
        "the driver's user part is "
        "missing. Run 'ls /dev/infiniband; ibv_devinfo' where the job runs; docker run --device=/dev/infiniband "
        "--cap-add=IPC_LOCK --ulimit "
        "memlock=-1; install rdma-core (libibverbs1, ibverbs-providers).";
    if (where.no_device) add_evidence(finding, *where.no_device);
    if (where.bootstrap) add_evidence(finding, *where.bootstrap);
    report.findings.push_back(std::move(finding));
  }

  void disagreement(Report& report) const {
    std::map<std::string, std::vector<std::string>> by_transport;
    for (const auto& [name, where] : hosts_) {
      if (where.transports.empty()) continue;
      // RoCE beside InfiniBand is the same verbs; only another way to talk matters.
      const std::string kind = where.ib_found ? "InfiniBand or RoCE" : *where.transports.begin();
      by_transport[kind].push_back(name);
    }
    if (by_transport.size() < 2) return;
    Finding finding;
    finding.code = "nccl.transports_differ";
    finding.severity = Severity::kError;
    finding.confidence = 0.8;
    std::string text;
    for (const auto& [kind, names] : by_transport) {
      constexpr size_t kShown = 8;
      const std::vector<std::string> shown(names.begin(),
                                           names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kShown)));
      text += str(text.empty() ? "" : "; ", kind, " on ", join(shown),
                  names.size() > kShown ? str(" and ", names.size() - kShown, " more") : "");
    }
    finding.cause = "the hosts disagree on the network: " + text;
    finding.advice =
        "If they belong to one job, it hangs or runs at the speed of the slowest. Compare 'trireme doctor' on a good "
        "and a bad host: ports "
        "(ibstat), /dev/infiniband, NCCL_IB_HCA, NCCL_SOCKET_IFNAME, the NCCL plugin.";
    for (const auto& [name, where] : hosts_) {
      if (where.sockets) add_evidence(finding, *where.sockets);
    }
    report.findings.push_back(std::move(finding));
  }

  void mixed(Report& report) const {
    for (const auto& [name, where] : hosts_) {
      if (!where.mixed) continue;
      Finding finding;
      finding.code = "nccl.ib_and_roce_mixed";
      finding.host = name;
      finding.severity = Severity::kWarning;
      const bool bond = has(where.roce_devices, "bond");
      finding.confidence = bond ? 0.8 : 0.7;
      finding.cause = str("NCCL uses InfiniBand and RoCE adapters together; RoCE: ", where.roce_devices,
                          bond ? " (a bond: the host's own network)" : "");
      finding.advice =
          str("A channel over the RoCE adapter is slow or cannot reach the others' InfiniBand. Leave it out: export "
              "NCCL_IB_HCA='^",
              where.roce_devices, "'");
      add_evidence(finding, *where.mixed);
      report.findings.push_back(std::move(finding));
    }
  }

  void one_rank(Report& report) const {
    if (!one_rank_ || several_ranks_) return;
    Finding finding;
    finding.code = "nccl.one_rank";
    finding.severity = Severity::kWarning;
    finding.confidence = 0.6;
    finding.cause = "the communicator has one rank (nranks 1): the processes did not find each other";
    finding.advice =
        "If more were meant, every process believes that it is alone: the rendezvous did not join. Check that "
        "WORLD_SIZE, RANK and MASTER_ADDR are "
        "the same job's on each host; torchrun needs --nnodes and one --rdzv-endpoint with --rdzv-backend=c10d.";
    add_evidence(finding, *one_rank_);
    report.findings.push_back(std::move(finding));
  }

  void versions(Report& report) const {
    if (nccl_versions_.size() < 2) return;
    Finding finding;
    finding.code = "nccl.versions_differ";
    finding.severity = Severity::kWarning;
    finding.confidence = 0.7;
    std::string text;
    for (const auto& [version, evidence] : nccl_versions_) {
      text += (text.empty() ? "" : ", ") + version;
      add_evidence(finding, evidence);
    }
    finding.cause = "unlike versions of NCCL: " + text;
    finding.advice =
        "Ranks of one job need the same NCCL; unlike ones fail at the first collective or hang. Compare "
        "LD_LIBRARY_PATH and the wheel on each host.";
    report.findings.push_back(std::move(finding));
  }

  std::string file_;
  bool seen_ = false;
  std::map<Key, Process> processes_;
  std::vector<Key> order_;
  std::map<std::string, Host, std::less<>> hosts_;
  std::map<std::string, Evidence> nccl_versions_;
  std::string first_version_;
  std::string cuda_;
  std::optional<Evidence> one_rank_;
  bool several_ranks_ = false;
};

}  // namespace

std::unique_ptr<LineReader> make_nccl_network_reader() { return std::make_unique<NcclNetworkReader>(); }

}  // namespace trireme::diagnose
