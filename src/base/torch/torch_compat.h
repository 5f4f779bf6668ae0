// What differs between releases of LibTorch, and the check that the loaded one is the one we were compiled for.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/error.h"

namespace c10 {
class Error;
}

namespace trireme {

/// "2.13.0" of the headers, and of the library that is loaded.
[[nodiscard]] std::string compiled_torch_version();
[[nodiscard]] std::string loaded_torch_version();

/// Throws kUnavailable unless both are the same minor: c10d and autograd have no stable ABI, so a mix would crash
/// later, somewhere else. The overload takes the packed version (major, minor, patch in the top three bytes) for tests.
void check_torch_version();
void check_torch_version(uint64_t loaded);

/// What an error of LibTorch is for us: kOutOfMemory when memory could not be had, on CPU or GPU; else kInternal.
[[nodiscard]] ErrorKind kind_of(const c10::Error& error);

}  // namespace trireme
