// What `trireme plan` found, for its text and its JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/plan_inputs.h"
#include "plan/bucket_size.h"
#include "plan/fewer_devices.h"
#include "plan/mixed_search.h"
#include "plan/search.h"

namespace trireme::cli {

inline constexpr const char* kUnlikeUnmodelled = "unlike devices together were never compared with a measurement";

struct PlanFound {
  PlanInputs inputs;
  plan::ModelNumbers model;
  plan::MachineNumbers machine;
  plan::TrainingNumbers training;
  std::vector<plan::DeviceGroup> groups;  ///< unlike hosts
  plan::SearchResult result;
  double search_seconds = 0;
  double price = 0;  ///< of one device for an hour; 0 = not known

  std::vector<plan::BucketSize> buckets;              ///< of the best plan, fastest first
  std::vector<std::string> impossible;                ///< values of flags that no plan can have
  std::optional<plan::FewerDevices> fewer;            ///< faster than all devices
  std::vector<std::optional<plan::Candidate>> alone;  ///< the fastest on each kind of unlike hosts by itself

  [[nodiscard]] plan::Estimate estimate(const plan::Plan& plan) const;
  /// Price of `seconds` on all devices.
  [[nodiscard]] double cost(double seconds) const {
    return price * static_cast<double>(inputs.devices) / 3600 * seconds;
  }
};

[[nodiscard]] nlohmann::json to_json(const PlanFound& found);

}  // namespace trireme::cli
