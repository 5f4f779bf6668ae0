// `trireme plan score`: tables of published measurements against the planner's predictions.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/replace_file.h"
#include "base/str.h"
#include "cli/cmd_plan.h"
#include "cli/flag_errors.h"
#include "plan/calibrate.h"
#include "plan/catalog.h"
#include "plan/cluster_spec.h"
#include "plan/score.h"
#include "trireme/base/error.h"

namespace trireme::cli {

namespace {

using plan::Calibration;
using plan::Score;
using plan::ScoredFile;

void print_score(const Score& s) {
  std::printf("%s\n", s.name.c_str());
  std::printf("  rows %d, with a measured step time %d, of them predicted %d\n", s.rows, s.with_time, s.timed);
  if (s.timed > 0) {
    std::printf("  step time: MAPE %.2f %%, bias %+.2f %%, within 10 %%: %.0f %%, worst %.1f %% (line %d)\n",
                100 * s.mape, 100 * s.bias, 100 * s.within_ten, 100 * s.worst, s.worst_line);
    std::printf(
        "  best single constant for each device and precision on the same rows: %.1f TFLOP/s for most, MAPE %.2f %%\n",
        s.constant_tflops, 100 * s.constant_mape);
  }
  if (s.groups > 0) {
    std::printf("  order of plans in %d groups: Spearman %.2f, regret %.2f %% on average, %.2f %% at worst\n", s.groups,
                s.spearman, 100 * s.regret, 100 * s.worst_regret);
  }
  if (s.memory_rows > 0) {
    std::printf("  memory: %d rows, MAPE %.2f %%, bias %+.2f %%\n", s.memory_rows, 100 * s.memory_mape,
                100 * s.memory_bias);
  }
  if (s.out_of_memory > 0)
    std::printf("  out of memory when measured: %d rows, of them refused %d\n", s.out_of_memory,
                s.out_of_memory_refused);
  if (s.ran_refused > 0) std::printf("  ran when measured, yet refused for memory: %d rows\n", s.ran_refused);
  for (const auto& [reason, number] : s.refusals) std::printf("  refused %d: %s\n", number, reason.c_str());
  for (const auto& [assumption, number] : s.assumed) std::printf("  assumed of %d: %s\n", number, assumption.c_str());
}

nlohmann::json to_json(const Score& s) {
  nlohmann::json refusals = nlohmann::json::object();
  for (const auto& [reason, number] : s.refusals) refusals[reason] = number;
  nlohmann::json assumed = nlohmann::json::object();
  for (const auto& [assumption, number] : s.assumed) assumed[assumption] = number;
  return {{"file", s.name},
          {"rows", s.rows},
          {"with_time", s.with_time},
          {"timed", s.timed},
          {"mape", s.mape},
          {"bias", s.bias},
          {"worst", s.worst},
          {"worst_line", s.worst_line},
          {"within_ten", s.within_ten},
          {"constant_tflops", s.constant_tflops},
          {"constant_mape", s.constant_mape},
          {"groups", s.groups},
          {"spearman", s.spearman},
          {"regret", s.regret},
          {"worst_regret", s.worst_regret},
          {"memory_rows", s.memory_rows},
          {"memory_mape", s.memory_mape},
          {"memory_bias", s.memory_bias},
          {"out_of_memory", s.out_of_memory},
          {"out_of_memory_refused", s.out_of_memory_refused},
          {"ran_refused", s.ran_refused},
          {"refused", refusals},
          {"assumed", assumed}};
}

void print_calibration(const Calibration& c) {
  std::printf("  calibrated on %zu rows (lines %s), device constants ", c.lines.size(), join(c.lines).c_str());
  if (c.others > 0)
    std::printf("from %d rows of other publishers: ", c.others);
  else
    std::printf("as shipped: ");
  if (c.rest > 0) {
    std::printf("the other %d rows MAPE %.2f %% (cluster unknown %.2f %%, shipped constants %.2f %%)\n", c.rest,
                100 * c.calibrated, 100 * c.unknown, 100 * c.shipped);
  } else {
    std::printf("no row is left to score\n");
  }
  std::string cluster;
  for (const Calibration::Constant& constant : c.constants) {
    if (constant.cluster != cluster)
      std::printf("%s    cluster '%s':", cluster.empty() ? "" : "\n", constant.cluster.c_str());
    std::printf("%s \"%s\": %.4g", constant.cluster == cluster ? "," : "", constant.name.c_str(), constant.value);
    cluster = constant.cluster;
  }
  if (!cluster.empty()) std::printf("\n");
}

nlohmann::json to_json(const Calibration& c) {
  nlohmann::json constants = nlohmann::json::object();
  for (const Calibration::Constant& constant : c.constants) constants[constant.cluster][constant.name] = constant.value;
  return {{"lines", c.lines},      {"rest", c.rest},       {"other_rows", c.others},
          {"shipped", c.shipped},  {"unknown", c.unknown}, {"calibrated", c.calibrated},
          {"constants", constants}};
}

/// The files, and for --calibrate and --cross-validate the tables beside them: other publishers.
std::vector<std::string> with_neighbours(const std::vector<std::string>& files) {
  std::vector<std::string> all = files;
  for (const std::string& file : files) {
    std::vector<std::string> beside;
    std::filesystem::path folder = std::filesystem::path(file).parent_path();
    if (folder.empty()) folder = ".";
    std::error_code missing;  // the table itself is then missing too, and that is what its reader says
    for (const auto& entry : std::filesystem::directory_iterator(folder, missing)) {
      if (entry.path().extension() == ".csv") beside.push_back(entry.path().string());
    }
    std::sort(beside.begin(), beside.end());
    for (const std::string& path : beside) {
      const bool there = std::any_of(all.begin(), all.end(), [&](const std::string& a) {
        return std::filesystem::weakly_canonical(a) == std::filesystem::weakly_canonical(path);
      });
      if (!there) all.push_back(path);
    }
  }
  return all;
}

}  // namespace

int cmd_plan_score(const std::vector<std::string>& args) {
  CLI::App app(
      "Predicts each row of tables of published measurements and compares.\n"
      "Per table: rows predicted and refused (with reasons), error of step time, order of plans, error of memory, and "
      "the best single\n"
      "constant on the same rows. docs/planner_costs.md lists the columns of a table.",
      "trireme plan score");
  std::vector<std::string> files;
  std::string out;
  int rows_to_fit = 0;
  std::string cluster, software;
  bool validate = false, as_json = false, show_rows = false;
  app.add_option("FILE", files, "tables (CSV)")->required();
  app.add_option("--out", out,
                 "write the rows with predicted_step_s, predicted_peak_gb, refused to this file (one FILE only)")
      ->check(file_name());
  app.add_option("--calibrate", rows_to_fit,
                 "fit the cluster's three constants on N rows, the device's on other publishers' tables beside FILE; "
                 "score the rest");
  app.add_option("--cluster", cluster, "where rows of no known publication ran: a JSON file, as for 'trireme plan'");
  app.add_option("--software", software, "and with what: its name in machines/software.json");
  app.add_flag("--cross-validate", validate,
               "fit all constants without each publisher and each class of model size; score those");
  app.add_flag("--rows", show_rows, "one line for each row");
  app.add_flag("--json", as_json, "the scores as JSON");
  if (parsed_for_help(app, args, "plan.score", "trireme plan score")) return 0;
  if (!out.empty() && files.size() != 1) {
    throw Error(ErrorKind::kConfig,
                str("[plan.score] --out takes one FILE, ", files.size(), " are given. Score them one by one."));
  }
  if (app.count("--calibrate") > 0 && rows_to_fit < 1) {
    throw Error(ErrorKind::kConfig,
                str("[plan.score] --calibrate ", rows_to_fit, ": at least 1 row is required; 5 are usual."));
  }
  plan::Catalog catalog = plan::load_catalog();
  if (!cluster.empty()) {
    const plan::ClusterSpec spec = plan::read_cluster_spec(cluster, catalog.machines);
    if (!spec.uniform()) {
      throw Error(ErrorKind::kUnsupported, str("[plan.score] --cluster ", cluster,
                                               ": its hosts differ. Score the rows of each kind by themselves."));
    }
    catalog.own_cluster = static_cast<int>(catalog.machines.clusters.size());
    catalog.machines.clusters.push_back(spec.cluster);
  }
  if (!software.empty()) {
    const plan::SoftwareProfile& profile = catalog.machines.software_profile(software);
    catalog.own_software = static_cast<int>(&profile - catalog.machines.software.data());
  }
  std::vector<ScoredFile> scored;
  const std::vector<std::string> all = rows_to_fit > 0 || validate ? with_neighbours(files) : files;
  for (const std::string& file : all) {
    try {
      scored.push_back(plan::score_rows(plan::read_csv(file), catalog));
    } catch (const Error&) {
      if (scored.size() < files.size()) throw;  // a neighbour that is no table of measurements does not matter
    }
  }
  nlohmann::json json = nlohmann::json::object();
  for (size_t i = 0; i < files.size(); ++i) {
    const Score score = plan::summarise(files[i], scored[i].rows);
    if (as_json)
      json["files"].push_back(to_json(score));
    else
      print_score(score);
    if (show_rows && !as_json) {
      for (const plan::ScoredRow& row : scored[i].rows) {
        if (!row.refused.empty())
          std::printf("    line %d refused: %s\n", row.line, row.refused.c_str());
        else if (row.from.seconds > 0)
          std::printf("    line %d: measured %.4g s, predicted %.4g s (%+.1f %%)%s%s\n", row.line, row.from.seconds,
                      row.seconds, 100 * (row.seconds / row.from.seconds - 1),
                      row.from.assumptions.empty() ? "" : "  assumed: ", join(row.from.assumptions, "; ").c_str());
      }
    }
    if (rows_to_fit > 0) {
      const Calibration c = plan::calibrate(scored, i, catalog, rows_to_fit);
      if (as_json) {
        json["files"].back()["calibration"] = to_json(c);
      } else {
        print_calibration(c);
      }
    }
  }
  if (validate) {
    if (!as_json) std::printf("left out of the fit: rows, MAPE with the shipped constants, MAPE left out\n");
    for (const plan::Fold& fold : plan::cross_validate(scored, catalog)) {
      if (as_json)
        json["cross_validation"].push_back(
            {{"left_out", fold.name}, {"rows", fold.rows}, {"shipped", fold.fitted}, {"mape", fold.left_out}});
      else
        std::printf("  %-32s %5d  %6.2f %%  %6.2f %%\n", fold.name.c_str(), fold.rows, 100 * fold.fitted,
                    100 * fold.left_out);
    }
  }
  if (as_json) std::printf("%s\n", json.dump(2).c_str());
  if (!out.empty()) replace_file(out, plan::predictions_csv(scored[0]), "plan.score");
  return 0;
}

}  // namespace trireme::cli
