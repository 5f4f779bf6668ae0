#include "plan/model_file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <utility>

#include "base/nearest.h"
#include "base/str.h"
#include "plan/data_folder.h"
#include "plan/hf_reader.h"
#include "plan/json_object.h"
#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

constexpr const char* kComponent = "plan.model_file";
constexpr int64_t kMost = HfReader::kLargest;

constexpr std::array<std::pair<const char*, OperatorKind>, 10> kKinds{{
    {"convolution", OperatorKind::kConvolution},
    {"linear", OperatorKind::kLinear},
    {"batched_matmul", OperatorKind::kBatchedMatmul},
    {"norm", OperatorKind::kNorm},
    {"elementwise", OperatorKind::kElementwise},
    {"pool", OperatorKind::kPool},
    {"softmax", OperatorKind::kSoftmax},
    {"embedding", OperatorKind::kEmbedding},
    {"gather", OperatorKind::kGather},
    {"scatter", OperatorKind::kScatter},
}};

OperatorKind read_kind(const JsonObject& at) {
  const std::string text = at.text("kind");
  std::vector<std::string> known;
  for (const auto& [name, kind] : kKinds) {
    if (text == name) return kind;
    known.emplace_back(name);
  }
  at.fail("kind",
          str("is \"", text, "\"", did_you_mean(text, known), "; one of ", join(known), " is required. Correct it."));
}

Operator read_operator(const JsonObject& at) {
  at.refuse_unknown_keys(
      {"kind", "name", "in", "out", "kernel", "groups", "positions", "in_positions", "parameters", "saved"});
  Operator op;
  op.kind = read_kind(at);
  op.name = at.text_or("name", "");
  op.in = at.integer_or("in", 0, 0, kMost);
  op.out = at.integer_or("out", 0, 0, kMost);
  op.kernel = at.integer_or("kernel", 1, 1, kMost);
  op.groups = at.integer_or("groups", 1, 1, kMost);
  op.positions = at.integer_or("positions", 1, 0, kMost);
  op.in_positions = at.integer_or("in_positions", op.positions, 0, kMost);
  constexpr int64_t kMostElements = int64_t{1} << 45;
  op.parameters = at.integer_or("parameters", 0, 0, kMostElements);
  op.saved = at.integer_or("saved", 0, 0, kMostElements);
  const bool product = op.kind == OperatorKind::kConvolution || op.kind == OperatorKind::kLinear ||
                       op.kind == OperatorKind::kBatchedMatmul;
  if (product && (op.in == 0 || op.out == 0)) at.fail("in", "and key 'out': a product needs both. Add them.");
  if (op.kind == OperatorKind::kConvolution && (op.in % op.groups != 0 || op.out % op.groups != 0)) {
    at.fail("groups", str("is ", op.groups, ", which does not divide ", op.in, " inputs and ", op.out,
                          " outputs; it must. Correct them."));
  }
  return op;
}

void read_blocks(const JsonObject& top, ModelDesc& model) {
  for (const JsonObject& block : top.objects("blocks")) {
    block.refuse_unknown_keys({"name", "first", "count", "operators"});
    const int64_t first = block.integer_or("first", 0);
    const int64_t count = block.integer_or("count", 1, 1, HfReader::kMostLayers);
    std::string name = block.text_or("name", "");
    std::vector<Operator> operators;
    for (const JsonObject& at : block.objects("operators")) operators.push_back(read_operator(at));
    if (operators.empty()) block.fail("operators", "is empty; one operator at least is required. Add it.");
    const bool numbered = block.has("first") || count > 1;
    for (int64_t i = first; i < first + count; ++i) {
      for (const Operator& op : operators) {
        model.operators.push_back(op);
        if (numbered) model.operators.back().name = str(name, i, ".", op.name);
        if (!numbered && !name.empty()) model.operators.back().name = str(name, ".", op.name);
      }
    }
  }
  if (model.operators.empty()) top.fail("blocks", "is empty; one operator at least is required. Add it.");
}

