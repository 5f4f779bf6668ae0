// Models with an encoder: BERT, T5, the vision transformer.
#include "base/str.h"
#include "plan/hf_reader.h"

namespace trireme::plan {
namespace {

/// Whether "architectures" has a name that ends so.
bool architecture_ends_with(const HfReader& reader, const char* end) {
  for (const std::string& name : reader.config().texts("architectures"))
    if (name.ends_with(end)) return true;
  return false;
}

TransformerLayer encoder_layer(HfReader& reader, int64_t hidden, int64_t heads) {
  TransformerLayer layer;
  layer.attention = reader.attention(hidden, heads, heads);
  layer.attention.causal = false;
  layer.attention.out_bias = true;
  layer.feed_forward = FeedForward{reader.size({"intermediate_size"}), false, true};
  layer.norm_bias = true;
  return layer;
}

}  // namespace

void read_bert(HfReader& reader, const std::string&) {
  ModelDesc& model = reader.model();
  const int64_t h = model.hidden = reader.size({"hidden_size"});
  const int64_t layers = reader.size({"num_hidden_layers"}, HfReader::kMostLayers);
  model.vocab = reader.size({"vocab_size"});
  model.positions = reader.size({"max_position_embeddings"});
  model.head = false;
  model.first_parameters = reader.size_or({"type_vocab_size"}, 2) * h + 2 * h;  // token types and the embedding's norm
  model.last_parameters = h * h + h;                                            // the pooler, on one token
  model.last_flops = 2.0 * static_cast<double>(h) * static_cast<double>(h);
  TransformerLayer layer = encoder_layer(reader, h, reader.size({"num_attention_heads"}));
  layer.attention.qkv_bias = true;
  model.layers.push_back({layer, layers, 0});
  if (architecture_ends_with(reader, "ForMaskedLM") || architecture_ends_with(reader, "ForPreTraining")) {
    check_countable(model, reader.config());
    // Its decoder is the table again (tied): transform, norm and a bias per word, without pooler.
    reader.state(
        str("planned as encoder and pooler; the masked-word head that the file names is left out (with it and without "
            "pooler: ",
            total_parameters(model) - model.last_parameters + h * h + 3 * h + model.vocab, " parameters)"));
  }
}

void read_t5(HfReader& reader, const std::string&) {
  ModelDesc& model = reader.model();
  const int64_t h = model.hidden = reader.size({"d_model"});
  const int64_t encoders = reader.size({"num_layers"}, HfReader::kMostLayers);
  const int64_t decoders = reader.size_or({"num_decoder_layers"}, encoders);
  model.vocab = reader.size({"vocab_size"});
  model.tied = reader.flag("tie_word_embeddings", true);
  model.last_parameters = 2 * h;  // the norms after encoder and decoder

  TransformerLayer layer;
  layer.attention.heads = layer.attention.kv_heads = reader.size({"num_heads"});
  layer.attention.head_dim = reader.size({"d_kv"});
  const int64_t buckets = reader.size_or({"relative_attention_num_buckets"}, 32);
  const std::string feed_forward = reader.config().text_or("feed_forward_proj", "relu");
  layer.feed_forward = FeedForward{reader.size({"d_ff"}), feed_forward.starts_with("gated-"), false};

  // The first layer of each stack owns the position bias that all its layers use.
  std::vector<TransformerLayer> stack(static_cast<size_t>(encoders), layer);
  for (TransformerLayer& one : stack) one.attention.causal = false;
  stack[0].attention.relative_buckets = buckets;
  append_layers(model, stack, 0);
  layer.cross_attention = layer.attention;
  layer.cross_attention->causal = false;
  layer.norms = 3;
  stack.assign(static_cast<size_t>(decoders), layer);
  stack[0].attention.relative_buckets = buckets;
  append_layers(model, stack, 1);
  reader.state("encoder and decoder are planned with one and the same sequence length");
}

void read_vit(HfReader& reader, const std::string&) {
  ModelDesc& model = reader.model();
  const int64_t h = model.hidden = reader.size({"hidden_size"});
  const int64_t layers = reader.size({"num_hidden_layers"}, HfReader::kMostLayers);
  const int64_t image = reader.size({"image_size"}, 1 << 16);
  const int64_t patch = reader.size({"patch_size"}, 1 << 12);
  const int64_t channels = reader.config().integer_or("num_channels", 3, 1, 1 << 10);
  if (image % patch != 0) {
    reader.config().fail("patch_size", str("is ", patch, ", which does not divide the image size ", image,
                                           "; it must. Correct one of them."));
  }
  const int64_t patches = (image / patch) * (image / patch);
  model.positions = model.sequence = patches + 1;
  model.head = false;
  const int64_t patch_weights = channels * patch * patch * h;
  model.first_parameters = patch_weights + h + h;  // with its bias; the class token
  model.first_flops = 2.0 * static_cast<double>(patches) * static_cast<double>(patch_weights);
  model.last_parameters = 2 * h;

  int64_t labels = reader.size_or({"num_labels"}, 0);
  if (labels == 0 && reader.config().is_object("id2label"))
    labels = static_cast<int64_t>(reader.config().object("id2label").keys().size());
  if (architecture_ends_with(reader, "ForImageClassification") ||
      (labels > 0 && !architecture_ends_with(reader, "ViTModel"))) {
    if (labels == 0) {
      labels = 2;
      reader.state("the file gives neither 'num_labels' nor 'id2label': 2 classes, the default of its library");
    }
    model.last_parameters += h * labels + labels;
    model.last_flops = 2.0 * static_cast<double>(h) * static_cast<double>(labels);
  } else {
    model.last_parameters += h * h + h;  // the pooler of the bare model
    model.last_flops = 2.0 * static_cast<double>(h) * static_cast<double>(h);
  }
  TransformerLayer layer = encoder_layer(reader, h, reader.size({"num_attention_heads"}));
  layer.attention.qkv_bias = reader.flag("qkv_bias", true);
  model.layers.push_back({layer, layers, 0});
}

}  // namespace trireme::plan
