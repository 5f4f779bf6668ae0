#include "plan/score.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>

#include "base/str.h"

namespace trireme::plan {

namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

std::string number(double value, const char* format = "%.6g") {
  char text[40];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

void note_once(std::vector<std::string>& notes, const char* note) {
  if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.emplace_back(note);
}

void predict(ScoredRow& row, const Catalog& catalog, const ModelNumbers& model) {
  const Case& c = row.from;
  const MachineCatalog& m = catalog.machines;
  const DeviceDesc& device = m.devices[c.device];
  const MachineNumbers hw = numbers_of(device, m.clusters[std::max(0, c.cluster)], m.software[std::max(0, c.software)],
                                       c.training, static_cast<int>(c.gpus_per_host));
  const TrainingNumbers training = numbers_of(c.training);
  row.seconds = step_time(model, hw, training, c.plan).total().value;
  const PeakMemory peak = peak_memory(model, hw, training, c.plan);
  row.bytes = (c.memory_kind == MemoryKind::kProcess    ? peak.parts.total()
               : c.memory_kind == MemoryKind::kReserved ? peak.parts.tensors() + peak.parts.rounding
                                                        : peak.parts.tensors())
                  .value;
  row.fullest_rank = peak.rank;
  const bool near = near_memory_limit(peak.parts.total(), hw.memory_bytes);
  if (near && peak.parts.total() <= hw.memory_bytes) note_once(row.from.assumptions, kNearMemoryLimit);
  if (peak.parts.total() > hw.memory_bytes) {
    row.refused = str("does not fit: pipeline rank ", peak.rank, " needs ", number(peak.parts.total().value, "%.0f"),
                      " bytes, ", device.name, " has ", number(hw.memory_bytes.value, "%.0f"), "; ",
                      number((peak.parts.total() - hw.memory_bytes).value, "%.0f"), " too many");
  }
}

/// The reason without its numbers, for counting.
std::string kind_of(const std::string& reason) {
  const size_t colon = reason.find(':');
  if (reason.starts_with('\'') && colon != std::string::npos) return reason.substr(colon + 2);
  return reason.substr(0, colon);
}

std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t i = 0; i < order.size();) {
    size_t j = i;
    while (j < order.size() && values[order[j]] == values[order[i]]) ++j;
    for (size_t k = i; k < j; ++k) ranks[order[k]] = (static_cast<double>(i) + static_cast<double>(j) - 1) / 2;
    i = j;
  }
  return ranks;
}

std::string plan_key(const Plan& plan) {
  return str(plan.dp, ' ', plan.tp, ' ', plan.pp, ' ', plan.cp, ' ', plan.ep, ' ', plan.micro_batch, ' ',
             plan.virtual_stages, ' ', static_cast<int>(plan.recompute), ' ', plan.zero_stage);
}

void score_groups(Score& score, const std::vector<ScoredRow>& rows) {
  std::map<std::string, std::vector<const ScoredRow*>> groups;
  for (const ScoredRow& row : rows) {
    if (row.readable && row.refused.empty() && row.from.seconds > 0) groups[row.from.group].push_back(&row);
  }
  for (const auto& [name, members] : groups) {
    std::map<std::string, int> plans;
    for (const ScoredRow* row : members) ++plans[plan_key(row->from.plan)];
    if (plans.size() < 5) continue;
    std::vector<double> measured, predicted;
    for (const ScoredRow* row : members) {
      measured.push_back(row->from.seconds);
      predicted.push_back(row->seconds);
    }
    const size_t chosen = static_cast<size_t>(std::min_element(predicted.begin(), predicted.end()) - predicted.begin());
    const double regret = measured[chosen] / *std::min_element(measured.begin(), measured.end()) - 1;
    ++score.groups;
    score.spearman += spearman(measured, predicted);
    score.regret += regret;
    score.worst_regret = std::max(score.worst_regret, regret);
  }
  if (score.groups > 0) {
    score.spearman /= score.groups;
    score.regret /= score.groups;
  }
}

}  // namespace

