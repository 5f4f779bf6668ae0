// "did you mean": the known word that is closest to a wrong one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// Smallest number of inserted, removed, replaced and neighbour-swapped characters that turns a into b.
[[nodiscard]] size_t edit_distance(std::string_view a, std::string_view b);

/// The closest of `known` (the first of equals); empty when none is closer than half of the word's length, at least 2.
[[nodiscard]] std::string nearest(std::string_view word, std::span<const std::string> known);

/// Those of `known` that contain the word, without regard to case; all where none does.
[[nodiscard]] std::vector<std::string> names_with(std::string_view word, std::span<const std::string> known);

/// "; did you mean 'X'?", or an empty text when nothing is near.
[[nodiscard]] std::string did_you_mean(std::string_view word, std::span<const std::string> known);

}  // namespace trireme
