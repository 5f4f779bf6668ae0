#include "base/library_function.h"

#include <algorithm>
#include <array>

namespace trireme {
namespace {

// A blank in template arguments or parameters ends no return type.
std::string_view without_return_type(std::string_view function) noexcept {
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < function.size(); ++i) {
    const char c = function[i];
    if (c == '<') ++depth;
    if (c == '>' && depth > 0) --depth;
    if (depth == 0 && c == '(') break;
    if (depth == 0 && c == ' ') begin = i + 1;
  }
  function.remove_prefix(begin);
  return function;
}

}  // namespace

bool is_library_function(std::string_view function) noexcept {
  constexpr std::array<std::string_view, 8> kNamespaces = {
      "torch::", "at::", "c10::", "c10d::", "trireme::", "std::", "__gnu_cxx::", "caffe2::"};
  const std::string_view name = without_return_type(function);
  return std::ranges::any_of(kNamespaces, [name](std::string_view space) { return name.starts_with(space); });
}

}  // namespace trireme
