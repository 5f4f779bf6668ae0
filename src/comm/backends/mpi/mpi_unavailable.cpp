#include "comm/backends/availability.h"

namespace trireme::comm {

Availability mpi_available() { return {false, "this build has no MPI backend yet; use backend 'host'"}; }

}  // namespace trireme::comm
