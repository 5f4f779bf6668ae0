// Reads the config.json of a Hugging Face model. docs/planner.md lists the families and how each is counted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/json_object.h"
#include "trireme/plan/model_desc.h"

namespace trireme::plan {

struct HfOptions {
  /// Read an architecture that is not known as if it were this one ("llama"); stated in ModelDesc::approximations. "" = refuse it.
  std::string like;
};

/// The model that `text`, the content of a config.json, describes. Keys that do not touch sizes are passed over, as the model's own library
/// does; a size that is missing and has a default there is taken from it and stated in `approximations`.
///
/// Cost    well below a millisecond.
/// Errors  kConfig with file and key: not JSON, a missing, mistyped or impossible size, sizes that contradict each other.
///         kUnsupported: a `model_type` that is not known, with the nearest known ones.
[[nodiscard]] ModelDesc import_hf_config(std::string_view text, const std::string& file, const HfOptions& options = {});

/// The same of an object that is part of another file.
[[nodiscard]] ModelDesc import_hf_config(const JsonObject& config, const HfOptions& options = {});

/// The values of `model_type` that are known, sorted.
[[nodiscard]] std::vector<std::string> hf_model_types();

}  // namespace trireme::plan
