#include <algorithm>
#include <map>

#include "base/str.h"
#include "diagnose/scan.h"
#include "diagnose/topology.h"

namespace trireme::diagnose {
namespace {

constexpr size_t kMostDevices = 512;
constexpr size_t kMostTables = 1024;
constexpr size_t kMostCells = 1'000'000;  // of all tables together: 32 MB
constexpr int64_t kLongestTable = 2000;   // lines, legends included

bool digits_after(std::string_view word, std::string_view front) {
  return word.starts_with(front) && all_digits(word.substr(front.size()));
}

bool is_bus_id(std::string_view word) {  // 0000:0c:00.0
  return word.size() >= 10 && std::count(word.begin(), word.end(), ':') == 2 &&
         word.find('.') != std::string_view::npos &&
         word.find_first_not_of("0123456789abcdefABCDEF:.") == std::string_view::npos;
}

bool is_gpu(std::string_view word) { return digits_after(word, "GPU") || word.starts_with("GPU ") || is_bus_id(word); }

/// NIC0, mlx5_0, mlx5_bond_0, bnxt_re0, rocep12s0, hfi1_0, efa_0: lower case, with a digit at its end.
bool is_nic(std::string_view word) {
  if (digits_after(word, "NIC")) return true;
  return word.size() >= 3 && word.size() < 32 && word[0] >= 'a' && word[0] <= 'z' && word.back() >= '0' &&
         word.back() <= '9' &&
         word.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

/// Words, with "GPU 0/1" of xpu-smi as one and the bars of tables taken for blanks.
std::vector<std::string> cells_of(std::string_view line) {
  std::string plain(line.substr(0, 16'384));
  std::replace(plain.begin(), plain.end(), '|', ' ');
  std::vector<std::string> cells;
  for (const std::string_view word : words(plain, kMostDevices + 16)) {
    if (!cells.empty() && cells.back() == "GPU" && has(word, "/")) {
      cells.back() = str("GPU ", word);
    } else {
      cells.emplace_back(word);
    }
  }
  // "node1: GPU0 NV12 ...": what pdsh puts in front.
  if (cells.size() > 1 && cells[0].ends_with(':') && (is_gpu(cells[1]) || digits_after(cells[1], "NIC")))
    cells.erase(cells.begin());
  return cells;
}

}  // namespace

Link parse_link(std::string_view word) {
  static const std::map<std::string_view, LinkKind> kWords = {
      {"X", LinkKind::kSelf},     {"S", LinkKind::kSelf},     {"SELF", LinkKind::kSelf},  {"PIX", LinkKind::kPix},
      {"PSB", LinkKind::kPix},    {"PXB", LinkKind::kPxb},    {"PHB", LinkKind::kPhb},    {"NODE", LinkKind::kNode},
      {"SYS", LinkKind::kSys},    {"SOC", LinkKind::kSys},    {"PCIE", LinkKind::kPcie},  {"XGMI", LinkKind::kFabric},
      {"MDF", LinkKind::kFabric}, {"XL*", LinkKind::kFabric}, {"C2C", LinkKind::kFabric}, {"OK", LinkKind::kP2pOk},
      {"CNS", LinkKind::kP2pNot}, {"GNS", LinkKind::kP2pNot}, {"TNS", LinkKind::kP2pNot}, {"NS", LinkKind::kP2pNot},
      {"U", LinkKind::kP2pNot},   {"DR", LinkKind::kP2pNot},
  };
  const auto found = kWords.find(word);
  if (found != kWords.end()) return {found->second, 0};
  for (const std::string_view front : {"NV", "XL"}) {
    if (!digits_after(word, front) || word.size() > front.size() + 3) continue;
    const int lanes = leading_number<int>(word.substr(front.size())).value_or(0);
    if (lanes > 0) return {LinkKind::kFabric, lanes};
  }
  return {};
}

int distance(LinkKind kind) noexcept {
  switch (kind) {
    case LinkKind::kSelf:
      return -1;
    case LinkKind::kFabric:
    case LinkKind::kP2pOk:
      return 0;
    case LinkKind::kPix:
      return 1;
    case LinkKind::kPxb:
      return 2;
    case LinkKind::kPhb:
      return 3;
    case LinkKind::kPcie:
    case LinkKind::kNode:
      return 4;
    case LinkKind::kSys:
      return 5;
    case LinkKind::kP2pNot:
      return 6;
    case LinkKind::kUnknown:
      return 7;
  }
  return 7;
}

namespace {

/// Purpose  One table while its lines come in.
struct Table {
  std::vector<std::string> columns;  ///< devices
  bool numa_column = false;
  bool cpu_column = false;
  std::map<std::string, std::vector<std::string>> rows;   ///< links of a device, as many as there were
  std::map<std::string, std::vector<std::string>> tails;  ///< what stood behind them
  std::map<std::string, std::string> nic_devices;
  bool legend = false;         ///< "SYS  = ..." has been seen
  bool legend_nvlink = false;  ///< "NV#  = ..."
  int64_t line = 0;
  std::string head;
};

class TopologyReader : public LineReader {
 public:
  [[nodiscard]] const char* kind() const override { return "GPU topology"; }
  [[nodiscard]] std::vector<std::string_view> keywords() const override { return {"GPU", "Numa Nodes", " TABLE:"}; }
  [[nodiscard]] bool wants_next() const override { return table_.has_value() || !section_.empty(); }
  void begin_file(const std::string& file) override {
    file_ = file;
    found_ = false;
    table_.reset();
    section_.clear();
    amd_.clear();
  }

  void line(const Line& line) override {
    const std::string_view text = line.text;
    if (section_line(text)) return;
    if (table_ && legend_line(*table_, text)) return;
    if (table_ && line.number - table_->line > kLongestTable) close();
    // Lines of tables begin with a device; of a log of a gigabyte nearly none do.
    const std::string_view start = text.substr(0, 64);
    if (!has(start, "GPU") && !(table_ && !trimmed(start).empty()) && !is_bus_id(trimmed(until(trimmed(start), " \t"))))
      return;
    const std::vector<std::string> cells = cells_of(text);
    if (cells.empty()) return;
    if (row(cells, text)) return;
    if (table_ && !table_->rows.empty() && !is_gpu(cells[0])) return;
    header(cells, line);
    if (!section_.empty()) numa_line(text);
  }

  [[nodiscard]] bool end_file() override {
    close();
    close_amd();
    return found_;
  }

  void finish(Report& report) override {
    for (Topology& topology : done_) {
      judge_topology(topology, report);
      report.facts.add_topology(std::move(topology));
    }
    for (Finding& finding : findings_) report.findings.push_back(std::move(finding));
  }

 private:
  /// "===== Link Type between two GPUs =====" of rocm-smi, "LINK TYPE TABLE:" of amd-smi.
  bool section_line(std::string_view text) {
    const auto enter = [&](const char* name) {
      close();
      section_ = name;
      return true;
    };
    if (has(text, "between two GPUs")) {
      if (has(text, "Link Type")) return enter("type");
      if (has(text, "Weight")) return enter("weight");
      if (has(text, "Hops")) return enter("hops");
      return enter("other");
    }
    if (text.starts_with("===") && has(text, " Numa Nodes ")) return enter("numa");
    if (has(text, "End of ROCm SMI Log")) {
      close();
      close_amd();
      section_.clear();
      return true;
    }
    if (text.size() < 64 && trimmed(text).ends_with(" TABLE:")) return enter(has(text, "LINK TYPE") ? "type" : "other");
    return false;
  }

  static bool legend_line(Table& table, std::string_view text) {
    const std::string_view plain = trimmed(text);
    if (plain.size() > 200) return false;
    if (const size_t equals = plain.find(" = "); equals != std::string_view::npos && equals < 8) {
      table.legend |= plain.starts_with("SYS") || plain.starts_with("SOC") || plain.starts_with("PHB");
      table.legend_nvlink |= plain.starts_with("NV#");
      return true;
    }
    const size_t colon = plain.find(": ");
    if (colon != std::string_view::npos && digits_after(plain.substr(0, colon), "NIC")) {
      const std::string_view device = trimmed(plain.substr(colon + 2));
      if (device.empty() || has(device, " ") || table.nic_devices.size() >= kMostDevices) return false;
      table.nic_devices[std::string(plain.substr(0, colon))] = std::string(device);
      return true;
    }
    return false;
  }

  bool header(const std::vector<std::string>& cells, const Line& line) {
    if (!is_gpu(cells[0])) return false;
    size_t devices = 0;
    while (devices < cells.size() && (is_gpu(cells[devices]) || is_nic(cells[devices]))) ++devices;
    if (devices > kMostDevices) return false;
    const std::string rest = devices < cells.size() ? cells[devices] : "";
    if (!rest.empty() && rest != "CPU" && rest != "NUMA" && rest != "GPU") return false;
    close();
    Table table;
    table.columns.assign(cells.begin(), cells.begin() + static_cast<std::ptrdiff_t>(devices));
    for (size_t i = devices; i + 1 < cells.size(); ++i) {
      table.cpu_column |= cells[i] == "CPU";
      table.numa_column |= cells[i] == "NUMA" && cells[i + 1] == "Affinity";
    }
    table.line = line.number;
    table.head = std::string(line.text.substr(0, 400));
    table_ = std::move(table);
    return true;
  }

  bool row(const std::vector<std::string>& cells, std::string_view text) {
    if (!table_ || cells.size() < 2) return false;
    const auto known = std::find(table_->columns.begin(), table_->columns.end(), cells[0]);
    if (known == table_->columns.end()) return false;
    const bool numbers = section_ == "weight" || section_ == "hops" || section_ == "other";
    std::vector<std::string> links;
    size_t at = 1;
    for (; at < cells.size() && links.size() < table_->columns.size(); ++at) {
      std::string cell = cells[at];
      // rocm-smi writes 0 for a GPU and itself.
      if (section_ == "type" && cell == "0") cell = "X";
      if (!numbers && cell != "N/A" && parse_link(cell).kind == LinkKind::kUnknown) break;
      links.push_back(std::move(cell));
    }
    if (links.empty()) return false;
    table_->rows[cells[0]] = std::move(links);
    std::vector<std::string>& tail = table_->tails[cells[0]];
    tail.assign(cells.begin() + static_cast<std::ptrdiff_t>(at), cells.end());
    if (empty_field(text, table_->columns.size() + 1)) tail.insert(tail.begin(), "");
    return true;
  }

  /// Whether the field of that number, between tabs, is there and blank: no CPU affinity.
  static bool empty_field(std::string_view text, size_t number) {
    for (; number > 0; --number) {
      const size_t tab = text.find('\t');
      if (tab == std::string_view::npos) return false;
      text.remove_prefix(tab + 1);
    }
    return trimmed(until(text, "\t")).empty() && !trimmed(text).empty();
  }

  /// "GPU[0]  : (Topology) Numa Node: 2", "GPU 0  : (Topology) Numa Node: 2"
  void numa_line(std::string_view text) {
    const auto node = after(text, "(Topology) Numa Node:");
    if (!node) return;
    const auto gpu = leading_number<int>(trimmed(text).substr(std::min<size_t>(4, trimmed(text).size())));
    const auto number = leading_number<int>(*node);
    if (gpu && number && *gpu >= 0 && static_cast<size_t>(*gpu) < kMostDevices) amd_numa_[*gpu] = *number;
  }

  void close() {
    if (!table_) return;
    Table table = std::move(*table_);
    table_.reset();
    if (table.rows.empty()) return;
    if (!section_.empty()) {
      if (section_ == "type") amd_.push_back(std::move(table));
      return;
    }
    finish_table(table, {});
  }

  void close_amd() {
    for (const Table& table : amd_) finish_table(table, amd_numa_);
    amd_.clear();
    amd_numa_.clear();
  }

  void finish_table(const Table& table, const std::map<int, int>& numa) {
    const size_t cells_here = table.columns.size() * table.columns.size();
    if (done_.size() >= kMostTables || cells_ + cells_here > kMostCells) return;
    cells_ += cells_here;
    found_ = true;
    Topology topology;
    topology.file = file_;
    for (const std::string& name : table.columns) {
      if (is_gpu(name)) topology.gpu_names.push_back(name);
    }
    std::vector<size_t> gpu_columns;
    std::vector<size_t> nic_columns;
    for (size_t i = 0; i < table.columns.size(); ++i)
      (is_gpu(table.columns[i]) ? gpu_columns : nic_columns).push_back(i);
    for (const size_t i : nic_columns) {
      const std::string& name = table.columns[i];
      topology.nic_names.push_back(name);
      const auto device = table.nic_devices.find(name);
      topology.nic_devices.push_back(device != table.nic_devices.end() ? device->second
                                     : digits_after(name, "NIC")       ? ""
                                                                       : name);
    }
    bool p2p = false;
    bool any_nvlink = false;
    size_t cut_rows = 0;
    for (size_t gpu = 0; gpu < topology.gpu_names.size(); ++gpu) {
      const auto row = table.rows.find(topology.gpu_names[gpu]);
      const std::vector<std::string> cells = row == table.rows.end() ? std::vector<std::string>{} : row->second;
      if (cells.size() < table.columns.size()) ++cut_rows;
      const auto pick = [&](const std::vector<size_t>& columns) {
        std::vector<std::string> picked;
        for (const size_t i : columns) picked.push_back(i < cells.size() ? cells[i] : "");
        return picked;
      };
      topology.links.push_back(pick(gpu_columns));
      topology.nic_links.push_back(pick(nic_columns));
      for (const std::string& cell : topology.links.back()) {
        const LinkKind kind = parse_link(cell).kind;
        p2p |= kind == LinkKind::kP2pOk || kind == LinkKind::kP2pNot;
        any_nvlink |= kind == LinkKind::kFabric;
      }
      tail(table, topology, gpu, numa);
      nearest(topology, gpu);
    }
    topology.gpus = static_cast<int>(topology.gpu_names.size());
    topology.shows = p2p ? "p2p" : "links";
    if (!p2p) topology.nics = static_cast<int>(topology.nic_names.size());
    if (p2p) {
      topology.nearest_nic.clear();
      topology.nearest_nic_link.clear();
    } else if (any_nvlink) {
      topology.nvlink = true;
    } else if (table.legend_nvlink || !section_.empty() || !amd_.empty()) {
      topology.nvlink = false;
    }
    if (cut_rows > 0) cut(table, topology, cut_rows);
    if (table.legend && !table.legend_nvlink && !any_nvlink && !p2p) hidden(table);
    done_.push_back(std::move(topology));
  }

  static void tail(const Table& table, Topology& topology, size_t gpu, const std::map<int, int>& numa) {
    const auto found = table.tails.find(topology.gpu_names[gpu]);
    const std::vector<std::string> rest = found == table.tails.end() ? std::vector<std::string>{} : found->second;
    const size_t at = table.cpu_column ? 1 : 0;
    topology.cpus.push_back(table.cpu_column && !rest.empty() && rest[0] != "N/A" ? rest[0] : "");
    if (table.numa_column) {
      const auto node = rest.size() > at ? whole_number(rest[at]) : std::nullopt;
      topology.numa.push_back(node && *node >= 0 && *node < 65536 ? std::optional<int>(static_cast<int>(*node))
                                                                  : std::nullopt);
    } else if (!numa.empty()) {
      const auto node = numa.find(static_cast<int>(gpu));
      topology.numa.push_back(node == numa.end() ? std::nullopt : std::optional<int>(node->second));
    }
  }

  static void nearest(Topology& topology, size_t gpu) {
    int best = distance(LinkKind::kSys);  // across sockets is not near
    std::vector<std::string> names;
    std::string word;
    for (size_t nic = 0; nic < topology.nic_names.size(); ++nic) {
      const std::string& cell = topology.nic_links[gpu][nic];
      const int far = distance(parse_link(cell).kind);
      if (far > best || far < 0 || (far == best && names.empty())) continue;
      if (far < best) names.clear();
      best = far;
      word = cell;
      names.push_back(topology.nic_names[nic]);
    }
    topology.nearest_nic.push_back(std::move(names));
    topology.nearest_nic_link.push_back(std::move(word));
  }

  void cut(const Table& table, const Topology& topology, size_t rows) {
    Finding finding;
    finding.code = "topology.cut";
    finding.severity = Severity::kWarning;
    finding.cause = str("the topology table is cut: of ", rows, " of ", topology.gpu_names.size(), " GPUs not all ",
                        table.columns.size(), " links are there");
    finding.advice = "What is missing counts as unknown. Save it whole: nvidia-smi topo -m > topo.txt";
    add_evidence(finding, {file_, table.line, table.head});
    findings_.push_back(std::move(finding));
  }

  void hidden(const Table& table) {
    Finding finding;
    finding.code = "topology.nvlink_hidden";
    finding.severity = Severity::kInfo;
    finding.cause = "the table shows PCIe paths only (nvidia-smi topo -mp): it does not tell whether there is NVLink";
    finding.advice = "For NVLink as well run: nvidia-smi topo -m";
    add_evidence(finding, {file_, table.line, table.head});
    findings_.push_back(std::move(finding));
  }

  std::string file_;
  bool found_ = false;
  std::optional<Table> table_;
  std::string section_;  ///< of rocm-smi or amd-smi; empty outside
  std::vector<Table> amd_;
  std::map<int, int> amd_numa_;
  std::vector<Topology> done_;
  size_t cells_ = 0;
  std::vector<Finding> findings_;
};

}  // namespace

std::unique_ptr<LineReader> make_topology_reader() { return std::make_unique<TopologyReader>(); }

}  // namespace trireme::diagnose
