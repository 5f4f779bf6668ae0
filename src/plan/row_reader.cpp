#include "plan/row_reader.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "base/str.h"
#include "plan/assume_what_fits.h"
#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

bool given(double value) { return !std::isnan(value); }

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

/// Letters and digits only: names are spelled in many ways.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : lower(text)) {
    if (std::isalnum(static_cast<unsigned char>(c))) out += c;
  }
  return out;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

int find_device(const Catalog& catalog, const std::string& gpu) {
  const std::string wanted = plain(gpu);
  for (size_t i = 0; i < catalog.machines.devices.size(); ++i) {
    const DeviceDesc& device = catalog.machines.devices[i];
    if (plain(device.name) == wanted) return static_cast<int>(i);
    for (const std::string& name : device.other_names) {
      if (plain(name) == wanted) return static_cast<int>(i);
    }
  }
  return -1;
}

bool matches(const Publication& publication, const Row& row) {
  return row.source.rfind(publication.source, 0) == 0 &&
         (publication.note.empty() || contains(lower(row.note), lower(publication.note))) &&
         (publication.precision.empty() || lower(row.precision).rfind(publication.precision, 0) == 0) &&
         (publication.device.empty() || lower(row.gpu).rfind(lower(publication.device), 0) == 0);
}

/// The one whose publication matches by most characters; -1 where none does.
template <typename Item>
int find_published(const std::vector<Item>& items, const Row& row) {
  int best = -1;
  size_t length = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    for (const Publication& publication : items[i].publications) {
      const size_t characters = publication.source.size() + publication.note.size() + publication.precision.size() +
                                publication.device.size();
      if (characters > length && matches(publication, row)) {
        best = static_cast<int>(i);
        length = characters;
      }
    }
  }
  return best;
}

std::string precision_of(const std::string& text) {
  const std::string p = lower(text);
  if (contains(p, "fp4")) return "fp4";
  if (contains(p, "fp8")) return "fp8";
  if (contains(p, "bf16")) return "bf16";
  if (contains(p, "fp16")) return "fp16";
  if (contains(p, "tf32")) return "tf32";
  if (contains(p, "fp32")) return "fp32";
  return "bf16";
}

std::optional<Recompute> recompute_of(const std::string& text) {
  if (text == "none") return Recompute::kNone;
  if (text == "selective") return Recompute::kSelective;
  if (text == "selective_op") return Recompute::kSelectiveOperators;
  if (text == "selective_layer") return Recompute::kSelectiveLayers;
  if (text == "full") return Recompute::kFull;
  return std::nullopt;
}

/// Recomputation and precision are words; one that is not known would be predicted as something else.
void require_known(const CsvFile& file, const Row& row) {
  const auto fail = [&](const char* column, const std::string& is, const char* known) {
    throw Error(ErrorKind::kConfig, str("[plan.score] ", file.name, ":", row.line, ": column '", column, "' is '", is,
                                        "'; known are ", known, ", and nothing where nothing was printed."));
  };
  if (!row.recompute.empty() && !recompute_of(row.recompute)) {
    fail("recompute", row.recompute, "none, selective, selective_op, selective_layer, full");
  }
  const std::string precision = lower(row.precision);
  bool known = precision.empty();
  for (const char* word : {"fp4", "fp8", "bf16", "fp16", "tf32", "fp32"}) known = known || contains(precision, word);
  if (!known) fail("precision", row.precision, "fp32, tf32, fp16, bf16, fp8, fp4 and names that contain one of them");
}

double dense_parameters(const Row& row, double products) {
  const double kv = given(row.kv_heads) && given(row.heads) ? row.kv_heads / row.heads : 1;
  return row.layers * (row.hidden * row.hidden * (2 + 2 * kv) + products * row.hidden * row.ffn_hidden) +
         row.vocab * row.hidden;
}

/// Far more than a dense transformer of this shape has: it is something else.
bool too_many_parameters(const Row& row) {
  if (!given(row.params_b) || !given(row.layers) || !given(row.hidden)) return false;
  Row full = row;
  if (!given(full.ffn_hidden)) full.ffn_hidden = 4 * full.hidden;
  if (!given(full.vocab)) full.vocab = 51200;
  return row.params_b * 1e9 > 1.4 * dense_parameters(full, 3);
}

