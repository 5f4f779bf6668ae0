// A report of another host may be any text: it is refused or read, and then printed without control characters.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "diagnose/report.h"
#include "trireme/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trireme::diagnose;
  try {
    const Report report = report_from_json({reinterpret_cast<const char*>(data), size});
    (void)to_json(report);
    for (const char c : to_text(report, {})) {
      if (c != '\n' && static_cast<unsigned char>(c) < 0x20) std::abort();
    }
  } catch (const trireme::Error&) {
  }
  return 0;
}
