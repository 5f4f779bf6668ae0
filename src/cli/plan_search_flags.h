// What `trireme plan` is asked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/plan_inputs.h"
#include "plan/search.h"

namespace CLI {  // NOLINT(readability-identifier-naming): of another library
class App;
}  // namespace CLI

namespace trireme::cli {

struct SearchFlags {
  PlanFlags what;
  plan::Constraints constraints;  ///< complete after settle()
  std::vector<std::string> recompute, words;
  double spare_percent = 10;
  size_t top = 4;
  bool pareto = false, as_json = false;
  std::vector<int64_t> bucket_mb;
  std::string explain;
  double price = 0;
};

void add_search_flags(CLI::App& app, SearchFlags& flags);
/// What was said in other words than the constraints': percents, MiB, names, sentences.
void settle(SearchFlags& flags);

}  // namespace trireme::cli
