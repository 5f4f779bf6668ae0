// `plan score`: reading tables, refusing rows for the right reason, and the figures it prints.
#include "plan/score.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plan/calibrate.h"
#include "plan/catalog.h"
#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

constexpr const char* kColumns =
    "source,year,model,params_b,layers,hidden,heads,kv_heads,ffn_hidden,vocab,seq_len,gpu,gpus,gpus_per_node,dp,tp,pp,"
    "cp,ep,zero_stage,"
    "micro_batch,global_batch,recompute,precision,virtual_stages,seconds_per_step,samples_per_s,tokens_per_s_per_gpu,"
    "tflops_per_gpu,mfu_pct,"
    "peak_mem_gb,note\n";

std::string row(const std::string& gpus_and_degrees, const std::string& micro = "2", const std::string& seconds = "10",
                const std::string& model = "G,7,32,4096,32,32,16384,50257", const std::string& note = "") {
  return "me,2024," + model + ",2048,A100-80GB," + gpus_and_degrees + ",0," + micro + ",64,full,bf16,1," + seconds +
         ",,,,,," + note + "\n";
}

ScoredFile score(const std::string& rows) { return score_rows(parse_csv(kColumns + rows, "t.csv"), load_catalog()); }

std::string thrown(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "";
}

// Oracle: RFC 4180, by hand: quoted commas, doubled quotes, a line end in quotes, CRLF; lines count from the first.
TEST(Csv, ReadsQuotedFields) {
  const CsvFile file = parse_csv("a,b\r\n\"x,\"\"y\"\"\",2\n\"two\nlines\",3\n,\n", "f");
  ASSERT_EQ(file.rows.size(), 3u);
  EXPECT_EQ(file.rows[0].fields, (std::vector<std::string>{"x,\"y\"", "2"}));
  EXPECT_EQ(file.rows[1].fields[0], "two\nlines");
  EXPECT_EQ(file.rows[2].line, 5);
  EXPECT_EQ(csv_field("x,\"y\""), "\"x,\"\"y\"\"\"");
}

// Oracle: each message names file and line of the fault.
TEST(Csv, NamesTheLineOfAFault) {
  EXPECT_NE(
      thrown([] { (void)parse_csv("a,b\n1,2\n1\n", "f"); }).find("f:3: this row has 1 fields, the first line names 2"),
      std::string::npos);
  EXPECT_NE(thrown([] { (void)parse_csv("a,b\n1,\"2\n", "f"); }).find("f:2: this quote is never closed"),
            std::string::npos);
  EXPECT_NE(thrown([] { (void)parse_csv("a,a\n", "f"); }).find("column 'a' stands there twice"), std::string::npos);
  EXPECT_NE(thrown([] { (void)parse_csv("a\nx\"y\n", "f"); }).find("f:2: a quote inside"), std::string::npos);
  EXPECT_NE(
      thrown([] { (void)parse_csv("a,b\n1,2\n\"x\n\",\x1b[2J\n", "f"); }).find("f:3: field 2 has a control character"),
      std::string::npos);
  EXPECT_NE(thrown([] { (void)parse_csv("", "f"); }).find("f:1: the file is empty"), std::string::npos);
}

// Oracle: the column and the field stand in the message.
TEST(Score, NamesAFieldThatIsNoNumber) {
  EXPECT_NE(thrown([] { (void)score(row("8,8,8,1,one,1,")); }).find("t.csv:2: column 'pp' is 'one'"),
            std::string::npos);
  EXPECT_NE(
      thrown([] { (void)score_rows(parse_csv("source\nx\n", "t.csv"), load_catalog()); }).find("there is no column"),
      std::string::npos);
}

// Oracle: rules of the tables' README, one row for each reason.
TEST(Score, RefusesForTheRightReason) {
  const ScoredFile file =
      score(row("64,8,1,4,32,1,") +                                                  // 1 x 4 x 32 is not 64
            row("8,8,,,,1,") +                                                       // layout
            row("8,8,8,1,1,1,", "") +                                                // micro-batch
            row("8,8,8,1,1,1,", "2", "10", "Some-9B,9,,,,,,") +                      // shape
            row("8,8,8,1,1,1,", "2", "10", "Nemotron-H-56B,56,118,,,,,") +           // hybrid
            row("8,8,8,1,1,1,", "2", "10", "Mix,47,32,4096,32,8,14336,32000") +      // far more parameters than dense
            row("8,8,8,1,1,1,", "2", "10", "Huge,170,96,12288,96,96,49152,50257") +  // memory
            row("8,8,1,8,1,1,"));
  const char* const want[] = {"degrees do not multiply",
                              "layout not given",
                              "micro-batch not given",
                              "shape unknown",
                              "state-space",
                              "not a dense transformer",
                              "does not fit: pipeline rank 0 needs ",
                              ""};
  ASSERT_EQ(file.rows.size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    if (*want[i] == '\0')
      EXPECT_EQ(file.rows[i].refused, "");
    else
      EXPECT_NE(file.rows[i].refused.find(want[i]), std::string::npos) << file.rows[i].refused;
  }
  EXPECT_NE(file.rows[6].refused.find("bytes"), std::string::npos);
}

