#include "plan/model_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <map>
#include <string>

#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

const ModelCatalog& shipped() {
  static const ModelCatalog catalog = load_models();
  return catalog;
}

// Oracle: parameter counts as the authors of the networks or torchvision and timm publish them, typed again here.
TEST(ModelFiles, HaveThePublishedNumberOfParameters) {
  const std::map<std::string, int64_t> published{
      {"resnet34", 21'797'672},
      {"resnet50", 25'557'032},
      {"resnet101", 44'549'160},
      {"wide_resnet50_2", 68'883'240},
      {"resnext50_32x4d", 25'028'904},
      {"seresnet50", 28'088'024},
      {"densenet121", 7'978'856},
      {"inception_v3", 23'834'568},
      {"efficientnet_b0", 5'288'548},
      {"efficientnet_b1", 7'794'184},
      {"efficientnet_b2", 9'109'994},
      {"efficientnet_b3", 12'233'232},
      {"regnety_080", 39'180'068},
      {"regnety_160", 83'590'140},
      {"convnext_tiny", 28'589'128},
      {"convnext_small", 50'223'688},
      {"convnext_base", 88'591'464},
      {"convnext_large", 197'767'336},
      {"mixer_b16_224", 59'880'472},
      {"vit_tiny_patch16_224", 5'717'416},
      {"vit_small_patch16_224", 22'050'664},
      {"vit_base_patch16_224", 86'567'656},
      {"vit_base_patch32_224", 88'224'232},
      {"vit_large_patch16_224", 304'326'632},
      {"deit_tiny_patch16_224", 5'717'416},
      {"deit_small_patch16_224", 22'050'664},
      {"deit_base_patch16_224", 86'567'656},
      {"swin_small_patch4_window7_224", 49'606'258},
      {"swin_base_patch4_window7_224", 87'768'224},
      {"swinv2_tiny_window8_256", 28'347'154},
      {"xcit_small_12_p16_224", 26'253'304},
      {"unet3d", 19'069'955},        // Cicek et al. 2016, section 2
      {"graphsage_arxiv", 218'664},  // Open Graph Benchmark, leader board of ogbn-arxiv
      {"bert-base-pretrain", 110'106'428},
      {"bert-large-pretrain", 336'226'108},
      {"bert-base", 109'482'240},
      {"bert-large", 335'141'888},
      {"deepseek-v2", 235'741'434'880},
      {"deepseek-v3", 671'026'419'200},
      {"qwen3-30b-a3b", 30'532'122'624},
      {"gpt-oss-20b", 20'914'757'184},
      {"gpt-oss-120b", 116'829'156'672},
      {"llama3-70b", 70'553'706'496},
      {"llama3.1-405b", 405'853'388'800},
      {"bloom-176b", 176'247'271'424},
  };
  for (const auto& [name, parameters] : published) {
    const ModelDesc* model = shipped().find(name);
    ASSERT_NE(model, nullptr) << name;
    EXPECT_EQ(total_parameters(*model), parameters) << name;
    EXPECT_FALSE(model->source.empty()) << name;
  }
  const ModelDesc* kimi = shipped().find("Kimi_K2");
  ASSERT_NE(kimi, nullptr);
  EXPECT_NEAR(static_cast<double>(total_parameters(*kimi)), 1.026e12, 0.01e12);
  EXPECT_NEAR(static_cast<double>(active_parameters(*kimi)), 32.9e9, 0.5e9);
}

// Oracle: billions of multiply-adds of one image, as timm and the papers publish them; attention scores count, poolings and norms do not.
TEST(ModelFiles, HaveThePublishedMultiplyAdds) {
  const std::map<std::string, double> published{
      {"resnet34", 3.67},
      {"resnet50", 4.09},
      {"resnet101", 7.80},
      {"wide_resnet50_2", 11.4},
      {"resnext50_32x4d", 4.23},
      {"densenet121", 2.83},
      {"inception_v3", 5.7},
      {"efficientnet_b0", 0.39},
      {"regnety_080", 8.0},
      {"regnety_160", 15.95},
      {"convnext_tiny", 4.46},
      {"convnext_small", 8.69},
      {"convnext_base", 15.36},
      {"convnext_large", 34.36},
      {"mixer_b16_224", 12.6},
      {"vit_tiny_patch16_224", 1.26},
      {"vit_small_patch16_224", 4.61},
      {"vit_base_patch16_224", 17.58},
      {"vit_large_patch16_224", 61.6},
      {"swin_small_patch4_window7_224", 8.76},
      {"swin_base_patch4_window7_224", 15.46},
      {"swinv2_tiny_window8_256", 5.96},
      {"xcit_small_12_p16_224", 4.82},
  };
  for (const auto& [name, giga] : published) {
    const ModelDesc* model = shipped().find(name);
    ASSERT_NE(model, nullptr) << name;
    EXPECT_NEAR(forward_flops(*model, 0, false) / 2e9, giga, 0.02 * giga) << name;
  }
}

// Oracle: the rule by which one model is found without reading all.
TEST(ModelFiles, AreCalledByTheirNames) {
  for (const ModelDesc& model : shipped().models) {
    std::string file = model.name;
    for (char& c : file)
      if (c == '-' || c == '.') c = '_';
    EXPECT_EQ(read_model(TRIREME_SOURCE_DIR "/models/" + file + ".json").name, model.name);
  }
}

// Oracle: the models of the published throughput tables, as those spell them.
TEST(ModelFiles, KnowTheNamesOfPublishedTables) {
  for (const char* name : {"DeepSeekV3", "DeepSeekV3-671B", "Qwen3_30B_a3B", "Qwen3_235B_a22B", "GPT OSS 120B",
                           "Kimi_K2", "ResNet50v1.5", "ResNet101", "BERT-base-pretrain", "Llama4-Maverick-400B",
                           "deepseekv2-4layers", "deepseekv3-4layers", "LLAMA3_8B", "ViT-B/16"}) {
    EXPECT_NE(shipped().find(name), nullptr) << name;
  }
}

// Oracle: the definition: what stays for backward is a part of what is written (an index of a pooling has 8 bytes, an element 4; a norm keeps
// mean and scale beside its result).
TEST(ModelFiles, KeepNoMoreThanTheyWrite) {
  for (const ModelDesc& model : shipped().models) {
    for (const Operator& op : model.operators) {
      // Indices of a pooling are 8 bytes where elements are 4; norms keep mean and scale of each channel or row.
      const int64_t written =
          op.out * op.positions * std::max<int64_t>(1, op.kind == OperatorKind::kBatchedMatmul ? op.groups : 1);
      const int64_t allowed = op.kind == OperatorKind::kPool ? 3 * written : written + 2 * (op.out + op.positions);
      EXPECT_LE(op.saved, allowed) << model.name << " " << op.name;
    }
  }
}

std::string message_of(const std::string& text) {
  try {
    (void)parse_model(text, "m.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Oracle: by hand, a block of two operators that stands three times.
TEST(ModelFile, RepeatsBlocksUnderNumberedNames) {
  const ModelDesc model = parse_model(R"({"schema": 1, "name": "small", "source": "here", "parameters": 81, "blocks": [
    {"name": "layer.", "first": 1, "count": 3, "operators": [
      {"kind": "convolution", "name": "conv", "in": 1, "out": 3, "kernel": 9, "positions": 16, "parameters": 27, "saved": 48},
      {"kind": "elementwise", "name": "relu", "in": 3, "out": 3, "positions": 16}]}]})",
                                      "m.json");
  ASSERT_EQ(model.operators.size(), 6U);
  EXPECT_EQ(model.operators[2].name, "layer.2.conv");
  EXPECT_EQ(model.operators[2].in_positions, 16);
  EXPECT_EQ(forward_flops(model, 0, false), 3 * 2.0 * 16 * 3 * 9);
  EXPECT_FALSE(model.is_transformer());
}

// Oracle: the same transformer through the project's own keys and through Hugging Face's.
TEST(ModelFile, SaysTheSameInBothForms) {
  const ModelDesc own = parse_model(
      R"({"schema": 1, "name": "t", "source": "s", "transformer": {"hidden": 64, "vocab": 100, "last_parameters": 64,
    "layers": [{"count": 2, "attention": {"heads": 4, "kv_heads": 2, "head_dim": 16}, "feed_forward": {"width": 128, "gated": true}}]}})",
      "m.json");
  const ModelDesc hf =
      parse_model(R"({"schema": 1, "name": "t", "source": "s", "huggingface": {"model_type": "llama", "hidden_size": 64,
    "vocab_size": 100, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128}})",
                  "m.json");
  EXPECT_EQ(total_parameters(own), total_parameters(hf));
  EXPECT_EQ(forward_flops(own, 32, true), forward_flops(hf, 32, true));
}

// Oracle: one message per fault, with file, key and remedy.
TEST(ModelFile, NamesFileAndKeyOfAFault) {
  const std::string start = R"({"schema": 1, "name": "x", "source": "s", )";
  EXPECT_THAT(message_of(start + R"("parameters": 3, "blocks": [{"operators": [{"kind": "norm", "parameters": 2}]}]})"),
              HasSubstr("key 'parameters' is 3, but the sizes in the file give 2; they must agree"));
  EXPECT_THAT(message_of(start + R"("blocks": [{"operators": [{"kind": "convolutoin"}]}]})"),
              HasSubstr("key 'blocks.0.operators.0.kind' is \"convolutoin\"; did you mean 'convolution'?"));
  EXPECT_THAT(message_of(start + R"("blocks": [{"operators": [{"kind": "linear", "in": 3}]}]})"),
              HasSubstr("a product needs both"));
  EXPECT_THAT(
      message_of(start + R"("blocks": [{"operators": [{"kind": "convolution", "in": 3, "out": 4, "groups": 2}]}]})"),
      HasSubstr("is 2, which does not divide 3 inputs"));
  EXPECT_THAT(message_of(R"({"schema": 1, "name": "x", "source": "s"})"),
              HasSubstr("0 of them are there; exactly one is required"));
  EXPECT_THAT(
      message_of(
          start +
          R"("transformer": {"hidden": 8, "layers": [{"attention": {"heads": 3, "kv_heads": 2, "head_dim": 4}}]}})"),
      HasSubstr("key 'transformer.layers.0.attention.kv_heads' is 2, which does not divide 3 heads"));
  EXPECT_THAT(message_of("[1]"), HasSubstr("[plan.model_file] m.json: holds array on top"));
}

// Oracle: a name that is neither file nor model is refused with the nearest known name; a missing file by its path.
TEST(ReadModel, RefusesWhatItCannotFind) {
  const auto message = [](const std::string& name) -> std::string {
    try {
      (void)read_model(name);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message("resnet5O"),
              HasSubstr("no file and no shipped model is called 'resnet5O'; did you mean 'resnet50'?"));
  EXPECT_THAT(message("nowhere/config.json"), HasSubstr("cannot read 'nowhere/config.json'"));
  EXPECT_THAT(message("mixtral_8x7"), HasSubstr("did you mean 'mixtral_8x7b'?"));
  EXPECT_THAT(message("ViT-B/61"), HasSubstr("cannot read 'ViT-B/61'"));
  EXPECT_EQ(read_model("ResNet-50").name, "resnet50");
  EXPECT_EQ(read_model("Llama3.1-405b").name, "llama3.1-405b");
  EXPECT_EQ(read_model(TRIREME_SOURCE_DIR "/models/resnet50.json").name, "resnet50");
}

// Oracle: the help's promise: a shipped model by its own name, by each of its other names, and by its file's, without regard to case.
TEST(ReadModel, TakesEveryNameOfAShippedModel) {
  for (const ModelDesc& model : shipped().models) {
    EXPECT_EQ(read_model(model.name).name, model.name);
    for (const std::string& name : model.other_names) {
      ASSERT_NE(shipped().find(name), nullptr) << name;
      EXPECT_EQ(shipped().find(name)->name, model.name) << name;
      if (name.find('/') == std::string::npos) continue;  // else it could be taken for a path
      EXPECT_EQ(read_model(name).name, model.name) << name;
    }
  }
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TRIREME_SOURCE_DIR "/models")) {
    std::string name = entry.path().stem().string();
    const std::string model = read_model(entry.path().string()).name;
    EXPECT_EQ(read_model(name).name, model) << name;
    for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    EXPECT_EQ(read_model(name).name, model) << name;
    ++files;
  }
  EXPECT_EQ(static_cast<size_t>(files), shipped().models.size());
}

// Oracle: the rule: no text of a file makes a terminal do something, in JSON's spelling of it or raw.
TEST(ModelFile, HasNoControlCharactersInItsTexts) {
  for (const char* name : {"\\u001b[2J", "a\\u0007", "a\\u009b2J", "a\\u007f", "two\\nlines"}) {
    EXPECT_THAT(
        message_of(str(
            R"({"schema": 1, "name": ")", name,
            R"(", "source": "s", "transformer": {"hidden": 8, "layers": [{"attention": {"heads": 1, "head_dim": 8}}]}})")),
        HasSubstr("key 'name' has a control character at position"))
        << name;
  }
  EXPECT_THAT(message_of("{\"schema\": 1, \"name\": \"a\x1b[2J\"}"), HasSubstr("not JSON"));
}

}  // namespace
}  // namespace trireme::plan
