// The answer of `trireme plan` as JSON.
#include <nlohmann/json.hpp>

#include "cli/plan_found.h"
#include "plan/constants.h"
#include "plan/plan_text.h"

namespace trireme::cli {
namespace {

using plan::Candidate;
using plan::SearchResult;

nlohmann::json to_json(const plan::Plan& p) {
  nlohmann::json shares = nlohmann::json::array();
  for (const plan::ReplicaShare& share : p.replicas) {
    shares.push_back({{"kind", share.group},
                      {"count", share.count},
                      {"micro_steps", share.micro_steps},
                      {"one_less", share.shorter}});
  }
  return {{"dp", p.dp},
          {"tp", p.tp},
          {"pp", p.pp},
          {"cp", p.cp},
          {"ep", p.ep},
          {"micro_batch", p.micro_batch},
          {"schedule", p.schedule},
          {"virtual_stages", p.virtual_stages},
          {"recompute", to_string(p.recompute)},
          {"zero_stage", p.zero_stage},
          {"sequence_parallel", p.sequence_parallel},
          {"stage_layers", p.stage_layers},
          {"stage_kind", p.stage_group},
          {"replicas", shares},
          {"shard_ranks", p.shard_ranks},
          {"bucket_bytes", p.bucket_bytes},
          {"compression", p.compression},
          {"offload_optimizer", p.offload_optimizer},
          {"offload_activations", p.offload_activations},
          {"not_in_runtime", not_runnable(p)}};
}

nlohmann::json to_json(const Candidate& c) {
  return {{"plan", to_json(c.plan)}, {"step_s", c.seconds}, {"peak_bytes", c.bytes}, {"peak_pipeline_rank", c.rank}};
}

}  // namespace

plan::Estimate PlanFound::estimate(const plan::Plan& plan) const {
  return plan::estimate(inputs.model, inputs.machine, inputs.training, plan).value();
}

nlohmann::json to_json(const PlanFound& found) {
  const SearchResult& r = found.result;
  nlohmann::json rejected = nlohmann::json::object();
  for (int i = 0; i < plan::kNumRejected; ++i) {
    if (r.rejected[static_cast<size_t>(i)] > 0)
      rejected[text_of(static_cast<plan::Rejected>(i))] = r.rejected[static_cast<size_t>(i)];
  }
  nlohmann::json out = {
      {"schema", 1},
      {"model", {{"name", found.inputs.model.name}, {"parameters", total_parameters(found.inputs.model)}}},
      {"devices", found.inputs.devices},
      {"limit_bytes", r.limit_bytes},
      {"considered", r.considered},
      {"costed", r.costed},
      {"rejected", rejected},
      {"impossible_values", found.impossible},
      {"plans", nlohmann::json::array()},
      {"pareto", nlohmann::json::array()},
      {"nearest", r.nearest ? to_json(*r.nearest) : nlohmann::json(nullptr)}};
  for (const Candidate& c : r.best) {
    nlohmann::json row = to_json(c);
    if (found.price > 0) row["cost"] = found.cost(c.seconds);
    if (!found.groups.empty()) {
      row["limit_bytes"] = c.limit;
      row["kind"] = c.group;
      out["plans"].push_back(row);
      continue;
    }
    const plan::Estimate e = found.estimate(c.plan);
    row["low_s"] = e.low_seconds;
    row["high_s"] = e.high_seconds;
    row["tokens_per_s"] = e.tokens_per_second;
    row["mfu"] = e.mfu;
    for (const plan::Term& term : e.time)
      row["time"].push_back({{"name", term.name}, {"seconds", term.value}, {"formula", term.formula}});
    for (const plan::StageMemory& stage : e.memory) {
      nlohmann::json terms = nlohmann::json::array();
      for (const plan::Term& term : stage.terms)
        terms.push_back({{"name", term.name}, {"bytes", term.value}, {"formula", term.formula}});
      row["memory"].push_back({{"pipeline_rank", stage.stage_rank}, {"bytes", stage.total()}, {"terms", terms}});
    }
    row["unmodelled"] = e.unmodelled;
    out["plans"].push_back(row);
  }
  for (const Candidate& c : r.pareto) out["pareto"].push_back(to_json(c));
  for (const plan::NamedConstant& constant : plan::constants_of(found.inputs.machine)) {
    out["constants"].push_back(
        {{"of", constant.of}, {"name", constant.name}, {"value", constant.value}, {"source", constant.source}});
  }
  out["gradient_buckets"] = nlohmann::json::array();
  for (const plan::BucketSize& size : found.buckets)
    out["gradient_buckets"].push_back({{"bytes", size.bytes}, {"step_s", size.seconds}});
  out["fewer_devices"] = nullptr;
  if (found.fewer) {
    out["fewer_devices"] = to_json(found.fewer->best);
    out["fewer_devices"]["devices"] = found.fewer->devices;
  }
  for (size_t i = 0; i < found.groups.size(); ++i) {
    const plan::ClusterDesc& cluster = found.inputs.kinds[i].machine.cluster;
    const std::optional<Candidate>& alone = found.alone[i];
    out["kinds"].push_back({{"hosts", cluster.hosts},
                            {"devices_per_host", cluster.devices_per_host},
                            {"device", cluster.device},
                            {"alone", alone ? to_json(*alone) : nlohmann::json(nullptr)},
                            {"alone_is_faster", alone && !r.best.empty() && alone->seconds < r.best.front().seconds}});
  }
  if (!found.groups.empty()) out["unmodelled"] = {kUnlikeUnmodelled};
  return out;
}

}  // namespace trireme::cli
