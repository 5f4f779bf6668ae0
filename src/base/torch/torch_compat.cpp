#include "base/torch/torch_compat.h"

#include <c10/util/Exception.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/headeronly/version.h>

#include "base/str.h"

namespace trireme {
namespace {

std::string unpack(uint64_t version) {
  return str(version >> 56, '.', (version >> 48) & 0xff, '.', (version >> 40) & 0xff);
}

}  // namespace

std::string compiled_torch_version() { return unpack(TORCH_ABI_VERSION); }
std::string loaded_torch_version() { return unpack(aoti_torch_abi_version()); }

void check_torch_version() { check_torch_version(aoti_torch_abi_version()); }

void check_torch_version(uint64_t loaded) {
  if (loaded >> 48 == static_cast<uint64_t>(TORCH_ABI_VERSION) >> 48) return;
  throw Error(
      ErrorKind::kUnavailable,
      str("[base.torch] this build was compiled against LibTorch ", compiled_torch_version(), " but ", unpack(loaded),
          " is loaded; both must be the same minor version. Rebuild Trireme, or load the other ",
          "library (LD_LIBRARY_PATH, rpath)."));
}

ErrorKind kind_of(const c10::Error& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return ErrorKind::kOutOfMemory;
  // The CPU's allocator has no type of its own for it ("can't allocate memory" here, "not enough memory" on Windows).
  return error.msg().find("DefaultCPUAllocator") != std::string::npos ? ErrorKind::kOutOfMemory : ErrorKind::kInternal;
}

}  // namespace trireme
