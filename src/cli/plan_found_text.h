// The answer of `trireme plan` in words.
#pragma once

#include <string>

#include "cli/plan_found.h"
#include "cli/plan_search_flags.h"

namespace trireme::cli {

/// Everything, where a plan was found.
void print_found(const PlanFound& found, const SearchFlags& flags);
/// What was rejected, by reason.
void print_rejected(const PlanFound& found);
/// The message of a search that found nothing: the reasons, and by how much the nearest failed.
[[nodiscard]] std::string nothing_fits(const PlanFound& found);

}  // namespace trireme::cli
