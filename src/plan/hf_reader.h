// What the readers of Hugging Face families share: sizes under several names, defaults that are stated, equal layers joined to runs.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "plan/json_object.h"
#include "trireme/plan/model_desc.h"

namespace trireme::plan {

using Names = std::initializer_list<const char*>;

/// One configuration and the model that grows from it.
class HfReader {
 public:
  HfReader(JsonObject config, ModelDesc& model) : config_(std::move(config)), model_(model) {}

  /// The size under the first of `names` that is there. kConfig when none is, or when two of them differ.
  [[nodiscard]] int64_t size(Names names, int64_t max = kLargest) const;
  /// The same; `otherwise` where the key may be left out and its meaning is clear (kv heads = heads).
  [[nodiscard]] int64_t size_or(Names names, int64_t otherwise) const;
  /// The same; `otherwise` is the default of the model's own library and is stated as an approximation.
  [[nodiscard]] int64_t size_or_default(Names names, int64_t otherwise);
  [[nodiscard]] bool flag(const char* name, bool otherwise) const { return config_.boolean_or(name, otherwise); }

  void state(const std::string& approximation) { model_.approximations.push_back(approximation); }

  /// Attention with `head_dim` from the file, else the default of the family's library (stated), else hidden / heads. kConfig when that is no whole number or kv heads do not divide heads.
  [[nodiscard]] Attention attention(int64_t hidden, int64_t heads, int64_t kv_heads, int64_t default_head_dim = 0);

  /// Which layers slide: from "layer_types", else by `slides` (index of the layer).
  template <typename Slides>
  [[nodiscard]] std::vector<bool> sliding_layers(int64_t layers, Slides slides) const {
    std::vector<bool> result = layer_types(layers);
    if (result.empty())
      for (int64_t i = 0; i < layers; ++i) result.push_back(slides(i));
    return result;
  }

  [[nodiscard]] const JsonObject& config() const { return config_; }
  [[nodiscard]] ModelDesc& model() { return model_; }

  /// Products of two sizes stay within 64 bits; check_countable looks after the rest.
  static constexpr int64_t kLargest = int64_t{1} << 27;
  static constexpr int64_t kMostLayers = 100'000;

 private:
  [[nodiscard]] std::vector<bool> layer_types(int64_t layers) const;  // empty when the file has no such key

  JsonObject config_;
  ModelDesc& model_;
};

/// Appends layers as runs of equal ones.
void append_layers(ModelDesc& model, const std::vector<TransformerLayer>& layers, int stack = 0);

/// Refuses (kConfig) sizes whose product leaves the whole numbers of 64 bits. total_parameters is safe after it.
void check_countable(const ModelDesc& model, const JsonObject& config);

// The families. Each fills reader.model(); name, family and source are set by the caller.
void read_llama_like(HfReader& reader,
                     const std::string& type);  // llama mistral mixtral qwen2 qwen3 phi3 granite and their experts
void read_llama4(HfReader& reader, const std::string& type);
void read_gemma(HfReader& reader, const std::string& type);
void read_gpt_oss(HfReader& reader, const std::string& type);
void read_deepseek(HfReader& reader, const std::string& type);
void read_gpt2(HfReader& reader, const std::string& type);
void read_gpt_neox(HfReader& reader, const std::string& type);
void read_phi(HfReader& reader, const std::string& type);
void read_falcon(HfReader& reader, const std::string& type);
void read_bloom(HfReader& reader, const std::string& type);
void read_mpt(HfReader& reader, const std::string& type);
void read_bert(HfReader& reader, const std::string& type);
void read_t5(HfReader& reader, const std::string& type);
void read_vit(HfReader& reader, const std::string& type);

}  // namespace trireme::plan
