// Reads models: the project's own models/*.json, and through hf_import the config.json of Hugging Face. docs/planner.md shows the format.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/hf_import.h"
#include "trireme/plan/model_desc.h"

namespace trireme::plan {

/// What the text of a file describes: a model file ("schema": 1), or a Hugging Face configuration ("model_type").
///
/// Errors  kConfig with file and key: not JSON, an unknown key, an impossible size, a sum that is not the file's own "parameters".
///         kUnsupported: an architecture that is not modelled.
[[nodiscard]] ModelDesc parse_model(std::string_view text, const std::string& file, const HfOptions& options = {});

/// The models that are shipped. Names are compared without regard to case.
struct ModelCatalog {
  std::vector<ModelDesc> models;

  /// By name or one of other_names; nullptr when there is none.
  [[nodiscard]] const ModelDesc* find(std::string_view name) const;
};
[[nodiscard]] ModelCatalog load_models(const std::string& folder);
[[nodiscard]] ModelCatalog load_models();

/// A file, a folder with a config.json, or the name of a shipped model. kConfig with the nearest name when it is none of them.
[[nodiscard]] ModelDesc read_model(const std::string& path_or_name, const HfOptions& options = {});

}  // namespace trireme::plan
