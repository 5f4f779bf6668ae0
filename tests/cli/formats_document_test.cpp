// Oracle: the reader of checkpoints itself. What docs/formats.md shows of one must be a checkpoint's, checksum included; that
// trireme train still writes just this is a test of train_test.py.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "base/safetensors.h"
#include "checkpoint/folder/index.h"

namespace trireme::checkpoint {
namespace {

std::string section() {
  std::ifstream in(TRIREME_SOURCE_DIR "/docs/formats.md");
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const size_t begin = text.find("## Checkpoints");
  return text.substr(begin, text.find("\n## ", begin) - begin);
}

/// The `which`th block of code, from 0.
std::string block(const std::string& text, int which) {
  const std::string fence = "```json\n";
  size_t begin = text.find(fence);
  for (; which > 0; --which) begin = text.find(fence, begin + 1);
  begin += fence.size();
  return text.substr(begin, text.find("```", begin) - begin);
}

TEST(FormatsDocument, ItsIndexIsOne) {
  const Index index = parse_index(block(section(), 0), "docs/formats.md");
  EXPECT_EQ(index.step, 2);
  EXPECT_EQ(index.metadata.at("recipe"), "mlp");
  EXPECT_EQ(index.weight_map.size(), 10U);
}

TEST(FormatsDocument, ItsShardHeaderFitsTheIndex) {
  const std::string text = section();
  std::string header;
  // On one line in the file.
  for (const char c : block(text, 1)) {
    if (c != '\n' && c != ' ') header += c;
  }
  const Index index = parse_index(block(text, 0), "docs/formats.md");
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i) & 0xFF);
  EXPECT_NE(text.find(std::to_string(header.size()) + " here"), std::string::npos);
  file += header;
  file.resize(index.files.at(kShardName).bytes, '\0');  // the values
  const safetensors::FileView view = safetensors::parse(std::as_bytes(std::span(file)), "docs/formats.md");
  ASSERT_EQ(view.tensors.size(), index.weight_map.size());
  for (const auto& [name, tensor] : view.tensors) EXPECT_TRUE(index.weight_map.contains(name)) << name;
}

}  // namespace
}  // namespace trireme::checkpoint
