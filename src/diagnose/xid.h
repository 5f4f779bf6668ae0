// What the numbers of NVIDIA's driver ("Xid") mean and what to do about each.
#pragma once

#include "diagnose/finding.h"

namespace trireme::diagnose {

struct XidMeaning {
  int number;
  Severity severity;
  const char* meaning;  ///< "the GPU has fallen off the PCIe bus"
  const char* action;
};

/// nullptr: a number that is not in the table.
[[nodiscard]] const XidMeaning* find_xid(int number) noexcept;

}  // namespace trireme::diagnose
