// Decoders with layer norms and biases: GPT-2 and what followed it before Llama.
#include "base/str.h"
#include "plan/hf_reader.h"

namespace trireme::plan {
namespace {

/// A layer of GPT-2: biases everywhere (unless `bias` is false), two layer norms, a feed-forward block without gate.
TransformerLayer gpt_layer(const Attention& attention, int64_t width, bool bias = true) {
  TransformerLayer layer;
  layer.attention = attention;
  layer.attention.qkv_bias = layer.attention.out_bias = bias;
  layer.feed_forward = FeedForward{width, false, bias};
  layer.norm_bias = true;
  return layer;
}

}  // namespace

void read_gpt2(HfReader& reader, const std::string&) {
  ModelDesc& model = reader.model();
  model.hidden = reader.size({"n_embd", "hidden_size"});
  const int64_t layers = reader.size({"n_layer", "num_hidden_layers"}, HfReader::kMostLayers);
  const int64_t heads = reader.size({"n_head", "num_attention_heads"});
  model.vocab = reader.size({"vocab_size"});
  model.positions = reader.size({"n_positions", "max_position_embeddings", "n_ctx"});
  model.tied = reader.flag("tie_word_embeddings", true);
  model.last_parameters = 2 * model.hidden;
  const int64_t width = reader.size_or({"n_inner"}, 4 * model.hidden);
  model.layers.push_back({gpt_layer(reader.attention(model.hidden, heads, heads), width), layers, 0});
}

void read_gpt_neox(HfReader& reader, const std::string&) {
  ModelDesc& model = reader.model();
  model.hidden = reader.size({"hidden_size"});
  const int64_t layers = reader.size({"num_hidden_layers"}, HfReader::kMostLayers);
  const int64_t heads = reader.size({"num_attention_heads"});
  model.vocab = reader.size({"vocab_size"});
  model.tied = reader.flag("tie_word_embeddings", false);
  model.last_parameters = 2 * model.hidden;
  TransformerLayer layer = gpt_layer(reader.attention(model.hidden, heads, heads), reader.size({"intermediate_size"}));
  layer.attention.qkv_bias = layer.attention.out_bias = reader.flag("attention_bias", true);
  model.layers.push_back({layer, layers, 0});
}

void read_phi(HfReader& reader, const std::string&) {
  ModelDesc& model = reader.model();
  model.hidden = reader.size({"hidden_size"});
  const int64_t layers = reader.size({"num_hidden_layers"}, HfReader::kMostLayers);
  const int64_t heads = reader.size({"num_attention_heads"});
  model.vocab = reader.size({"vocab_size"});
  model.tied = reader.flag("tie_word_embeddings", false);
  model.last_parameters = 2 * model.hidden + model.vocab;  // the head has a bias
  const Attention attention = reader.attention(model.hidden, heads, reader.size_or({"num_key_value_heads"}, heads));
  TransformerLayer layer = gpt_layer(attention, reader.size({"intermediate_size"}));
  layer.norms = 1;  // attention and feed-forward stand side by side behind one norm
  if (reader.flag("qk_layernorm", false)) {
    layer.attention.qk_norm = true;
    reader.state("the biases of its norms of queries and keys are not counted");
  }
  model.layers.push_back({layer, layers, 0});
}

void read_falcon(HfReader& reader, const std::string&) {
  ModelDesc& model = reader.model();
  model.hidden = reader.size({"hidden_size", "n_embed"});
  const int64_t layers = reader.size({"num_hidden_layers", "n_layer"}, HfReader::kMostLayers);
  const int64_t heads = reader.size({"num_attention_heads", "n_head"});
  model.vocab = reader.size({"vocab_size"});
  model.tied = reader.flag("tie_word_embeddings", true);
  model.last_parameters = 2 * model.hidden;
  const bool fresh = reader.flag("new_decoder_architecture", false);
  int64_t kv_heads = heads;
  if (fresh) {
    kv_heads = reader.size_or({"num_kv_heads", "n_head_kv"}, heads);
  } else if (reader.flag("multi_query", true)) {
    kv_heads = 1;
  }
  const bool bias = reader.flag("bias", false);
  TransformerLayer layer = gpt_layer(reader.attention(model.hidden, heads, kv_heads),
                                     reader.size_or({"ffn_hidden_size"}, 4 * model.hidden), bias);
  // The two halves of a layer stand side by side: behind one norm in the 7B, behind one each in the 40B.
  const int64_t norms = fresh ? reader.size_or({"num_ln_in_parallel_attn"}, 2) : 1;
  layer.norms = reader.flag("parallel_attn", true) || fresh ? static_cast<int>(norms) : 2;
  model.layers.push_back({layer, layers, 0});
}

void read_bloom(HfReader& reader, const std::string&) {
  ModelDesc& model = reader.model();
  model.hidden = reader.size({"hidden_size", "n_embed"});
  const int64_t layers = reader.size({"n_layer", "num_hidden_layers"}, HfReader::kMostLayers);
  const int64_t heads = reader.size({"n_head", "num_attention_heads"});
  model.vocab = reader.size({"vocab_size"});
  model.tied = reader.flag("tie_word_embeddings", true);
  model.first_parameters = 2 * model.hidden;  // the norm of the embedding
  model.last_parameters = 2 * model.hidden;
  model.layers.push_back({gpt_layer(reader.attention(model.hidden, heads, heads), 4 * model.hidden), layers, 0});
}

void read_mpt(HfReader& reader, const std::string&) {
  ModelDesc& model = reader.model();
  model.hidden = reader.size({"d_model"});
  const int64_t layers = reader.size({"n_layers"}, HfReader::kMostLayers);
  const int64_t heads = reader.size({"n_heads"});
  model.vocab = reader.size({"vocab_size"});
  model.tied = reader.flag("tie_word_embeddings", true);
  const bool bias = !reader.flag("no_bias", true);
  TransformerLayer layer = gpt_layer(reader.attention(model.hidden, heads, heads),
                                     reader.size_or({"expansion_ratio"}, 4) * model.hidden, bias);
  layer.norm_bias = bias;
  // ALiBi has no parameters; the learned table is there when it is switched off.
  if (reader.config().is_object("attn_config")) {
    const JsonObject attention = reader.config().object("attn_config");
    if (!attention.boolean_or("alibi", true)) model.positions = reader.size({"max_seq_len"});
  }
  model.last_parameters = (bias ? 2 : 1) * model.hidden;
  model.layers.push_back({layer, layers, 0});
}

}  // namespace trireme::plan
