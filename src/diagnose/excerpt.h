// Text of others, made fit for a terminal and for JSON.
#pragma once

#include <string>
#include <string_view>

namespace trireme::diagnose {

/// The text with every control character (escape sequences, NUL, bell, carriage return, C1 codes) and every byte that is not UTF-8 as "?", tabs
/// as blanks, and cut to `most` bytes at a character's border, with "..." where something was cut.
[[nodiscard]] std::string excerpt(std::string_view text, size_t most = 400);

/// Removes terminal escape sequences ("\x1b[4mGPU0\x1b[0m" -> "GPU0"), as nvidia-smi writes them into its own tables.
[[nodiscard]] std::string without_escapes(std::string_view text);

}  // namespace trireme::diagnose
