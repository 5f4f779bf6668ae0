// Model files and configurations with one value made wrong.
#include <gtest/gtest.h>

#include <array>
#include <cctype>
#include <random>
#include <string>
#include <vector>

#include "plan/data_folder.h"
#include "plan/json_object.h"
#include "plan/model_file.h"
#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

/// Where the numbers of a JSON text stand: begin and length.
std::vector<std::pair<size_t, size_t>> numbers_of(const std::string& text) {
  std::vector<std::pair<size_t, size_t>> found;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (quoted || std::isdigit(static_cast<unsigned char>(text[i])) == 0) continue;
    size_t end = i;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
    found.emplace_back(i, end - i);
    i = end;
  }
  return found;
}

// Oracle: whatever a number of a shipped file is replaced by, the reader gives a model whose counts are not negative, or one error of a kind
// that a wrong file has. Run under UBSan this also proves that no size overflows.
TEST(ModelMutations, GiveAModelOrOneError) {
  constexpr std::array<const char*, 12> kValues{
      "0", "-1", "1e18", "0.5", "true", "null", "\"x\"", "2147483647", "134217728", "[]", "{}", "99999999999999999999"};
  std::mt19937 random(20261130);
  int accepted = 0;
  int refused = 0;
  for (const std::string& path : json_files_in(data_folder("models"))) {
    const std::string text = read_text(path, "test");
    if (text.size() > 8000) continue;  // networks have their sizes in thousands of equal places
    const auto numbers = numbers_of(text);
    for (int i = 0; i < 40; ++i) {
      const auto [begin, length] = numbers[random() % numbers.size()];
      std::string changed = text;
      changed.replace(begin, length, kValues[random() % kValues.size()]);
      // Without the file's own sum, which would refuse nearly every change.
      const size_t sum = changed.find("\"parameters\":");
      if (sum != std::string::npos && changed.find("\"blocks\"") == std::string::npos)
        changed.replace(sum, 12, "\"_param\"    ");
      try {
        const ModelDesc model = parse_model(changed, path);
        EXPECT_GE(total_parameters(model), 0) << changed;
        EXPECT_GE(forward_flops(model, 1024, true), 0) << changed;
        ++accepted;
      } catch (const Error& error) {
        EXPECT_TRUE(error.kind() == ErrorKind::kConfig || error.kind() == ErrorKind::kUnsupported) << error.what();
        ++refused;
      }
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace trireme::plan