Attention read_attention(const JsonObject& at) {
  at.refuse_unknown_keys({"heads", "kv_heads", "head_dim", "value_dim", "q_rank", "kv_rank", "rope_dim", "window",
                          "relative_buckets", "causal", "qkv_bias", "out_bias", "qk_norm", "sinks"});
  Attention a;
  a.heads = at.integer("heads", 1, kMost);
  a.kv_heads = at.integer_or("kv_heads", a.heads, 1, kMost);
  if (a.heads % a.kv_heads != 0)
    at.fail("kv_heads", str("is ", a.kv_heads, ", which does not divide ", a.heads, " heads; it must. Correct it."));
  a.head_dim = at.integer("head_dim", 1, kMost);
  a.value_dim = at.integer_or("value_dim", a.head_dim, 1, kMost);
  a.q_rank = at.integer_or("q_rank", 0, 0, kMost);
  a.kv_rank = at.integer_or("kv_rank", 0, 0, kMost);
  a.rope_dim = at.integer_or("rope_dim", 0, 0, kMost);
  a.window = at.integer_or("window", 0, 0, kMost);
  a.relative_buckets = at.integer_or("relative_buckets", 0, 0, kMost);
  a.causal = at.boolean_or("causal", a.causal);
  a.qkv_bias = at.boolean_or("qkv_bias", false);
  a.out_bias = at.boolean_or("out_bias", false);
  a.qk_norm = at.boolean_or("qk_norm", false);
  a.sinks = at.boolean_or("sinks", false);
  return a;
}

TransformerLayer read_layer(const JsonObject& at) {
  TransformerLayer layer;
  layer.attention = read_attention(at.object("attention"));
  if (at.has("cross_attention")) layer.cross_attention = read_attention(at.object("cross_attention"));
  if (at.has("feed_forward")) {
    const JsonObject f = at.object("feed_forward");
    f.refuse_unknown_keys({"width", "gated", "bias"});
    layer.feed_forward =
        FeedForward{f.integer("width", 1, kMost), f.boolean_or("gated", false), f.boolean_or("bias", false)};
  }
  if (at.has("experts")) {
    const JsonObject e = at.object("experts");
    e.refuse_unknown_keys({"count", "active", "width", "shared_width", "gated", "bias", "router_bias", "shared_gate"});
    Experts experts;
    experts.count = e.integer("count", 1, kMost);
    experts.active = e.integer("active", 1, experts.count);
    experts.width = e.integer("width", 1, kMost);
    experts.shared_width = e.integer_or("shared_width", 0, 0, kMost);
    experts.gated = e.boolean_or("gated", experts.gated);
    experts.bias = e.boolean_or("bias", false);
    experts.router_bias = e.boolean_or("router_bias", false);
    experts.shared_gate = e.boolean_or("shared_gate", false);
    layer.experts = experts;
  }
  layer.norms = static_cast<int>(at.integer_or("norms", 2, 0, 16));
  layer.norm_bias = at.boolean_or("norm_bias", false);
  return layer;
}

void read_transformer(const JsonObject& at, ModelDesc& model) {
  at.refuse_unknown_keys({"hidden", "vocab", "positions", "tied", "head", "sequence", "first_parameters",
                          "last_parameters", "first_flops", "last_flops", "layers"});
  model.hidden = at.integer("hidden", 1, kMost);
  model.vocab = at.integer_or("vocab", 0, 0, kMost);
  model.positions = at.integer_or("positions", 0, 0, kMost);
  model.tied = at.boolean_or("tied", false);
  model.head = at.boolean_or("head", model.vocab > 0);
  model.sequence = at.integer_or("sequence", 0, 0, kMost);
  constexpr int64_t kMostElements = int64_t{1} << 45;
  model.first_parameters = at.integer_or("first_parameters", 0, 0, kMostElements);
  model.last_parameters = at.integer_or("last_parameters", 0, 0, kMostElements);
  model.first_flops = at.number_or("first_flops", 0);
  model.last_flops = at.number_or("last_flops", 0);
  for (const JsonObject& run : at.objects("layers")) {
    run.refuse_unknown_keys(
        {"count", "stack", "attention", "cross_attention", "feed_forward", "experts", "norms", "norm_bias"});
    model.layers.push_back({read_layer(run), run.integer_or("count", 1, 1, HfReader::kMostLayers),
                            static_cast<int>(run.integer_or("stack", 0, 0, 1))});
  }
  if (model.layers.empty()) at.fail("layers", "is empty; one layer at least is required. Add it.");
  check_countable(model, at);
}

bool same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

/// "llama3_1_405b" of "llama3.1-405B": how the shipped files are called.
std::string file_name_of(std::string_view name) {
  std::string result;
  for (const char c : name)
    result += std::isalnum(static_cast<unsigned char>(c)) != 0 ? static_cast<char>(std::tolower(c)) : '_';
  return result;
}

