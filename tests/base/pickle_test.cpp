// Oracle: closed form. Opcodes written by hand as Lib/pickletools.py defines them; what Python itself writes is compared in pickle_python_test.py.
#include "base/pickle_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/pickle_text.h"

namespace trireme::pickle {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using namespace std::string_literals;

Result<std::shared_ptr<const Document>> parse(std::string bytes, const Limits& limits = {}) {
  return read(std::make_shared<const std::string>(std::move(bytes)), limits);
}

TEST(Pickle, ReadsADictOfPlainValues) {
  // {"a": 1, "b": [None, True, 2.5]}
  const auto document = parse(
      "\x80\x04}(\x8c\x01"s
      "aK\x01\x8c\x01"s
      "b](N\x88G\x40\x04\0\0\0\0\0\0eu."s);
  ASSERT_TRUE(document.ok()) << document.reason();
  const Value& root = document.value()->root();
  ASSERT_TRUE(root.is(Kind::kDict));
  EXPECT_EQ(root.find("a")->int_or(-1), 1);
  const Value* list = root.find("b");
  ASSERT_NE(list, nullptr);
  ASSERT_EQ(list->items.size(), 3U);
  EXPECT_TRUE(list->items[0]->is(Kind::kNone));
  EXPECT_EQ(list->items[1]->int_or(-1), 1);
  EXPECT_EQ(list->items[2]->real, 2.5);
  EXPECT_EQ(root.find("c"), nullptr);
}

TEST(Pickle, AnObjectIsKeptAsItsNameAndNeverMade) {
  // os.system("echo") by REDUCE: the usual attack.
  const std::string attack = "cos\nsystem\n(S'echo'\ntR.";
  const auto kept = parse(attack);
  ASSERT_TRUE(kept.ok());
  EXPECT_TRUE(kept.value()->root().is(Kind::kObject));
  EXPECT_EQ(kept.value()->root().text, "os.system");
  EXPECT_EQ(kept.value()->root().items.at(0)->items.at(0)->str(), "echo");
  const auto refused = parse(attack, {.allow_objects = false});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.reason(), StartsWith("byte 0: 'os.system'"));
}

TEST(Pickle, AListMayHoldItself) {
  const auto document = parse("\x80\x02]q\0h\0a."s);
  ASSERT_TRUE(document.ok()) << document.reason();
  EXPECT_EQ(document.value()->root().items.at(0), &document.value()->root());
}

TEST(Pickle, TheLastOfEqualKeysWins) {
  const auto document = parse("}(U\x01xK\x01U\x01xK\x02u."s);
  EXPECT_EQ(document.value()->root().find("x")->int_or(-1), 2);
}

struct Bad {
  const char* name;
  std::string bytes;
  const char* words;
};
class PickleRefuses : public testing::TestWithParam<Bad> {};

TEST_P(PickleRefuses, WithAnOffsetAndAWord) {
  const auto document = parse(GetParam().bytes);
  ASSERT_FALSE(document.ok());
  EXPECT_THAT(document.reason(), StartsWith("byte "));
  EXPECT_THAT(document.reason(), HasSubstr(GetParam().words));
}

INSTANTIATE_TEST_SUITE_P(
    All, PickleRefuses,
    testing::Values(
        Bad{"Empty", "", "byte 0: the file is empty"}, Bad{"Protocol", "\x80\x09."s, "protocol 9"},
        Bad{"Opcode", "\x80\x02\xfe."s, "byte 2: unknown opcode 254"},
        Bad{"CutString", "\x80\x02X\x10\0\0\0abc"s, "byte 2: cut off: 16 bytes are announced and 3 are there"},
        Bad{"HugeString", "\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff"s, "cut off"},
        Bad{"NoStop", "\x80\x02K\x01"s, "byte 4: cut off"}, Bad{"EmptyStack", "."s, "byte 0: the stack is empty"},
        Bad{"PopBelowMark", "K\x01(a."s, "byte 3: the stack is empty"}, Bad{"NoMark", "K\x01t."s, "there is no mark"},
        Bad{"Memo", "\x80\x02h\x07."s, "memo entry 7 is not there"},
        Bad{"HugeMemo", "\x80\x02]r\xff\xff\xff\xff."s, "memo entry 4294967295 is beyond all bounds"},
        Bad{"OddDict", "}(K\x01u."s, "a key without a value"},
        Bad{"AppendToInt",
            "K\x01K\x02"
            "a."s,
            "takes no such items"},
        Bad{"CallInt", "K\x01)R."s, "no global would be called"}, Bad{"Integer", "I12x\n."s, "an integer is no number"},
        Bad{"Float", "Fabc\n."s, "a float is no number"}, Bad{"Quote", "S'abc\n."s, "bad quote"},
        Bad{"Escape", "S'ab\\x1'\n."s, "bad quote or escape"}, Bad{"Line", "I12"s, "a line has no end"}),
    [](const auto& info) { return info.param.name; });

