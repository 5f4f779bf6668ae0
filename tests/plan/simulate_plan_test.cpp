// Oracle: two implementations agree. The simulated step of a plan beside estimate()'s closed forms, which were compared with published runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/str.h"
#include "plan/machine_file.h"
#include "plan/model_file.h"
#include "trireme/plan/simulate.h"

namespace trireme::plan {
namespace {

struct Inputs {
  ModelDesc model;
  Machine machine;
  Training training;
};

Inputs inputs() {
  const MachineCatalog catalog = load_machines();
  Inputs result;
  result.model = read_model("llama3-70b");
  ClusterDesc cluster = catalog.cluster("selene");
  result.machine = {cluster, catalog.device(cluster.device), catalog.software_profile("megatron-2021")};
  result.training.global_batch = 256;
  result.training.sequence = 4096;
  return result;
}

TEST(SimulatePlan, StepAgreesWithTheClosedForms) {
  const Inputs in = inputs();
  double worst = 0;
  int plans = 0;
  for (const int64_t pp : {1, 2, 4, 8, 16}) {
    for (const int64_t virtual_stages : {1, 2}) {
      for (const int64_t dp : {1, 4}) {
        for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
          Plan plan;
          plan.pp = pp;
          plan.tp = 8;
          plan.dp = dp;
          plan.virtual_stages = virtual_stages;
          plan.recompute = recompute;
          if (virtual_stages > 1 && pp == 1) continue;
          const Result<PlanSimulation> simulated = simulate_plan(in.model, in.machine, in.training, plan);
          ASSERT_TRUE(simulated.ok()) << simulated.reason();
          const double error = simulated.value().step.step_s / simulated.value().estimate.step_seconds - 1;
          std::printf("pp %2d v %d dp %d %s: closed form %7.3f s, simulated %7.3f s, %+5.1f %%\n", static_cast<int>(pp),
                      static_cast<int>(virtual_stages), static_cast<int>(dp),
                      recompute == Recompute::kFull ? "full" : "none", simulated.value().estimate.step_seconds,
                      simulated.value().step.step_s, error * 100);
          if (std::abs(error) > std::abs(worst)) worst = error;
          ++plans;
        }
      }
    }
  }
  std::printf("%d plans, worst %+.1f %%\n", plans, worst * 100);
  EXPECT_LT(std::abs(worst), 0.05);
}

TEST(SimulatePlan, MemoryAgreesWithTheEstimate) {
  const Inputs in = inputs();
  for (const int64_t pp : {1, 4, 8}) {
    Plan plan;
    plan.pp = pp;
    plan.tp = 8;
    plan.dp = 2;
    const PlanSimulation simulated = simulate_plan(in.model, in.machine, in.training, plan).value();
    for (int rank = 0; rank < static_cast<int>(pp); ++rank) {
      const double wanted = simulated.estimate.memory[rank].total();
      EXPECT_NEAR(simulated.step.rank_peak_bytes[rank], wanted, 1e-9 * wanted) << "pp " << pp << " rank " << rank;
    }
  }
}

// The closed forms of the zero-bubble schedules beside the lists of actions that they stand for.
TEST(SimulatePlan, ZeroBubbleAgreesWithTheClosedForms) {
  const Inputs in = inputs();
  for (const char* const schedule : {"zb1p", "zb2p", "zbv"}) {
    for (const int64_t pp : {2, 4, 8}) {
      for (const int64_t dp : {1, 8}) {
        Plan plan;
        plan.pp = pp;
        plan.tp = 8;
        plan.dp = dp;
        plan.schedule = schedule;
        plan.virtual_stages = plan.schedule == "zbv" ? 2 : 1;
        const Result<PlanSimulation> simulated = simulate_plan(in.model, in.machine, in.training, plan);
        ASSERT_TRUE(simulated.ok()) << simulated.reason();
        const double error = simulated.value().step.step_s / simulated.value().estimate.step_seconds - 1;
        std::printf("%s pp %d dp %d: %+.2f %%\n", schedule, static_cast<int>(pp), static_cast<int>(dp), error * 100);
        // A V sends twice as often: the closed form counts a fixed share of each message as waited for, the simulation next to none.
        EXPECT_LT(std::abs(error), plan.schedule == "zbv" ? 0.04 : 0.01) << schedule << ' ' << pp << ' ' << dp;
      }
    }
  }
}

TEST(SimulatePlan, OtherSchedulesRunTheSamePlan) {
  const Inputs in = inputs();
  Plan plan;
  plan.pp = 8;
  plan.tp = 8;
  plan.dp = 4;
  const double base = simulate_plan(in.model, in.machine, in.training, plan).value().step.step_s;
  plan.schedule = "zb1p";
  EXPECT_LT(simulate_plan(in.model, in.machine, in.training, plan).value().step.step_s, base);
  plan.tp = 7;
  EXPECT_FALSE(simulate_plan(in.model, in.machine, in.training, plan).ok());
}

}  // namespace
}  // namespace trireme::plan
