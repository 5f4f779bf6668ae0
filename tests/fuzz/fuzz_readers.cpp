// Whatever a file holds, the readers of saved outputs neither crash nor throw, and what they say can be printed and read back.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "diagnose/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trireme::diagnose;
  Readers readers = all_readers();
  Report report;
  read_text({reinterpret_cast<const char*>(data), size}, "fuzz", readers, report);
  finish(readers, report);
  const std::string json = to_json(report);
  if (to_json(report_from_json(json)) != json) std::abort();
  for (const char c : to_text(report, {})) {
    if (c != '\n' && static_cast<unsigned char>(c) < 0x20) std::abort();
  }
  return 0;
}
