// What a model is to the planner: its layers with their sizes, nothing of how they are split.
//
// A transformer is a list of layer runs; any other network is a list of operators on one sample, layer by layer. Both count parameters
// and floating point operations exactly; bytes moved are those of an unfused eager run, which the software profile then scales.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme::plan {

/// Multi-head, multi-query or grouped-query attention; with kv_rank > 0 multi-head latent attention (DeepSeek-V2, arXiv:2405.04434).
struct Attention {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;          ///< of queries and keys; in latent attention the part without rotary embedding
  int64_t value_dim = 0;         ///< of values; 0 = head_dim
  int64_t q_rank = 0;            ///< latent attention: rank of the query's compression; 0 = none
  int64_t kv_rank = 0;           ///< latent attention: rank of the compression of keys and values
  int64_t rope_dim = 0;          ///< latent attention: the rotary part of each head, shared by the keys of all heads
  int64_t window = 0;            ///< tokens that a query sees; 0 = all before it (causal) or all
  int64_t relative_buckets = 0;  ///< T5's learned position bias (heads x buckets) that this layer owns
  bool causal = true;
  bool qkv_bias = false;
  bool out_bias = false;
  bool qk_norm = false;  ///< a norm of head_dim each on queries and keys
  bool sinks = false;    ///< one learned logit per head (gpt-oss)

  bool operator==(const Attention&) const = default;
};

struct FeedForward {
  int64_t width = 0;
  bool gated = false;
  bool bias = false;

  bool operator==(const FeedForward&) const = default;
};

/// Mixture of experts in place of the feed-forward block.
struct Experts {
  int64_t count = 0;
  int64_t active = 0;        ///< per token
  int64_t width = 0;         ///< of one expert
  int64_t shared_width = 0;  ///< all shared experts of the layer together
  bool gated = true;
  bool bias = false;
  bool router_bias = false;
  bool shared_gate = false;  ///< a sigmoid gate of `hidden` weights on the shared expert (Qwen 2 MoE)

  bool operator==(const Experts&) const = default;
};

struct TransformerLayer {
  Attention attention;
  std::optional<Attention> cross_attention;  ///< decoder of an encoder-decoder model
  std::optional<FeedForward> feed_forward;
  std::optional<Experts> experts;
  int norms = 2;  ///< norms of `hidden` each
  bool norm_bias = false;

  bool operator==(const TransformerLayer&) const = default;
};

/// `count` equal layers in a row. `stack` 0 is the only one, or the encoder; 1 the decoder.
struct LayerRun {
  TransformerLayer layer;
  int64_t count = 0;
  int stack = 0;
};

/// One operator of a network that is described layer by layer, for ONE sample; sizes in elements. It reads in x in_positions (a sum or
/// concatenation: of all its inputs together) and writes out x positions. positions 0: only its parameters count.
enum class OperatorKind {
  kConvolution,    ///< 1 to 3 spatial dimensions, groups
  kLinear,         ///< `positions` rows of `in` to `out`
  kBatchedMatmul,  ///< `groups` products of positions x in x out without weights (attention scores, mixing)
  kNorm,           ///< batch, layer or group norm
  kElementwise,    ///< activation, residual sum, scaling, drop path
  kPool,
  kSoftmax,
  kEmbedding,
  kGather,   ///< rows collected over the edges of a graph, `positions` of `in`
  kScatter,  ///< the same the other way, summed
};
struct Operator {
  OperatorKind kind = OperatorKind::kElementwise;
  std::string name;  ///< as in the source model: "layer1.0.conv2"
  int64_t in = 0;    ///< input channels or features
  int64_t out = 0;
  int64_t kernel = 1;  ///< product over the spatial dimensions (3 x 3 = 9)
  int64_t groups = 1;
  int64_t positions = 1;     ///< of the output: height x width (x depth), tokens, nodes or edges
  int64_t in_positions = 1;  ///< of the input
  int64_t parameters = 0;
  int64_t saved =
      0;  ///< elements of its results that stay until backward (0 in place, or where nobody needs them); their sum is the
          ///< activation memory of one sample
};

struct ModelDesc {
  std::string name;
  std::vector<std::string> other_names;  ///< as other programs and publications write it
  std::string family;                    ///< "llama", "gpt2", "resnet", ...
  std::string source;                    ///< where the sizes come from

  // Transformers.
  int64_t hidden = 0;
  int64_t vocab = 0;      ///< rows of the embedding as the model has them, not padded
  int64_t positions = 0;  ///< rows of a learned position table; 0 = rotary, ALiBi or none
  bool tied = false;      ///< the head uses the embedding's weights; counted once, whatever the pipeline degree
  bool head = true;       ///< a projection to the vocabulary
  std::vector<LayerRun> layers;
  int64_t first_parameters =
      0;  ///< before the first layer beside the tables: patch embedding, embedding norm, token types
  int64_t last_parameters =
      0;                   ///< after the last layer beside the projection: final norm, pooler, classifier, head bias
  double first_flops = 0;  ///< of first_parameters' products, forward, one sample: patch embedding
  double last_flops = 0;   ///< of last_parameters' products: pooler, classifier

  // Everything else.
  std::vector<Operator> operators;

  int64_t sequence = 0;                     ///< tokens of one sample where the model fixes it (ViT: 197), else 0
  std::vector<std::string> approximations;  ///< what is not as in the source; shown with every plan of this model

  [[nodiscard]] bool is_transformer() const { return !layers.empty(); }
  [[nodiscard]] int64_t num_layers() const;
};

/// Weights of one layer by the way in which parallel training splits them.
struct LayerParameters {
  int64_t split = 0;  ///< divided by the tensor-parallel degree: projections and their biases where they are split
  int64_t replicated =
      0;  ///< on every tensor-parallel rank: norms, biases after a row-wise product, routers, latent projections
  int64_t experts = 0;  ///< of all experts, divided by the expert-parallel degree
  [[nodiscard]] int64_t total() const { return split + replicated + experts; }
};
[[nodiscard]] LayerParameters parameters_of(const TransformerLayer& layer, int64_t hidden);

/// Floating point operations of one layer's forward pass of one sample of `sequence` tokens, by what limits them.
struct LayerFlops {
  double projections = 0;  ///< products with weights: attention's, feed-forward, shared experts, router
  double experts = 0;      ///< products with the active experts' weights
  double scores = 0;       ///< products of attention without weights: queries with keys, probabilities with values
  [[nodiscard]] double total() const { return projections + experts + scores; }
};
[[nodiscard]] LayerFlops forward_flops(const TransformerLayer& layer, int64_t hidden, int64_t sequence,
                                       bool causal_half);
/// The same of one operator of one sample: only products count.
[[nodiscard]] double forward_flops(const Operator& op);

/// All parameters; a tied head once.
[[nodiscard]] int64_t total_parameters(const ModelDesc& model);
/// Those that one token meets: of the experts only the active ones.
[[nodiscard]] int64_t active_parameters(const ModelDesc& model);

/// Floating point operations of one forward pass of one sample of `sequence` tokens (a multiply-add is two). The embedding's look-up is 0.
/// `causal_half`: count half of a causal attention's scores, as some sources do, instead of all.
[[nodiscard]] double forward_flops(const ModelDesc& model, int64_t sequence, bool causal_half);

}  // namespace trireme::plan
