// Oracle: closed form; line numbers counted by hand in the texts below.
#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using testing::HasSubstr;

TEST(FlatJson, JoinsKeysAndKnowsTheirLines) {
  const auto entries = parse_flat_json(
      "{\n  \"a\": 1,\n  // comment\n  \"b\": {\"c\": 2.5,\n \"d\":\n\n true}, \"e\": \"x\\ny\"\n}", "f");
  ASSERT_EQ(entries.size(), 4U);
  EXPECT_EQ(entries[0].key, "a");
  EXPECT_EQ(entries[0].line, 2);
  EXPECT_EQ(std::get<int64_t>(entries[0].value), 1);
  EXPECT_EQ(entries[1].key, "b.c");
  EXPECT_EQ(entries[1].line, 4);
  EXPECT_EQ(std::get<double>(entries[1].value), 2.5);
  EXPECT_EQ(entries[2].key, "b.d");
  EXPECT_EQ(entries[2].line, 5);
  EXPECT_TRUE(std::get<bool>(entries[2].value));
  EXPECT_EQ(entries[3].key, "e");
  EXPECT_EQ(entries[3].line, 7);
  EXPECT_EQ(std::get<std::string>(entries[3].value), "x\ny");
}

struct BadText {
  const char* text;
  const char* message;
};
class FlatJsonRefuses : public testing::TestWithParam<BadText> {};

TEST_P(FlatJsonRefuses, NamesFileLineAndReason) {
  try {
    (void)parse_flat_json(GetParam().text, "train.json");
    FAIL() << "accepted: " << GetParam().text;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), HasSubstr(GetParam().message));
  }
}
INSTANTIATE_TEST_SUITE_P(
    Texts, FlatJsonRefuses,
    testing::Values(BadText{"{\n\"a\": 1,\n\"a\": 2}", "train.json:3: key 'a' appears twice"},
                    BadText{"{\"a\": {\"b\": 1, \"b\": 2}}", "train.json:1: key 'a.b' appears twice"},
                    BadText{"{\n\"a\": [1]}", "train.json:2: key 'a' is an array"},
                    BadText{"{\n\n\"a\": null}", "train.json:3: key 'a' is null"},
                    BadText{"3", "train.json:1: the file is a single value"}, BadText{"", "train.json:1: "},
                    BadText{"{\"a\": 1}\n{", "train.json:2: "}, BadText{"{\"a\": 1,\n\"b\" 2}", "train.json:2: "}));

// Each name is kept in those of all levels below it: a file of 120 KB took 0.4 GB.
TEST(FlatJson, RefusesWhatIsNestedDeeperThanSettingsAre) {
  std::string text;
  for (int i = 0; i < 17; ++i) text += "\n{\"a\": ";
  try {
    (void)parse_flat_json(text + "1" + std::string(17, '}'), "train.json");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("train.json:17: key 'a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a' is nested deeper"));
  }
}

TEST(Json, WritesNumbersThatReadBackEqual) {
  EXPECT_EQ(json_number(3), "3.0");
  EXPECT_EQ(json_number(0.1), "0.1");
  EXPECT_EQ(json_number(1e300), "1e+300");
  EXPECT_EQ(json_number(std::nan("")), "null");
  EXPECT_EQ(json_number(-INFINITY), "null");
  EXPECT_EQ(json_quote("a\"\\\n\x01"), "\"a\\\"\\\\\\n\\u0001\"");
}

}  // namespace
}  // namespace trireme
