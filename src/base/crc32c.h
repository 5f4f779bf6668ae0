// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), the checksum of TensorBoard's record framing.
// RFC 3720, appendix B.4 has test vectors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trireme {

/// CRC-32C of `size` bytes. `crc` continues an earlier one: crc32c(b, n, crc32c(a, m)) is that of a followed by b.
[[nodiscard]] uint32_t crc32c(const void* data, size_t size, uint32_t crc = 0) noexcept;

/// TFRecord files store this instead of the plain value, so that the CRC of data that holds CRCs stays useful.
[[nodiscard]] constexpr uint32_t mask_crc32c(uint32_t crc) noexcept {
  return ((crc >> 15U) | (crc << 17U)) + 0xA282EAD8U;
}

}  // namespace trireme