// Oracle: the measured columns are not an input: another measurement, the same prediction.
TEST(Score, NeverLooksAtTheMeasurement) {
  const ScoredFile file =
      score(row("8,8,1,8,1,1,", "2", "10") + row("8,8,1,8,1,1,", "2", "99") + row("8,8,1,8,1,1,", "2", ""));
  EXPECT_GT(file.rows[0].seconds, 0);
  EXPECT_EQ(file.rows[0].seconds, file.rows[1].seconds);
  EXPECT_EQ(file.rows[0].seconds, file.rows[2].seconds);
}

// Oracle: the input comes back, in order, three columns wider.
TEST(Score, WritesItsPredictionsBesideTheRows) {
  const ScoredFile file =
      score(row("8,8,1,8,1,1,", "2", "10", "G,7,32,4096,32,32,16384,50257", "\"a, b\"") + row("64,8,1,4,32,1,"));
  const CsvFile back = parse_csv(predictions_csv(file), "p");
  ASSERT_EQ(back.columns.size(), file.file.columns.size() + 3);
  EXPECT_EQ(back.columns.back(), "refused");
  EXPECT_EQ(back.rows[0].fields[back.column("note")], "a, b");
  EXPECT_NE(back.rows[0].fields[back.column("predicted_step_s")], "");
  EXPECT_EQ(back.rows[1].fields[back.column("predicted_step_s")], "");
  EXPECT_NE(back.rows[1].fields[back.column("refused")], "");
}

// Oracle: by hand. Rank correlation of a reversed order is -1, ties share their mean rank.
TEST(Score, SpearmanByHand) {
  EXPECT_DOUBLE_EQ(spearman({1, 2, 3}, {10, 20, 30}), 1);
  EXPECT_DOUBLE_EQ(spearman({1, 2, 3}, {3, 2, 1}), -1);
  EXPECT_NEAR(spearman({1, 2, 2, 4}, {1, 2, 3, 4}), 4.5 / std::sqrt(4.5 * 5), 1e-12);
}

// Oracle: a search over 10,000 rates finds none that is better.
TEST(Score, TheBestConstantIsBest) {
  const std::vector<std::pair<double, double>> rows = {{100, 1}, {100, 2}, {300, 2.5}, {50, 1.1}, {80, 0.7}};
  const SingleConstant best = best_constant(rows);
  for (int i = 1; i < 10000; ++i) {
    const double rate = 0.02 * i;
    double error = 0;
    for (const auto& [flops, seconds] : rows) error += std::abs(flops / (rate * seconds) - 1) / 5;
    EXPECT_GE(error, best.mape - 1e-12);
  }
}

// Oracle: trying it. A constant moves no prediction but those that the fit looks at again for it.
TEST(Calibrate, KnowsWhichRowsAConstantMoves) {
  Catalog catalog = load_catalog();
  const std::string shapes =
      row("8,8,1,8,1,1,") + row("16,8,8,2,1,1,") + row("8,8,8,1,1,1,", "2", "10", "S,,24,1024,16,16,4096,50257");
  ScoredFile file = score_rows(parse_csv(kColumns + shapes, "t.csv"), catalog);
  ASSERT_EQ(comparable(file.rows).size(), 3u);
  const auto index = [](const auto& things, const char* name) {
    const auto found =
        std::find_if(things.begin(), things.end(), [name](const auto& thing) { return thing.name == name; });
    return static_cast<int>(found - things.begin());
  };
  file.rows[1].from.device = index(catalog.machines.devices, "H100");
  file.rows[1].from.cluster = index(catalog.machines.clusters, "nvidia-h100");
  file.rows[2].from.software = index(catalog.machines.software, "megatron-core-te");
  predict_again(file.rows, catalog);
  const std::vector<const ScoredRow*> rows = comparable(file.rows);
  std::vector<Knob> knobs = knobs_for(catalog.machines, rows, {});
  refit(catalog, knobs, rows, std::vector<double>(rows.size(), 1));
  predict_again(file.rows, catalog);
  ASSERT_GE(knobs.size(), 10u);
  size_t moved = 0;
  for (Knob& knob : knobs) {
    std::vector<double> before;
    for (const ScoredRow* one : rows) before.push_back(one->seconds);
    const double kept = knob.value;
    knob.set(kept * 1.1);
    predict_again(file.rows, catalog);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i]->seconds == before[i]) continue;
      ++moved;
      EXPECT_TRUE(std::binary_search(knob.moves.begin(), knob.moves.end(), i)) << knob.name << " moves row " << i;
    }
    EXPECT_LT(knob.moves.size(), rows.size() + 1) << knob.name;  // its own distance is one of them
    knob.set(kept);
    predict_again(file.rows, catalog);
  }
  EXPECT_GT(moved, 8u);
}

