#include "plan/hf_import.h"

#include <algorithm>
#include <map>

#include "base/nearest.h"
#include "base/str.h"
#include "plan/hf_reader.h"
#include "plan/json_object.h"
#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

constexpr const char* kComponent = "plan.hf_import";

using Read = void (*)(HfReader&, const std::string& type);

const std::map<std::string, Read, std::less<>>& readers() {
  static const std::map<std::string, Read, std::less<>> table{
      {"bert", read_bert},
      {"bloom", read_bloom},
      {"deepseek_v2", read_deepseek},
      {"deepseek_v3", read_deepseek},
      {"falcon", read_falcon},
      {"gemma", read_gemma},
      {"gemma2", read_gemma},
      {"gemma3", read_gemma},
      {"gemma3_text", read_gemma},
      {"gpt2", read_gpt2},
      {"gpt_neox", read_gpt_neox},
      {"gpt_oss", read_gpt_oss},
      {"kimi_k2", read_deepseek},
      {"llama", read_llama_like},
      {"llama4", read_llama4},
      {"llama4_text", read_llama4},
      {"mistral", read_llama_like},
      {"mixtral", read_llama_like},
      {"mpt", read_mpt},
      {"phi", read_phi},
      {"phi3", read_llama_like},
      {"qwen2", read_llama_like},
      {"qwen2_moe", read_llama_like},
      {"qwen3", read_llama_like},
      {"qwen3_moe", read_llama_like},
      {"roberta", read_bert},
      {"t5", read_t5},
      {"vit", read_vit},
  };
  return table;
}

[[noreturn]] void refuse(const JsonObject& config, const std::string& type) {
  const std::vector<std::string> known = hf_model_types();
  const std::string hint = did_you_mean(type, known);
  throw Error(ErrorKind::kUnsupported,
              str(config.place("model_type"), "is \"", type, "\", an architecture that is not modelled",
                  hint.empty() ? "." : hint, " Known: ", join(known),
                  ". Describe it in a model file (docs/planner.md), or let it be planned as one of these, which the "
                  "plan then states "
                  "(--like llama)."));
}

/// "gpt2" of "models/gpt2/config.json" and of "gpt2.json", where the file itself gives no name.
std::string name_from(const JsonObject& config) {
  std::string name = config.text_or("_name_or_path", "");
  if (!name.empty()) return name;
  std::string path = config.file();
  if (path.ends_with("/config.json")) path.resize(path.size() - 12);
  if (path.ends_with(".json")) path.resize(path.size() - 5);
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

}  // namespace

std::vector<std::string> hf_model_types() {
  std::vector<std::string> types;
  for (const auto& entry : readers()) types.push_back(entry.first);
  return types;
}

ModelDesc import_hf_config(std::string_view text, const std::string& file, const HfOptions& options) {
  return import_hf_config(JsonObject::parse(text, file, kComponent), options);
}

ModelDesc import_hf_config(const JsonObject& config, const HfOptions& options) {
  if (!config.has("model_type") && !config.has("architectures")) {
    config.fail("model_type",
                "is missing, and so is 'architectures'; the config.json of a Hugging Face model is required. Give that "
                "file, or a model file (docs/planner.md).");
  }
  const std::string type = config.text("model_type");
  ModelDesc model;
  model.name = name_from(config);
  model.family = type;
  model.source = config.file();
  std::string read_as = type;
  if (!readers().contains(type)) {
    if (options.like.empty()) refuse(config, type);
    if (!readers().contains(options.like)) {
      const std::vector<std::string> known = hf_model_types();
      const std::string hint = did_you_mean(options.like, known);
      throw Error(ErrorKind::kConfig, str("[", kComponent, "] no architecture is called '", options.like, "'",
                                          hint.empty() ? "." : hint, " Known: ", join(known), "."));
    }
    read_as = options.like;
    model.approximations.push_back(
        str("the architecture \"", type, "\" is not modelled: planned as \"", read_as, "\""));
  }
  HfReader reader(config, model);
  readers().at(read_as)(reader, read_as);
  check_countable(model, config);
  return model;
}

}  // namespace trireme::plan
