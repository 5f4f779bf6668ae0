// What nvidia-smi prints: its table, -q, nvlink --status, and the sentences with which it or the driver refuses.
#pragma once

#include <memory>

#include "diagnose/reader.h"

namespace trireme::diagnose {

[[nodiscard]] std::unique_ptr<LineReader> make_nvidia_smi_reader();

}  // namespace trireme::diagnose
