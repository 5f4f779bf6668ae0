// Oracle: the sanitizers, and that a reason names its offset. Whatever the bytes are, values and depth stay below the limits.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/pickle_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace pickle = trireme::pickle;
  constexpr size_t kMostValues = 100'000;
  auto bytes = std::make_shared<const std::string>(reinterpret_cast<const char*>(data), size);
  (void)pickle::looks_like_pickle(*bytes);
  const auto document = pickle::read(bytes, {.max_values = kMostValues});
  if (!document.ok()) {
    if (!document.reason().starts_with("byte ")) std::abort();
    return 0;
  }
  if (document.value()->num_values() > kMostValues || document.value()->bytes_read() > size) std::abort();
  const pickle::Value& root = document.value()->root();
  if (root.depth > pickle::Limits{}.max_depth) std::abort();
  if (const pickle::Value* entries = root.find("entries"); entries != nullptr) (void)entries->int_or(0);
  return 0;
}
