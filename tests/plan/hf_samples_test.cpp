// The configuration files that the maintainers collected from public repositories, where they are beside the source tree.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "plan/hf_import.h"
#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

const std::filesystem::path kFolder =
    std::filesystem::path(TRIREME_SOURCE_DIR).parent_path() / "shared/cases/samples/hf_configs";

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, '\t');) fields.push_back(field);
  return fields;
}

// Oracle: params.tsv beside the files: published counts where there are any, else computed by a second program.
TEST(HfSamples, HaveTheListedNumberOfParameters) {
  if (!std::filesystem::exists(kFolder / "params.tsv")) GTEST_SKIP() << "no " << kFolder << " beside this source tree";
  std::ifstream list(kFolder / "params.tsv");
  std::string line;
  std::getline(list, line);
  int files = 0;
  while (std::getline(list, line)) {
    const std::vector<std::string> row = split(line);
    ASSERT_GE(row.size(), 4U) << line;
    if (row[0] == "-") continue;
    const ModelDesc model = import_hf_config(text_of(kFolder / row[0]), row[0]);
    EXPECT_GT(total_parameters(model), 0) << row[0];
    if (!row[2].empty()) {
      EXPECT_EQ(total_parameters(model), std::stoll(row[2])) << row[0];
    }
    if (!row[3].empty()) {
      EXPECT_EQ(active_parameters(model), std::stoll(row[3])) << row[0];
    }
    ++files;
  }
  EXPECT_EQ(files, 27);
}

// Oracle: a cut file is not JSON or lacks a size; both are one clear error, and nothing else may happen.
TEST(HfSamples, CutAnywhereGiveOneError) {
  if (!std::filesystem::exists(kFolder)) GTEST_SKIP() << "no " << kFolder << " beside this source tree";
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() != ".json") continue;
    const std::string text = text_of(entry.path());
    const size_t end = text.find_last_of('}');
    for (size_t length = 0; length <= end; length += 7) {
      try {
        (void)import_hf_config(text.substr(0, length), entry.path().filename().string());
        ADD_FAILURE() << entry.path() << " cut at " << length << " was accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace trireme::plan
