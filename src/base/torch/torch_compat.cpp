#include "base/torch/torch_compat.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/headeronly/version.h>

#include "base/str.h"
#include "trireme/base/error.h"

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

}  // namespace trireme
