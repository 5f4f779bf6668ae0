// Whether a backend can be used, in files that need no LibTorch.
#pragma once

#include <string>

namespace trireme::comm {

struct Availability {
  bool ok = false;
  std::string reason;  ///< shown to the user when !ok
};

[[nodiscard]] Availability host_available();
[[nodiscard]] Availability nccl_available();
[[nodiscard]] Availability mpi_available();

}  // namespace trireme::comm