/// A dense decoder from the columns of a row.
Result<ModelDesc> dense_model(const Row& in, std::vector<std::string>& assumptions) {
  Row row = in;
  if (!given(row.layers) || !given(row.hidden)) {
    return Reason{
        str("shape unknown: no layers or no hidden size for '", row.model, "', and no models/*.json has that name")};
  }
  if (!given(row.seq_len)) return Reason{"sequence length not given"};
  if (given(row.ep) && row.ep > 1) {
    return Reason{
        str("mixture of experts: '", row.model, "' has ep ", row.ep, ", and no models/*.json describes its experts")};
  }
  if (!given(row.heads)) {
    row.heads = std::max(1.0, std::round(row.hidden / 128));
    assumptions.push_back("heads not given: 128 wide each");
  }
  if (!given(row.kv_heads)) row.kv_heads = row.heads;
  if (!given(row.vocab)) {
    row.vocab = 51200;
    assumptions.push_back("vocabulary not given: 51200");
  }
  if (!given(row.ffn_hidden)) {
    row.ffn_hidden = 4 * row.hidden;
    assumptions.push_back("feed-forward width not given: 4 x hidden");
  }
  const bool gated = row.ffn_hidden != 4 * row.hidden;
  if (too_many_parameters(row)) {
    return Reason{str("not a dense transformer: '", row.model, "' is said to have ", row.params_b,
                      " billion parameters, its columns make ", dense_parameters(row, 3) / 1e9,
                      "; no models/*.json describes it")};
  }
  ModelDesc model;
  model.name = row.model;
  model.family = gated ? "llama" : "gpt2";
  model.source = "columns of the row";
  model.hidden = static_cast<int64_t>(row.hidden);
  model.vocab = static_cast<int64_t>(row.vocab);
  model.tied = !gated;
  TransformerLayer layer;
  layer.attention.heads = static_cast<int64_t>(row.heads);
  layer.attention.kv_heads = static_cast<int64_t>(row.kv_heads);
  layer.attention.head_dim = static_cast<int64_t>(row.hidden / row.heads);
  layer.attention.value_dim = layer.attention.head_dim;
  layer.feed_forward = FeedForward{.width = static_cast<int64_t>(row.ffn_hidden), .gated = gated, .bias = false};
  model.layers.push_back({.layer = layer, .count = static_cast<int64_t>(row.layers), .stack = 0});
  return model;
}

/// A described model with as many layers as the row says, cut from the front as published layer-cut models are.
ModelDesc cut_layers(ModelDesc model, const Row& row, std::vector<std::string>& assumptions) {
  if (!given(row.layers) || !model.is_transformer()) return model;
  const auto wanted = static_cast<int64_t>(row.layers);
  if (model.num_layers() == wanted) return model;
  assumptions.push_back(str("cut to ", wanted, " of ", model.num_layers(), " layers"));
  int64_t left = wanted;
  std::vector<LayerRun> runs;
  for (LayerRun run : model.layers) {
    run.count = std::min(run.count, left);
    left -= run.count;
    if (run.count > 0) runs.push_back(run);
  }
  if (left > 0 && !runs.empty()) runs.back().count += left;
  model.layers = std::move(runs);
  return model;
}

/// Names of models with parts that no formula here covers; never answered by a dense model of the same size.
const char* not_modelled(const std::string& name) {
  static constexpr const char* kHybrids[] = {"nemotronh", "nemotron3", "mamba", "jamba", "zamba", "rwkv"};
  const std::string wanted = plain(name);
  for (const char* hybrid : kHybrids) {
    if (contains(wanted, hybrid)) return "state-space (Mamba) layers are not modelled";
  }
  return nullptr;
}

double hardware_flops(const Row& row) {
  const double vocab = given(row.vocab) ? row.vocab : 51200;
  return 96 * row.global_batch * row.seq_len * row.layers * row.hidden * row.hidden *
         (1 + row.seq_len / (6 * row.hidden) + vocab / (16 * row.layers * row.hidden));
}

double model_flops(const Row& row) {
  const double kv = given(row.kv_heads) && given(row.heads) ? row.kv_heads / row.heads : 1;
  const double gates = row.ffn_hidden != 4 * row.hidden ? 3 : 2;
  return 3 * row.global_batch * row.seq_len *
         (row.layers * (4 * row.hidden * row.hidden * (1 + kv) + 2 * gates * row.hidden * row.ffn_hidden +
                        4 * row.seq_len * row.hidden) +
          2 * row.hidden * row.vocab);
}

