// The configuration files that the maintainers collected from public repositories, where they are beside the source tree.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "plan/hf_import.h"
#include "plan/numbers.h"
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

/// Weights of all pipeline ranks together, as elements.
double weights_over_ranks(const ModelDesc& model, int64_t pp) {
  Plan plan;
  plan.pp = pp;
  TrainingNumbers training;
  training.global_batch = training.sequence = 1;
  Bytes bytes;
  for (int rank = 0; rank < pp; ++rank)
    bytes += stage_memory(numbers_of(model), MachineNumbers{}, training, plan, rank).weights;
  return bytes / training.weight_bytes;
}

// Oracle (case N03): the total is a property of the model: params.tsv's, whatever the pipeline degree. What a pipeline adds is the copy of a
// tied table on its last rank and nothing else; of models whose table is not tied, nothing.
TEST(HfSamples, ATiedTableCountsOnceWhateverThePipeline) {
  if (!std::filesystem::exists(kFolder / "params.tsv")) GTEST_SKIP() << "no " << kFolder << " beside this source tree";
  std::ifstream list(kFolder / "params.tsv");
  std::string line;
  std::getline(list, line);
  int tied = 0, untied = 0;
  while (std::getline(list, line)) {
    const std::vector<std::string> row = split(line);
    if (row[0] == "-" || row[2].empty()) continue;
    const ModelDesc model = import_hf_config(text_of(kFolder / row[0]), row[0]);
    if (model.num_layers() < 2 || !model.head || model.vocab == 0) continue;
    const double one = weights_over_ranks(model, 1), two = weights_over_ranks(model, 2);
    const double table = std::ceil(static_cast<double>(model.vocab) / 128) * 128 * static_cast<double>(model.hidden);
    // Padding of the vocabulary, at most 127 rows of the table and of the head.
    EXPECT_NEAR(one, std::stod(row[2]), 2.0 * 127 * static_cast<double>(model.hidden)) << row[0];
    EXPECT_NEAR(two - one, model.tied ? table : 0, 1e-9 * one) << row[0];
    ++(model.tied ? tied : untied);
  }
  EXPECT_GE(tied, 5);
  EXPECT_GE(untied, 5);
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
