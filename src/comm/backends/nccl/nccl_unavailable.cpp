#include "comm/backends/availability.h"

namespace trireme::comm {

Availability nccl_available() {
  return {false, "this build has no CUDA backend yet; use backend 'host' for CPU tensors"};
}

}  // namespace trireme::comm
