// Everything that is shipped: machines/ and models/, as the reader of measurement tables wants them.
#pragma once

#include "plan/row_reader.h"

namespace trireme::plan {

/// Errors   those of load_machines() and of the model files.
[[nodiscard]] Catalog load_catalog();

}  // namespace trireme::plan