double spearman(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() < 2) return 0;
  const std::vector<double> x = ranks_of(a), y = ranks_of(b);
  const double mean = (static_cast<double>(a.size()) - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

SingleConstant best_constant(const std::vector<std::pair<double, double>>& rows) {
  // The mean of |flops / (rate x seconds) - 1| is least where 1 / rate is the weighted median of seconds / flops.
  std::vector<std::pair<double, double>> slowness;  // seconds per flop, weight
  double weights = 0;
  for (const auto& [flops, seconds] : rows) {
    if (flops <= 0 || seconds <= 0) continue;
    slowness.emplace_back(seconds / flops, flops / seconds);
    weights += flops / seconds;
  }
  if (slowness.empty()) return {};
  std::sort(slowness.begin(), slowness.end());
  double sum = 0, chosen = slowness.back().first;
  for (const auto& [at, weight] : slowness) {
    sum += weight;
    if (sum >= weights / 2) {
      chosen = at;
      break;
    }
  }
  SingleConstant best{1 / chosen, 0};
  for (const auto& [at, weight] : slowness) best.mape += std::abs(chosen / at - 1);
  best.mape /= static_cast<double>(slowness.size());
  return best;
}

double step_flops(const Case& row) {
  const double forward = forward_flops(row.model, row.training.sequence, false);
  double passes = 3;
  if (row.plan.recompute == Recompute::kFull) passes = 4;
  return passes * forward * static_cast<double>(row.training.global_batch);
}

ScoredFile score_rows(CsvFile file, const Catalog& catalog) {
  ScoredFile scored{std::move(file), {}};
  for (const Row& row : read_rows(scored.file)) {
    ScoredRow out;
    out.line = row.line;
    Result<Case> read = read_case(row, catalog);
    if (!read) {
      out.refused = read.reason();
    } else {
      out.from = std::move(read).value();
      out.readable = true;
      const ModelNumbers model = numbers_of(out.from.model);
      const PlanFault fault = check_plan(model, numbers_of(out.from.training), out.from.plan);
      // Published runs split unevenly where their software could: only what no formula can answer is refused.
      if (fault == PlanFault::kDegree || fault == PlanFault::kExperts || fault == PlanFault::kLayers ||
          fault == PlanFault::kOperators) {
        out.refused = text_of(fault, model, numbers_of(out.from.training), out.from.plan);
      } else {
        predict(out, catalog, model);
      }
    }
    scored.rows.push_back(std::move(out));
  }
  return scored;
}

void predict_again(std::vector<ScoredRow>& rows, const Catalog& catalog) {
  for (ScoredRow& row : rows) {
    if (row.readable && row.seconds > 0) predict(row, catalog, numbers_of(row.from.model));
  }
}

Score summarise(const std::string& name, const std::vector<ScoredRow>& rows) {
  Score score;
  score.name = name;
  std::map<std::string, int> refusals, assumed;
  std::map<std::pair<int, std::string>, std::vector<std::pair<double, double>>> constants;  // by device and precision
  for (const ScoredRow& row : rows) {
    ++score.rows;
    const bool timed = row.readable && row.from.seconds > 0;
    score.with_time += timed ? 1 : 0;
    if (row.readable && row.from.out_of_memory) {
      ++score.out_of_memory;
      score.out_of_memory_refused += row.refused.empty() ? 0 : 1;
    } else if (timed && row.refused.starts_with("does not fit")) {
      ++score.ran_refused;
    }
    if (!row.refused.empty()) {
      ++refusals[kind_of(row.refused)];
      continue;
    }
    if (timed || row.from.bytes > 0) {
      for (const std::string& assumption : row.from.assumptions) ++assumed[assumption];
    }
    if (row.from.bytes > 0) {
      const double error = row.bytes / row.from.bytes - 1;
      ++score.memory_rows;
      score.memory_mape += std::abs(error);
      score.memory_bias += error;
    }
    if (!timed) {
      ++refusals["no measured time: nothing to compare"];
      continue;
    }
    const double error = row.seconds / row.from.seconds - 1;
    ++score.timed;
    score.mape += std::abs(error);
    score.bias += error;
    score.within_ten += std::abs(error) <= 0.1 ? 1 : 0;
    if (std::abs(error) > score.worst) {
      score.worst = std::abs(error);
      score.worst_line = row.line;
    }
    constants[{row.from.device, row.from.training.precision}].emplace_back(step_flops(row.from) / row.from.gpus,
                                                                           row.from.seconds);
  }
  if (score.timed > 0) {
    score.mape /= score.timed;
    score.bias /= score.timed;
    score.within_ten /= score.timed;
  }
  if (score.memory_rows > 0) {
    score.memory_mape /= score.memory_rows;
    score.memory_bias /= score.memory_rows;
  }
  size_t most = 0;
  for (const auto& [key, some] : constants) {
    const SingleConstant constant = best_constant(some);
    score.constant_mape += constant.mape * static_cast<double>(some.size()) / score.timed;
    if (some.size() > most) {
      most = some.size();
      score.constant_tflops = constant.rate / 1e12;
    }
  }
  const auto most_first = [](const std::map<std::string, int>& counted) {
    std::vector<std::pair<std::string, int>> sorted(counted.begin(), counted.end());
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    return sorted;
  };
  score.refusals = most_first(refusals);
  score.assumed = most_first(assumed);
  score_groups(score, rows);
  return score;
}

std::string predictions_csv(const ScoredFile& scored) {
  std::string out;
  const auto line = [&out](const std::vector<std::string>& fields, const std::vector<std::string>& more) {
    for (size_t i = 0; i < fields.size(); ++i) out += (i > 0 ? "," : "") + csv_field(fields[i]);
    for (const std::string& field : more) out += "," + csv_field(field);
    out += '\n';
  };
  line(scored.file.columns, {"predicted_step_s", "predicted_peak_gb", "refused"});
  for (size_t i = 0; i < scored.rows.size(); ++i) {
    const ScoredRow& row = scored.rows[i];
    const bool answered = row.refused.empty();
    line(scored.file.rows[i].fields,
         {answered ? number(row.seconds) : "", answered ? number(row.bytes / kGiB) : "", row.refused});
  }
  return out;
}

}  // namespace trireme::plan
