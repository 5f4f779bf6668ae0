// Decoders with root-mean-square norms, rotary positions and a gated feed-forward block, with or without experts.
#include <algorithm>

#include "base/str.h"
#include "plan/hf_reader.h"

namespace trireme::plan {
namespace {

struct Sizes {
  int64_t hidden = 0, layers = 0, heads = 0, kv_heads = 0;
};

Sizes read_sizes(HfReader& reader) {
  Sizes s;
  s.hidden = reader.size({"hidden_size"});
  s.layers = reader.size({"num_hidden_layers"}, HfReader::kMostLayers);
  s.heads = reader.size({"num_attention_heads"});
  // Left out means one per query head, except where the family's class says otherwise.
  s.kv_heads = reader.size_or({"num_key_value_heads"}, s.heads);
  ModelDesc& model = reader.model();
  model.hidden = s.hidden;
  model.vocab = reader.size({"vocab_size"});
  model.last_parameters = s.hidden;
  return s;
}

/// Experts in place of a dense block, of the families that spell their keys like Mixtral or like Qwen.
Experts read_experts(const HfReader& reader, const std::string& type) {
  Experts e;
  e.count = reader.size({"num_experts", "num_local_experts"});
  e.active = reader.size({"num_experts_per_tok"});
  if (e.active > e.count) {
    reader.config().fail("num_experts_per_tok",
                         str("is ", e.active, ", more than the ", e.count,
                             " experts; at most all of them can be active. Correct one of them."));
  }
  e.width = type == "mixtral" ? reader.size({"intermediate_size"}) : reader.size({"moe_intermediate_size"});
  if (type == "qwen2_moe") {
    e.shared_width = reader.size({"shared_expert_intermediate_size"});
    e.shared_gate = true;
  }
  return e;
}

bool has_experts(const HfReader& reader, const std::string& type, int64_t layer) {
  if (type == "mixtral") return true;
  if (type != "qwen2_moe" && type != "qwen3_moe") return false;
  if (reader.config().has("mlp_only_layers")) {
    const std::vector<int64_t> dense = reader.config().integers("mlp_only_layers");
    if (std::ranges::find(dense, layer) != dense.end()) return false;
  }
  return (layer + 1) % reader.size_or({"decoder_sparse_step"}, 1) == 0;
}

}  // namespace

void read_llama_like(HfReader& reader, const std::string& type) {
  const Sizes s = read_sizes(reader);
  ModelDesc& model = reader.model();
  model.tied = reader.flag("tie_word_embeddings", false);
  const bool qwen2 = type == "qwen2" || type == "qwen2_moe";
  const bool qwen3 = type == "qwen3" || type == "qwen3_moe";

  TransformerLayer layer;
  Attention& a = layer.attention;
  a = reader.attention(s.hidden, s.heads, s.kv_heads, qwen3 ? 128 : 0);
  a.qk_norm = qwen3;
  // Qwen 2 has biases on queries, keys and values though no key says so; Llama's flag covers all four products.
  a.qkv_bias = qwen2 ? reader.flag("qkv_bias", true) : reader.flag("attention_bias", false);
  a.out_bias = !qwen2 && a.qkv_bias;
  FeedForward dense;
  dense.gated = true;
  dense.bias = type == "llama" && reader.flag("mlp_bias", false);

  // Qwen 2 and 3 keep a sliding_window in the file and switch it on by a key of its own, for the layers from max_window_layers on.
  const bool switched = qwen2 || qwen3;
  const bool slides = switched ? reader.flag("use_sliding_window", false) : reader.config().has("sliding_window");
  const int64_t window = slides ? reader.size_or({"sliding_window"}, 0) : 0;
  const int64_t first = switched ? reader.size_or({"max_window_layers"}, 0) : 0;
  const std::vector<bool> sliding =
      reader.sliding_layers(s.layers, [&](int64_t i) { return window > 0 && i >= first; });

  std::vector<TransformerLayer> layers;
  for (int64_t i = 0; i < s.layers; ++i) {
    TransformerLayer one = layer;
    one.attention.window = sliding[static_cast<size_t>(i)] ? window : 0;
    if (has_experts(reader, type, i)) {
      one.experts = read_experts(reader, type);
    } else {
      dense.width = reader.size({"intermediate_size"});
      one.feed_forward = dense;
    }
    layers.push_back(one);
  }
  append_layers(model, layers);
}

void read_llama4(HfReader& outer, const std::string& type) {
  HfReader reader(type == "llama4" ? outer.config().object("text_config") : outer.config(), outer.model());
  if (type == "llama4") reader.state("the vision tower is left out: the text model is planned");
  const Sizes s = read_sizes(reader);
  ModelDesc& model = reader.model();
  model.tied = reader.flag("tie_word_embeddings", false);

  TransformerLayer layer;
  layer.attention = reader.attention(s.hidden, s.heads, s.kv_heads);
  layer.attention.qkv_bias = layer.attention.out_bias = reader.flag("attention_bias", false);
  Experts e;
  e.count = reader.size({"num_local_experts"});
  e.active = reader.size({"num_experts_per_tok"});
  e.width = e.shared_width = reader.size({"intermediate_size"});

  const int64_t chunk = reader.size_or({"attention_chunk_size"}, 0);
  if (chunk > 0)
    reader.state(
        str("attention in chunks of ", chunk, " tokens is counted as a window of as many: up to twice its products"));
  // Every fourth layer has no positions and sees everything.
  const std::vector<bool> sliding = reader.sliding_layers(s.layers, [&](int64_t i) { return (i + 1) % 4 != 0; });
  const int64_t step = reader.size_or({"interleave_moe_layer_step"}, 1);
  std::vector<int64_t> with_experts;
  const bool listed = reader.config().has("moe_layers");
  if (listed) with_experts = reader.config().integers("moe_layers");

  std::vector<TransformerLayer> layers;
  for (int64_t i = 0; i < s.layers; ++i) {
    TransformerLayer one = layer;
    one.attention.window = sliding[static_cast<size_t>(i)] ? chunk : 0;
    const bool sparse = listed ? std::ranges::find(with_experts, i) != with_experts.end() : (i + 1) % step == 0;
    if (sparse) {
      one.experts = e;
    } else {
      one.feed_forward = FeedForward{reader.size({"intermediate_size_mlp"}), true, false};
    }
    layers.push_back(one);
  }
  append_layers(model, layers);
}

void read_gemma(HfReader& outer, const std::string& type) {
  HfReader reader(type == "gemma3" ? outer.config().object("text_config") : outer.config(), outer.model());
  if (type == "gemma3") reader.state("the vision tower is left out: the text model is planned");
  const bool third = type == "gemma3" || type == "gemma3_text";
  Sizes s;
  ModelDesc& model = reader.model();
  model.hidden = s.hidden = reader.size({"hidden_size"});
  s.layers = reader.size({"num_hidden_layers"}, HfReader::kMostLayers);
  // Published files of Gemma 3 leave out what equals its class's defaults.
  s.heads = third ? reader.size_or_default({"num_attention_heads"}, 8) : reader.size({"num_attention_heads"});
  s.kv_heads =
      third ? reader.size_or_default({"num_key_value_heads"}, 4) : reader.size_or({"num_key_value_heads"}, s.heads);
  model.vocab = third ? reader.size_or_default({"vocab_size"}, 262208) : reader.size({"vocab_size"});
  model.tied = reader.flag("tie_word_embeddings", true);
  model.last_parameters = s.hidden;

  TransformerLayer layer;
  layer.attention = reader.attention(s.hidden, s.heads, s.kv_heads, 256);
  layer.attention.qkv_bias = layer.attention.out_bias = reader.flag("attention_bias", false);
  layer.attention.qk_norm = third;
  layer.feed_forward = FeedForward{reader.size({"intermediate_size"}), true, false};
  layer.norms = type == "gemma" ? 2 : 4;

  // Gemma 2 slides on every other layer, the first included; Gemma 3 on five of six.
  const int64_t window = type == "gemma" ? 0 : reader.size_or_default({"sliding_window"}, 4096);
  const int64_t pattern = third ? reader.size_or({"sliding_window_pattern", "_sliding_window_pattern"}, 6) : 2;
  const std::vector<bool> sliding =
      reader.sliding_layers(s.layers, [&](int64_t i) { return third ? (i + 1) % pattern != 0 : i % 2 == 0; });
  std::vector<TransformerLayer> layers;
  for (int64_t i = 0; i < s.layers; ++i) {
    layers.push_back(layer);
    layers.back().attention.window = sliding[static_cast<size_t>(i)] ? window : 0;
  }
  append_layers(model, layers);
}

void read_gpt_oss(HfReader& reader, const std::string&) {
  const Sizes s = read_sizes(reader);
  ModelDesc& model = reader.model();
  model.tied = reader.flag("tie_word_embeddings", false);
  TransformerLayer layer;
  layer.attention = reader.attention(s.hidden, s.heads, s.kv_heads, 64);
  layer.attention.qkv_bias = layer.attention.out_bias = reader.flag("attention_bias", true);
  layer.attention.sinks = true;
  Experts e;
  e.count = reader.size({"num_local_experts"});
  e.active = reader.size({"num_experts_per_tok", "experts_per_token"});
  e.width = reader.size({"intermediate_size"});
  e.bias = e.router_bias = true;
  layer.experts = e;
  const int64_t window = reader.size_or_default({"sliding_window"}, 128);
  const std::vector<bool> sliding = reader.sliding_layers(s.layers, [](int64_t i) { return i % 2 == 0; });
  std::vector<TransformerLayer> layers;
  for (int64_t i = 0; i < s.layers; ++i) {
    layers.push_back(layer);
    layers.back().attention.window = sliding[static_cast<size_t>(i)] ? window : 0;
  }
  append_layers(model, layers);
}

void read_deepseek(HfReader& reader, const std::string& type) {
  Sizes s = read_sizes(reader);
  ModelDesc& model = reader.model();
  model.tied = reader.flag("tie_word_embeddings", false);
  TransformerLayer layer;
  Attention& a = layer.attention;
  a.heads = a.kv_heads = s.heads;
  a.head_dim = reader.size({"qk_nope_head_dim"});
  a.rope_dim = reader.size({"qk_rope_head_dim"});
  a.value_dim = reader.size({"v_head_dim"});
  a.kv_rank = reader.size({"kv_lora_rank"});
  a.q_rank = reader.size_or({"q_lora_rank"}, 0);  // null in V2-Lite: queries are not compressed
  a.qkv_bias = a.out_bias = reader.flag("attention_bias", false);

  const int64_t dense_first = reader.config().integer_or("first_k_dense_replace", 0);
  const int64_t every = reader.size_or({"moe_layer_freq"}, 1);
  const int64_t extra = reader.config().integer_or("num_nextn_predict_layers", 0);
  if (extra > 0) reader.state(str("its ", extra, " layer(s) of multi-token prediction are left out"));
  std::vector<TransformerLayer> layers;
  for (int64_t i = 0; i < s.layers; ++i) {
    TransformerLayer one = layer;
    if (reader.config().has("n_routed_experts") && i >= dense_first && i % every == 0) {
      Experts e;
      e.count = reader.size({"n_routed_experts"});
      e.active = reader.size({"num_experts_per_tok"});
      e.width = reader.size({"moe_intermediate_size"});
      e.shared_width = e.width * reader.config().integer_or("n_shared_experts", 0, 0, 1 << 20);
      e.router_bias = type != "deepseek_v2";  // the correction of the scores that balances the load
      one.experts = e;
    } else {
      one.feed_forward = FeedForward{reader.size({"intermediate_size"}), true, false};
    }
    layers.push_back(one);
  }
  append_layers(model, layers);
}

}  // namespace trireme::plan
