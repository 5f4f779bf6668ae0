// The files in completion/, which CMake turns into constants.
#pragma once

namespace trireme::cli {

extern const char* const kBashCompletion;
extern const char* const kZshCompletion;

}  // namespace trireme::cli