/// "transformer", "blocks" or "huggingface": exactly one of them.
ModelDesc read_body(const JsonObject& top) {
  const int bodies = static_cast<int>(top.has("huggingface")) + static_cast<int>(top.has("transformer")) +
                     static_cast<int>(top.has("blocks"));
  if (bodies != 1) {
    top.fail("transformer", str("and keys 'blocks' and 'huggingface': ", bodies,
                                " of them are there; exactly one is required. Describe the model in one way."));
  }
  ModelDesc model;
  if (top.has("huggingface")) model = import_hf_config(top.object("huggingface"));
  if (top.has("transformer")) read_transformer(top.object("transformer"), model);
  if (top.has("blocks")) read_blocks(top, model);
  return model;
}

ModelDesc read_own(const JsonObject& top) {
  top.refuse_unknown_keys({"schema", "name", "other_names", "family", "source", "sample", "parameters",
                           "parameters_source", "approximations", "huggingface", "transformer", "blocks"});
  (void)top.integer("schema", 1, 1);
  ModelDesc model = read_body(top);
  model.name = top.text("name");
  model.other_names = top.texts("other_names");
  model.family = top.text_or("family", model.family);
  model.source = top.text("source");
  for (std::string& text : top.texts("approximations")) model.approximations.push_back(std::move(text));
  if (top.has("parameters") && top.integer("parameters") != total_parameters(model)) {
    top.fail("parameters", str("is ", top.integer("parameters"), ", but the sizes in the file give ",
                               total_parameters(model), "; they must agree. Correct the sizes, or the sum."));
  }
  return model;
}

}  // namespace

ModelDesc parse_model(std::string_view text, const std::string& file, const HfOptions& options) {
  const JsonObject top = JsonObject::parse(text, file, kComponent);
  return top.has("schema") ? read_own(top) : import_hf_config(text, file, options);
}

const ModelDesc* ModelCatalog::find(std::string_view name) const {
  for (const ModelDesc& model : models)
    if (same_name(model.name, name)) return &model;
  for (const ModelDesc& model : models)
    for (const std::string& other : model.other_names)
      if (same_name(other, name)) return &model;
  return nullptr;
}

ModelCatalog load_models(const std::string& folder) {
  ModelCatalog catalog;
  for (const std::string& path : json_files_in(folder)) {
    const JsonObject top = JsonObject::read(path, kComponent);
    ModelDesc model = read_own(top);
    std::vector<std::string> names = model.other_names;
    names.push_back(model.name);
    for (const std::string& name : names) {
      if (catalog.find(name) != nullptr)
        top.fail("name", str("or other name \"", name, "\" is taken already. Give every model a name of its own."));
    }
    catalog.models.push_back(std::move(model));
  }
  return catalog;
}

ModelCatalog load_models() { return load_models(data_folder("models")); }

ModelDesc read_model(const std::string& path_or_name, const HfOptions& options) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  fs::path path = path_or_name;
  if (fs::is_directory(path, ignored) && fs::exists(path / "config.json", ignored)) path /= "config.json";
  const auto read = [&] { return parse_model(read_text(path.string(), kComponent), path.string(), options); };
  // A path is one even where it leads to no file: its reader says what is there. But ViT-B/16 is a name.
  const bool there = fs::exists(path, ignored) && !fs::is_directory(path, ignored);
  if (there || path_or_name.ends_with(".json")) return read();
  if (path_or_name.find('/') != std::string::npos) {
    const ModelCatalog catalog = load_models();
    const ModelDesc* found = catalog.find(path_or_name);
    return found != nullptr ? *found : read();
  }
  // Most names are those of their file; only other spellings need all files.
  const fs::path own = fs::path(data_folder("models")) / (file_name_of(path_or_name) + ".json");
  if (fs::exists(own, ignored)) {
    ModelDesc model = read_own(JsonObject::read(own.string(), kComponent));
    if (same_name(model.name, path_or_name) || same_name(own.stem().string(), path_or_name)) return model;
  }
  const ModelCatalog catalog = load_models();
  if (const ModelDesc* found = catalog.find(path_or_name)) return *found;
  std::vector<std::string> known;
  std::vector<std::string> listed;
  for (const std::string& file : json_files_in(data_folder("models"))) known.push_back(fs::path(file).stem().string());
  for (const ModelDesc& model : catalog.models) {
    listed.push_back(model.name);
    known.push_back(model.name);
    known.insert(known.end(), model.other_names.begin(), model.other_names.end());
  }
  const std::string hint = did_you_mean(path_or_name, known);
  throw Error(ErrorKind::kConfig, str("[", kComponent, "] no file and no shipped model is called '", path_or_name, "'",
                                      hint.empty() ? "." : hint, " Shipped: ", join(names_with(path_or_name, listed)),
                                      ". Give one of them, or a config.json."));
}

}  // namespace trireme::plan