TEST(Pickle, DepthIsBounded) {
  const std::string deep = "N" + std::string(5000, '\x85') + ".";
  const auto document = parse(deep);
  ASSERT_FALSE(document.ok());
  EXPECT_THAT(document.reason(), HasSubstr("nested deeper than 1000"));
  EXPECT_TRUE(parse("N" + std::string(999, '\x85') + ".").ok());
}

TEST(Pickle, TheNumberOfValuesIsBounded) {
  const auto document = parse(std::string(100, 'N') + ".", {.max_values = 50});
  ASSERT_FALSE(document.ok());
  EXPECT_THAT(document.reason(), HasSubstr("byte 50: more than 50 values"));
  // DUP makes no value, and must not grow the stack without bound either.
  EXPECT_THAT(parse("N" + std::string(100, '2') + ".", {.max_values = 50}).reason(), HasSubstr("beyond all bounds"));
}

TEST(Pickle, EveryCutOfAGoodPickleIsAReasonAndNoCrash) {
  const std::string good =
      "\x80\x04}(\x8c\x01"s
      "aK\x01\x8c\x01"s
      "b](N\x88G\x40\x04\0\0\0\0\0\0eu."s;
  for (size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(parse(good.substr(0, size)).ok()) << size;
}

TEST(Pickle, RandomBytesNeverCrash) {
  std::mt19937 random(7);
  const std::string opcodes =
      "(.012FIJKLMNPQRSTUVXabcd}eghijl]oprqst)uG\x80\x81\x85\x86\x87\x88\x89\x8a\x8b"
      "BC\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\n\x01\x02";
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes(random() % 60, '\0');
    for (char& c : bytes) c = opcodes[random() % opcodes.size()];
    (void)parse(bytes + ".", {.max_values = 10'000});
  }
}

TEST(PickleText, LongsAreTwosComplement) {
  EXPECT_EQ(long_bytes("0"), ""s);
  EXPECT_EQ(long_bytes("127"), "\x7f"s);
  EXPECT_EQ(long_bytes("128"), "\x80\0"s);
  EXPECT_EQ(long_bytes("-1"), "\xff"s);
  EXPECT_EQ(long_bytes("-128"), "\x80"s);
  EXPECT_EQ(long_bytes("-129"), "\x7f\xff"s);
  EXPECT_EQ(long_bytes("18446744073709551616"), "\0\0\0\0\0\0\0\0\x01"s);
  EXPECT_EQ(long_bytes(""), std::nullopt);
  EXPECT_EQ(long_bytes(std::string(5000, '1')), std::nullopt);
}

TEST(Pickle, ALongBeyond64BitsKeepsItsNearestDouble) {
  const auto document = parse("\x80\x02\x8a\x09\0\0\0\0\0\0\0\0\x01."s);
  ASSERT_TRUE(document.ok()) << document.reason();
  EXPECT_TRUE(document.value()->root().is(Kind::kBigInt));
  EXPECT_EQ(document.value()->root().real, 18446744073709551616.0);
}

TEST(Pickle, LooksLikeOne) {
  EXPECT_TRUE(looks_like_pickle("\x80\x02}q"));
  EXPECT_TRUE(looks_like_pickle("\x80\x04\x95\x10"));
  EXPECT_TRUE(looks_like_pickle("(dp0\nS'a'"));
  EXPECT_FALSE(looks_like_pickle("{\"traceEvents\": []}"));
  EXPECT_FALSE(looks_like_pickle("node-01:1:1 [0] NCCL INFO"));
  EXPECT_FALSE(looks_like_pickle("\x80"));
  EXPECT_FALSE(looks_like_pickle("(deleted) file"));
}

}  // namespace
}  // namespace trireme::pickle
