// Oracle: the vectors of RFC 3720, appendix B.4, and the CRC of "123456789" that every CRC catalogue gives.
#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <string_view>

namespace trireme {
namespace {

TEST(Crc32c, AgreesWithPublishedVectors) {
  std::array<unsigned char, 32> bytes{};
  EXPECT_EQ(crc32c(bytes.data(), bytes.size()), 0x8A9136AAU);
  bytes.fill(0xFF);
  EXPECT_EQ(crc32c(bytes.data(), bytes.size()), 0x62A8AB43U);
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
  EXPECT_EQ(crc32c(bytes.data(), bytes.size()), 0x46DD794EU);
  EXPECT_EQ(crc32c("123456789", 9), 0xE3069283U);
  EXPECT_EQ(crc32c(nullptr, 0), 0U);
}

TEST(Crc32c, ContinuesOverPieces) {
  const std::string_view text = "123456789";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(crc32c(text.data() + cut, text.size() - cut, crc32c(text.data(), cut)), 0xE3069283U) << cut;
  }
}

}  // namespace
}  // namespace trireme
