// Which functions of a stack are not the user's.
#pragma once

#include <string_view>

namespace trireme {

/// Whether a demangled C++ function is of LibTorch, Trireme or the standard library: their templates are compiled into the user's program, so the
/// module does not tell. A return type may stand before the name: "void torch::f<int>(int)".
[[nodiscard]] bool is_library_function(std::string_view function) noexcept;

}  // namespace trireme
