// What was reached on published measurements must not get worse. The tables are no part of this repository: where they are not beside it, the
// tests are skipped; the table of made-up runs is always there.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "plan/catalog.h"
#include "plan/score.h"

namespace trireme::plan {
namespace {

const Catalog& catalog() {
  static const Catalog loaded = load_catalog();
  return loaded;
}

struct Recorded {
  const char* name;
  const char* file;
  const char* model;           // part of the column `model`; "" = all
  double time;                 // largest MAPE of step time
  int timed;                   // fewest rows that must be predicted
  double memory = 0;           // largest MAPE of memory; 0 = not compared
  bool beats_constant = true;  // false: known not to (bench/results/planner.md says why)
};

std::ostream& operator<<(std::ostream& out, const Recorded& r) { return out << r.name; }

class RecordedTables : public testing::TestWithParam<Recorded> {};

// Oracle: published step times and memory peaks; limits are the figures of bench/results/planner.md and a little.
TEST_P(RecordedTables, StayWithinWhatWasReached) {
  const Recorded& want = GetParam();
  const std::string path = std::string(TRIREME_SOURCE_DIR) + "/../shared/throughput/" + want.file;
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no table " << path;
  CsvFile table = read_csv(path);
  const int model = table.column("model"), note = table.column("note");
  ASSERT_GE(model, 0);
  ASSERT_GE(note, 0);
  std::erase_if(table.rows, [&](const CsvRow& row) { return row.fields[model].find(want.model) == std::string::npos; });
  const ScoredFile scored = score_rows(std::move(table), catalog());
  for (const ScoredRow& row : scored.rows) {
    if (row.from.out_of_memory) {
      EXPECT_EQ(row.from.seconds, 0) << "line " << row.line << " ran";
    }
  }
  const Score score = summarise(want.name, scored.rows);
  EXPECT_GE(score.timed, want.timed);
  EXPECT_LE(score.mape, want.time) << "worst line " << score.worst_line;
  // One constant for each device and precision, fitted on these very rows: of few rows it knows each by heart.
  if (score.timed > 20) {
    EXPECT_EQ(score.mape < score.constant_mape, want.beats_constant)
        << score.mape << " where a single constant gives " << score.constant_mape;
  }
  if (want.memory > 0) {
    EXPECT_LE(score.memory_mape, want.memory);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Published, RecordedTables,
    testing::Values(Recorded{"vtrain_single", "vtrain_single_node.csv", "", 0.07, 900},
                    Recorded{"vtrain_multi", "vtrain_multi_node.csv", "", 0.08, 68},
                    Recorded{"korthikanti", "korthikanti_2022_selective_recompute.csv", "", 0.04, 6},
                    Recorded{"sc21", "megatron_sc21_and_readmes_a100_v100.csv", "", 0.05, 22},
                    Recorded{"bloom", "bloom_bigscience_a100.csv", "", 0.06, 74, 0.08},
                    Recorded{"llm_foundry", "llm_foundry_mpt.csv", "", 0.06, 142},
                    Recorded{"torchtitan", "torchtitan.csv", "", 0.09, 27, 0.10},
                    Recorded{"bridge_dense", "megatron_bridge_h100_b200_gb200.csv", "LLAMA", 0.07, 67},
                    Recorded{"bridge_deepseek", "megatron_bridge_h100_b200_gb200.csv", "DeepSeekV3", 0.13, 20, 0,
                             false},
                    Recorded{"bridge_qwen3_30b", "megatron_bridge_h100_b200_gb200.csv", "Qwen3_30B", 0.13, 30},
                    Recorded{"simumax_llama", "simumax_b200_time_and_memory.csv", "llama", 0.04, 16, 0.01},
                    Recorded{"simumax_deepseek", "simumax_b200_time_and_memory.csv", "deepseek", 0.15, 12, 0.03},
                    Recorded{"dlperf_gpt", "dlperf_gpt_v100_dp_tp_pp.csv", "", 0.12, 24},
                    Recorded{"deep_learning_examples", "resnet50_dataparallel_dle_horovod.csv", "", 0.12, 33},
                    Recorded{"dlperf_vision_and_bert", "dlperf_resnet50_bert_v100.csv", "", 0.12, 70},
                    Recorded{"timm", "timm_rtx3090_single_gpu.csv", "", 0.12, 14}),
    [](const auto& info) { return std::string(info.param.name); });

// Oracle: the runs' own outcome. Those that ran out of memory are refused with rank and bytes but one, which arithmetic cannot tell from rows
// that ran (82 layers of 14336, about 65 GiB); every run that has a time is accepted.
TEST(RecordedMemory, BloomRunsFitOrDoNotAsTheyDid) {
  const std::string path = std::string(TRIREME_SOURCE_DIR) + "/../shared/throughput/bloom_bigscience_a100.csv";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no table " << path;
  const ScoredFile scored = score_rows(read_csv(path), catalog());
  int refused = 0;
  for (const ScoredRow& row : scored.rows) {
    if (!row.readable) continue;
    if (row.from.out_of_memory) {
      refused += row.refused.empty() ? 0 : 1;
      if (!row.refused.empty()) {
        EXPECT_NE(row.refused.find("bytes"), std::string::npos) << row.refused;
      }
    } else {
      EXPECT_EQ(row.refused, "") << "line " << row.line;
    }
  }
  EXPECT_EQ(refused, 5);
}

// Oracle: the order in which the table of plans of 39.1 and 175 billion parameters was measured: the planner's first choice is at most 2 % slower than
// the best. Of the 60 groups of one node it is at most 6.5 % slower on average: what was reached; 5 % is aimed at (bench/results/planner.md).
TEST(RecordedOrder, TheFirstChoiceIsGood) {
  const std::string path = std::string(TRIREME_SOURCE_DIR) + "/../shared/throughput/vtrain_multi_node.csv";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no table " << path;
  const Score score = summarise("multi", score_rows(read_csv(path), catalog()).rows);
  EXPECT_EQ(score.groups, 2);
  EXPECT_LE(score.worst_regret, 0.02);
  const Score single = summarise(
      "single",
      score_rows(read_csv(std::string(TRIREME_SOURCE_DIR) + "/../shared/throughput/vtrain_single_node.csv"), catalog())
          .rows);
  EXPECT_EQ(single.groups, 60);
  EXPECT_LE(single.regret, 0.065);
}

// Oracle: by construction of the made-up table: five plans of one task, one that cannot fit, one without a shape.
TEST(MadeUpTable, IsReadRefusedAndOrdered) {
  const ScoredFile scored =
      score_rows(read_csv(std::string(TRIREME_SOURCE_DIR) + "/tests/plan/data/made_up_runs.csv"), catalog());
  const Score score = summarise("made up", scored.rows);
  EXPECT_EQ(score.rows, 8);
  EXPECT_EQ(score.timed, 6);
  EXPECT_EQ(score.groups, 1);
  EXPECT_EQ(score.out_of_memory, 1);
  EXPECT_EQ(score.out_of_memory_refused, 1);
  EXPECT_NE(scored.rows[5].refused.find("pipeline rank 0 needs"), std::string::npos);
  EXPECT_NE(scored.rows[7].refused.find("shape unknown"), std::string::npos);
  // Tensor parallelism over 8 devices launches as much work for an eighth of it: the slowest of the five.
  for (const size_t other : {0, 2, 3, 4}) EXPECT_GT(scored.rows[1].seconds, scored.rows[other].seconds);
}

// Oracle: a clock. A search asks for 100,000 plans a second; ten times slower on a busy machine still passes.
TEST(CostOfAPlan, IsMicroseconds) {
  const ScoredFile scored =
      score_rows(read_csv(std::string(TRIREME_SOURCE_DIR) + "/tests/plan/data/made_up_runs.csv"), catalog());
  const Case& c = scored.rows[6].from;
  const ModelNumbers model = numbers_of(c.model);
  const MachineNumbers hw = numbers_of(machine_of(c, catalog()), c.training);
  const TrainingNumbers training = numbers_of(c.training);
  double sum = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 2000; ++i)
    sum += step_time(model, hw, training, c.plan).total().value +
           peak_memory(model, hw, training, c.plan).parts.total().value;
  const double each = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / 2000;
  EXPECT_GT(sum, 0);
  EXPECT_LT(each, 100e-6);
  RecordProperty("microseconds", std::to_string(each * 1e6));
}

}  // namespace
}  // namespace trireme::plan
