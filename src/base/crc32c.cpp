#include "base/crc32c.h"

#include <array>

namespace trireme {
namespace {

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
    table[i] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = make_table();

}  // namespace

// One table and one byte at a time: event files are a few kilobytes, so the wider methods would only add code.
uint32_t crc32c(const void* data, size_t size, uint32_t crc) noexcept {
  const auto* bytes = static_cast<const unsigned char*>(data);
  uint32_t state = ~crc;
  for (size_t i = 0; i < size; ++i) state = kTable[(state ^ bytes[i]) & 0xFFU] ^ (state >> 8U);
  return ~state;
}

}  // namespace trireme
