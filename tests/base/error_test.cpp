// Oracle: the documented exit codes (docs/errors.md) and message form.
#include "trireme/base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/result.h"

namespace trireme {
namespace {

TEST(Error, MapsKindsToExitCodes) {
  EXPECT_EQ(exit_code(ErrorKind::kConfig), 2);
  EXPECT_EQ(exit_code(ErrorKind::kUnavailable), 4);
  EXPECT_EQ(exit_code(ErrorKind::kPeerLost), 5);
  EXPECT_EQ(exit_code(ErrorKind::kTimeout), 5);
  EXPECT_EQ(exit_code(ErrorKind::kInternal), 70);
  EXPECT_EQ(exit_code(ErrorKind::kMismatch), 1);
}

TEST(Error, FailedCheckNamesConditionPlaceAndValue) {
  try {
    TRIREME_CHECK(1 + 1 == 3, "the sum is 2");
    FAIL() << "no throw";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInternal);
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("1 + 1 == 3"), testing::HasSubstr("error_test.cpp")));
  }
}

TEST(Result, CarriesValueOrReason) {
  const Result<int> good = 3;
  const Result<int> bad = Reason{"5 bytes too many"};
  EXPECT_EQ(good.value(), 3);
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.reason(), "5 bytes too many");
  EXPECT_THROW((void)bad.value(), Error);
}

}  // namespace
}  // namespace trireme