// Oracle: the meaning of "left out". What was shipped for a device, cluster and profile that only the left-out rows use cannot matter: with
// other values there the prediction that was not left out changes, and the one that was does not.
TEST(CrossValidate, ForgetsWhatOnlyTheRowsLeftOutTell) {
  const auto left_out = [](double factor, double& shipped) {
    Catalog catalog = load_catalog();
    MachineCatalog& m = catalog.machines;
    const auto index = [](const auto& things, const char* name) {
      const auto found =
          std::find_if(things.begin(), things.end(), [name](const auto& thing) { return thing.name == name; });
      return static_cast<int>(found - things.begin());
    };
    const int h100 = index(m.devices, "H100"), cluster = index(m.clusters, "nvidia-h100"),
              software = index(m.software, "megatron-core-te");
    for (Sourced* value : {&m.devices[h100].matmul_efficiency, &m.devices[h100].memory_efficiency,
                           &m.clusters[cluster].launch_seconds, &m.software[software].framework_rate}) {
      EXPECT_TRUE(value->fitted);
      value->value *= factor;
    }
    const std::string rows =
        row("8,8,1,8,1,1,") + row("16,8,8,2,1,1,") + row("8,8,8,1,1,1,", "2", "10", "S,,24,1024,16,16,4096,50257");
    std::vector<ScoredFile> files = {score_rows(parse_csv(kColumns + rows, "a.csv"), catalog),
                                     score_rows(parse_csv(kColumns + rows, "b.csv"), catalog)};
    for (ScoredRow& one : files[1].rows) {
      one.from.publisher = "you/them";
      one.from.device = h100, one.from.cluster = cluster, one.from.software = software;
    }
    predict_again(files[1].rows, catalog);
    for (const Fold& fold : cross_validate(files, catalog)) {
      if (fold.name != "you") continue;
      shipped = fold.fitted;
      return fold.left_out;
    }
    ADD_FAILURE() << "no such fold";
    return 0.0;
  };
  double shipped = 0, other_shipped = 0;
  const double error = left_out(1, shipped), other = left_out(0.8, other_shipped);
  EXPECT_NE(shipped, other_shipped);
  EXPECT_DOUBLE_EQ(error, other);
}

// Oracle: constants that made the "measurements" are found again.
TEST(Calibrate, FindsTheConstantsThatMadeTheRows) {
  Catalog catalog = load_catalog();
  std::string rows;
  for (const char* shape :
       {"S,,24,1024,16,16,4096,50257", "M,,24,2048,16,16,8192,50257", "L,,32,4096,32,32,16384,50257"}) {
    for (const char* degrees : {"8,8,8,1,1,1,", "8,8,1,8,1,1,", "16,8,8,2,1,1,"})
      rows += row(degrees, "2", "10", shape);
  }
  ScoredFile file = score_rows(parse_csv(kColumns + rows, "t.csv"), catalog);
  ClusterDesc& cluster = catalog.machines.clusters[0];
  cluster.launch_seconds.value = 3e-5;
  cluster.link_latency.value = 1e-4;
  for (ScoredRow& r : file.rows) r.from.cluster = 0;
  predict_again(file.rows, catalog);
  for (ScoredRow& r : file.rows) r.from.seconds = r.seconds;
  std::vector<const ScoredRow*> all = comparable(file.rows);
  ASSERT_EQ(all.size(), 8u);  // the largest as 8 replicas does not fit
  std::vector<Knob> knobs = knobs_for(catalog.machines, all, {.devices = false, .clusters = true, .software = false});
  refit(catalog, knobs, all, std::vector<double>(all.size(), 1));
  EXPECT_LT(mape_under(all, catalog), 0.005);
  EXPECT_NEAR(cluster.launch_seconds.value, 3e-5, 1.5e-6);
}

}  // namespace
}  // namespace trireme::plan
