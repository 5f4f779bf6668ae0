#include "plan/hf_reader.h"

#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::plan {

int64_t HfReader::size(Names names, int64_t max) const {
  const char* found = nullptr;
  for (const char* name : names) {
    if (!config_.has(name)) continue;
    if (found != nullptr && config_.integer(name) != config_.integer(found)) {
      config_.fail(name, str("is ", config_.integer(name), ", and '", found, "', which means the same, is ",
                             config_.integer(found), "; they must be equal. Remove the wrong one."));
    }
    if (found == nullptr) found = name;
  }
  return config_.integer(found != nullptr ? found : *names.begin(), 1, max);
}

int64_t HfReader::size_or(Names names, int64_t otherwise) const {
  for (const char* name : names)
    if (config_.has(name)) return size(names);
  return otherwise;
}

int64_t HfReader::size_or_default(Names names, int64_t otherwise) {
  const int64_t value = size_or(names, -1);
  if (value >= 0) return value;
  state(str("'", *names.begin(), "' is not in the file: taken as ", otherwise, ", the default of its library"));
  return otherwise;
}

Attention HfReader::attention(int64_t hidden, int64_t heads, int64_t kv_heads, int64_t default_head_dim) {
  Attention a;
  a.heads = heads;
  a.kv_heads = kv_heads;
  a.head_dim = default_head_dim > 0 ? size_or_default({"head_dim"}, default_head_dim) : size_or({"head_dim"}, 0);
  if (a.head_dim == 0) {
    if (hidden % heads != 0) {
      config_.fail("num_attention_heads", str("is ", heads, ", which does not divide the hidden size ", hidden,
                                              "; it must, or the file has to give 'head_dim'. Correct one of them."));
    }
    a.head_dim = hidden / heads;
  }
  if (heads % kv_heads != 0) {
    config_.fail("num_key_value_heads", str("is ", kv_heads, ", which does not divide the ", heads,
                                            " attention heads; it must. Correct one of them."));
  }
  return a;
}

std::vector<bool> HfReader::layer_types(int64_t layers) const {
  std::vector<bool> result;
  if (!config_.has("layer_types")) return result;
  for (const std::string& type : config_.texts("layer_types")) {
    const bool slides = type == "sliding_attention" || type == "chunked_attention";
    if (!slides && type != "full_attention") {
      config_.fail("layer_types", str("has \"", type,
                                      "\"; full_attention, sliding_attention or chunked_attention is "
                                      "modelled. Describe the model in a model file (docs/planner.md)."));
    }
    result.push_back(slides);
  }
  if (static_cast<int64_t>(result.size()) != layers) {
    config_.fail("layer_types",
                 str("has ", result.size(), " entries for ", layers, " layers; one each is required. Correct it."));
  }
  return result;
}

void check_countable(const ModelDesc& model, const JsonObject& config) {
  double total = static_cast<double>(model.hidden) * static_cast<double>(model.vocab + model.positions);
  for (const LayerRun& run : model.layers) {
    const TransformerLayer& layer = run.layer;
    double weights = 0;
    const auto h = static_cast<double>(model.hidden);
    const Attention& a = layer.attention;
    weights += h * static_cast<double>(a.heads) * static_cast<double>(a.head_dim) * 4;
    weights += static_cast<double>(a.q_rank + a.kv_rank) *
               (h + static_cast<double>(a.heads) * static_cast<double>(a.head_dim));
    if (layer.feed_forward) weights += 3 * h * static_cast<double>(layer.feed_forward->width);
    if (layer.experts) {
      weights += 3 * h * static_cast<double>(layer.experts->count) * static_cast<double>(layer.experts->width);
      weights += 3 * h * static_cast<double>(layer.experts->shared_width);
    }
    total += static_cast<double>(run.count) * weights;
  }
  if (total > 1e17) {
    throw Error(ErrorKind::kConfig, str(config.place(), "describes a model of ", total,
                                        " parameters; at most 1e17 are counted. Check its sizes."));
  }
}

void append_layers(ModelDesc& model, const std::vector<TransformerLayer>& layers, int stack) {
  for (const TransformerLayer& layer : layers) {
    if (!model.layers.empty() && model.layers.back().stack == stack && model.layers.back().layer == layer) {
      ++model.layers.back().count;
    } else {
      model.layers.push_back({layer, 1, stack});
    }
  }
}

}  // namespace trireme::plan