double reference_seconds(const Row& row) {
  if (given(row.seconds_per_step)) return row.seconds_per_step;
  if (given(row.tokens_per_s_per_gpu) && given(row.global_batch) && given(row.seq_len))
    return row.global_batch * row.seq_len / (row.tokens_per_s_per_gpu * row.gpus);
  if (given(row.samples_per_s) && row.samples_per_s > 0 && given(row.global_batch))
    return row.global_batch / row.samples_per_s;
  if (given(row.tflops_per_gpu) && given(row.global_batch) && given(row.layers)) {
    const double rate = row.gpus * row.tflops_per_gpu * 1e12;
    const std::string note = lower(row.note);
    if (contains(note, "hardware flops")) return hardware_flops(row) / rate;
    if (contains(note, "model tflop/s with non-causal attention")) return model_flops(row) / rate;
  }
  return 0;
}

}  // namespace

std::vector<Row> read_rows(const CsvFile& file) {
  const auto need = [&file](const char* name) {
    const int at = file.column(name);
    if (at < 0) {
      throw Error(ErrorKind::kConfig, str("[plan.score] ", file.name, ":1: there is no column '", name,
                                          "'. docs/planner_costs.md lists the columns of a table of measurements."));
    }
    return at;
  };
  struct Text {
    std::string Row::* to;
    int at;
  };
  const Text texts[] = {
      {&Row::source, need("source")},       {&Row::model, need("model")},         {&Row::gpu, need("gpu")},
      {&Row::recompute, need("recompute")}, {&Row::precision, need("precision")}, {&Row::note, need("note")}};
  constexpr double kAboveNothing = 1e-12;
  struct Number {
    double Row::* to;
    const char* name;
    double min, max;
    bool whole;
    int at = 0;
  };
  Number numbers[] = {{&Row::year, "year", 1900, 3000, true},
                      {&Row::params_b, "params_b", kAboveNothing, 1e15, false},
                      {&Row::layers, "layers", 1, 100'000, true},
                      {&Row::hidden, "hidden", 1, 1e7, true},
                      {&Row::heads, "heads", 1, 1e6, true},
                      {&Row::kv_heads, "kv_heads", 1, 1e6, true},
                      {&Row::ffn_hidden, "ffn_hidden", 1, 1e8, true},
                      {&Row::vocab, "vocab", 1, 1e9, true},
                      {&Row::seq_len, "seq_len", 1, 1e9, true},
                      {&Row::gpus, "gpus", 1, 1e7, true},
                      {&Row::gpus_per_node, "gpus_per_node", 1, 1e6, true},
                      {&Row::dp, "dp", 1, 1e7, true},
                      {&Row::tp, "tp", 1, 1e7, true},
                      {&Row::pp, "pp", 1, 1e7, true},
                      {&Row::cp, "cp", 1, 1e7, true},
                      {&Row::ep, "ep", 1, 1e7, true},
                      {&Row::zero_stage, "zero_stage", 0, 3, true},
                      {&Row::micro_batch, "micro_batch", 1, 1e9, true},
                      {&Row::global_batch, "global_batch", 1, 1e9, true},
                      {&Row::virtual_stages, "virtual_stages", 1, 1e5, true},
                      {&Row::seconds_per_step, "seconds_per_step", kAboveNothing, 1e15, false},
                      {&Row::samples_per_s, "samples_per_s", 0, 1e15, false},
                      {&Row::tokens_per_s_per_gpu, "tokens_per_s_per_gpu", kAboveNothing, 1e15, false},
                      {&Row::tflops_per_gpu, "tflops_per_gpu", kAboveNothing, 1e15, false},
                      {&Row::mfu_pct, "mfu_pct", kAboveNothing, 1e15, false},
                      {&Row::peak_mem_gb, "peak_mem_gb", kAboveNothing, 1e15, false}};
  for (Number& number : numbers) number.at = need(number.name);
  std::vector<Row> rows;
  rows.reserve(file.rows.size());
  for (const CsvRow& from : file.rows) {
    Row row{};
    row.line = from.line;
    for (const Text& text : texts) row.*text.to = from.fields[text.at];
    for (const Number& number : numbers) {
      const std::string& field = from.fields[number.at];
      double value = kNone;
      if (!field.empty()) {
        const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
        if (error != std::errc{} || end != field.data() + field.size()) {
          throw Error(ErrorKind::kConfig,
                      str("[plan.score] ", file.name, ":", from.line, ": column '", number.name, "' is '", field,
                          "'; it must be a number, or empty where nothing was printed."));
        }
        const bool inside = value >= number.min && value <= number.max;  // false for a value that is no number
        if (!inside || (number.whole && value != std::floor(value))) {
          throw Error(
              ErrorKind::kConfig,
              str("[plan.score] ", file.name, ":", from.line, ": column '", number.name, "' is ", field, "; ",
                  number.whole ? str("a whole number from ", number.min, " to ", number.max) : "a number above 0",
                  " is required, or nothing where nothing was printed."));
        }
      }
      row.*number.to = value;
    }
    require_known(file, row);
    rows.push_back(std::move(row));
  }
  return rows;
}

Result<Case> read_case(const Row& row, const Catalog& catalog) {
  Case out;
  out.line = row.line;
  if (const char* reason = not_modelled(row.model)) return Reason{str("'", row.model, "': ", reason)};

  if (contains(lower(row.note), "offload"))
    return Reason{"offload to host memory is not modelled: the note says that the run used it"};

  // Model.
  // A row's own columns are a whole dense transformer; only what they lack is looked up.
  const bool dense = given(row.layers) && given(row.hidden) && given(row.ffn_hidden) &&
                     !(given(row.ep) && row.ep > 1) && !too_many_parameters(row);
  std::optional<ModelDesc> known = !dense && catalog.model ? catalog.model(row.model) : std::nullopt;
  if (known) {
    out.model = cut_layers(std::move(*known), row, out.assumptions);
    if (given(row.vocab) && row.vocab > 0 && out.model.is_transformer())
      out.model.vocab = static_cast<int64_t>(row.vocab);
  } else {
    Result<ModelDesc> dense = dense_model(row, out.assumptions);
    if (!dense) return Reason{dense.reason()};
    out.model = dense.value();
  }

  // Device, cluster, software.
  out.device = find_device(catalog, row.gpu);
  if (out.device < 0) return Reason{str("device '", row.gpu, "' is in no file of machines/")};
  if (const DeviceDesc& device = catalog.machines.devices[out.device]; !device.measured)
    out.assumptions.push_back(str("device ", device.name, ": datasheet only, no run of it was ever compared"));
  out.cluster = find_published(catalog.machines.clusters, row);
  if (out.cluster < 0) out.cluster = catalog.own_cluster;
  if (out.cluster < 0)
    out.assumptions.emplace_back("cluster unknown: defaults, uncalibrated");
  else if (const ClusterDesc& cluster = catalog.machines.clusters[out.cluster]; !cluster.calibrated)
    out.assumptions.push_back(str("cluster ", cluster.name, ": uncalibrated, its constants are defaults"));
  out.software = find_published(catalog.machines.software, row);
  if (out.software < 0) out.software = catalog.own_software;
  const SoftwareProfile& software = catalog.machines.software[std::max(0, out.software)];
  if (out.software < 0)
    out.assumptions.emplace_back("software unknown: defaults, uncalibrated");
  else if (!software.calibrated)
    out.assumptions.push_back(str("software ", software.name, ": uncalibrated, its constants are defaults"));

  // Plan.
  const auto integer = [](double value, int64_t otherwise) {
    return given(value) ? static_cast<int64_t>(value) : otherwise;
  };
  if (!given(row.gpus)) return Reason{"number of devices not given"};
  if (!given(row.dp) || !given(row.tp) || !given(row.pp)) {
    return Reason{
        "layout not given: the row does not say how the devices are split into data, tensor and pipeline parallelism"};
  }
  if (!given(row.micro_batch)) return Reason{"micro-batch not given"};
  if (!given(row.global_batch)) return Reason{"global batch not given"};
  out.gpus = row.gpus;
  out.gpus_per_host = given(row.gpus_per_node) ? row.gpus_per_node : 8;
  Plan& plan = out.plan;
  plan.dp = integer(row.dp, 1);
  plan.tp = integer(row.tp, 1);
  plan.pp = integer(row.pp, 1);
  plan.cp = integer(row.cp, 1);
  plan.ep = integer(row.ep, 1);
  plan.micro_batch = integer(row.micro_batch, 1);
  plan.virtual_stages = plan.pp > 1 ? integer(row.virtual_stages, 1) : 1;
  if (plan.dp * plan.tp * plan.pp * plan.cp != static_cast<int64_t>(row.gpus)) {
    return Reason{str("degrees do not multiply to the number of devices: dp ", plan.dp, " x tp ", plan.tp, " x pp ",
                      plan.pp, " x cp ", plan.cp, " = ", plan.dp * plan.tp * plan.pp * plan.cp, ", gpus ", row.gpus)};
  }
  if (plan.pp > 1 && !given(row.virtual_stages)) out.assumptions.push_back("virtual stages not given: 1");
  const std::string note = lower(row.note);
  plan.zero_stage = static_cast<int>(integer(row.zero_stage, software.zero_stage));
  plan.recompute = recompute_of(row.recompute).value_or(Recompute::kNone);
  plan.sequence_parallel = plan.tp > 1 && (contains(note, "without sequence parallel") ? false
                                           : contains(note, "sequence parallel")       ? true
                                                                                       : software.sequence_parallel);
  if (plan.zero_stage == 3 && (contains(note, "hsdp") || contains(note, "fsdp within node")))
    plan.shard_ranks = static_cast<int64_t>(out.gpus_per_host);

  // Training.
  Training& training = out.training;
  training.global_batch = integer(row.global_batch, 1);
  training.sequence = integer(row.seq_len, std::max<int64_t>(1, out.model.sequence));
  training.precision = precision_of(row.precision);
  training.gradient_bytes = software.gradient_bytes;
  if (contains(note, "mp mode pure")) training.gradient_bytes = 2;
  if (contains(note, "float8 all-gather")) training.gather_bytes = 1;
  if (software.full_precision_weights && !contains(note, "mp mode pure")) {
    training.weight_bytes = 4;
    training.optimizer_bytes = 8;
  }
  if (contains(note, "fp32 grad accumulation") && training.gradient_bytes < 4) training.accumulation_bytes = 4;
  training.frozen_base = contains(lower(row.model), "lora");
  if (training.global_batch % (plan.micro_batch * plan.dp) != 0) {
    out.assumptions.push_back(str("global batch ", training.global_batch, " is no multiple of micro-batch ",
                                  plan.micro_batch, " x dp ", plan.dp));
  }

  assume_what_fits(out, catalog,
                   {!given(row.zero_stage), recompute_of(row.recompute) == std::nullopt,
                    row.recompute == "selective" && !software.selective_is_attention});

  // What was measured.
  out.seconds = reference_seconds(row);
  if (given(row.peak_mem_gb)) {
    const bool decimal = contains(note, "mem = gb") || (software.reports_process_memory && !contains(note, "gib"));
    out.bytes = row.peak_mem_gb * (decimal ? 1e9 : 1024.0 * 1024.0 * 1024.0);
    out.memory_kind = contains(note, "nvidia-smi") || software.reports_process_memory ? MemoryKind::kProcess
                      : contains(note, "max reserved")                                ? MemoryKind::kReserved
                      : contains(note, "estimate")                                    ? MemoryKind::kEstimate
                                                                                      : MemoryKind::kAllocated;
  }
  out.out_of_memory = contains(row.note, "OOM") && out.seconds <= 0;  // a note may tell of other batches' fate
  out.publisher = row.source.substr(0, row.source.find_first_of(" ,"));
  out.group = str(row.model, '|', row.layers, '|', row.hidden, '|', row.heads, '|', row.gpu, '|', row.gpus, '|',
                  row.seq_len, '|', row.global_batch, '|', row.precision);
  return out;
}

Machine machine_of(const Case& row, const Catalog& catalog) {
  Machine machine;
  machine.device = catalog.machines.devices[row.device];
  machine.cluster = catalog.machines.clusters[std::max(0, row.cluster)];
  machine.software = catalog.machines.software[std::max(0, row.software)];
  machine.cluster.devices_per_host = static_cast<int>(row.gpus_per_host);
  machine.cluster.hosts = static_cast<int>(std::ceil(row.gpus / row.gpus_per_host));
  return machine;
}

}  // namespace trireme::plan
