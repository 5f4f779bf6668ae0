// Oracle: our reader, which is held against Python's own by pickle_python_test.py; and for the bytes, the listing of pickletools.dis.
#include "base/pickle_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/pickle_reader.h"
#include "trireme/base/error.h"

namespace trireme::pickle {
namespace {

const Value& read_back(const std::string& bytes, std::shared_ptr<const Document>& document) {
  auto result = read(std::make_shared<const std::string>(bytes));
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.reason());
  document = result.value();
  return document->root();
}

TEST(PickleWriter, IntegersAtEveryBorderComeBack) {
  for (const int64_t value :
       std::initializer_list<int64_t>{0, 1, 255, 256, 65535, 65536, INT32_MAX, int64_t{INT32_MAX} + 1, -1, -256,
                                      INT32_MIN, int64_t{INT32_MIN} - 1, INT64_MAX, INT64_MIN}) {
    std::string out;
    Writer writer(out);
    writer.integer(value);
    writer.finish();
    std::shared_ptr<const Document> document;
    const Value& root = read_back(out, document);
    EXPECT_TRUE(root.is(Kind::kInt)) << value;
    EXPECT_EQ(root.integer, value);
  }
}

TEST(PickleWriter, ContainersNestAndKeepTheirOrder) {
  std::string out;
  Writer writer(out);
  writer.begin_dict();
  writer.text("list");
  writer.begin_list();
  writer.real(-0.5);
  writer.none();
  writer.boolean(true);
  writer.begin_tuple();
  writer.end();
  writer.end();
  writer.text("tuple");
  writer.begin_tuple();
  writer.text("a");
  writer.integer(-7);
  writer.end();
  writer.end();
  writer.finish();
  std::shared_ptr<const Document> document;
  const Value& root = read_back(out, document);
  const Value* list = root.find("list");
  ASSERT_TRUE(list != nullptr && list->is(Kind::kList) && list->items.size() == 4);
  EXPECT_EQ(list->items[0]->real, -0.5);
  EXPECT_TRUE(list->items[1]->is(Kind::kNone));
  EXPECT_TRUE(list->items[2]->is(Kind::kBool));
  EXPECT_TRUE(list->items[3]->is(Kind::kTuple));
  const Value* tuple = root.find("tuple");
  ASSERT_TRUE(tuple != nullptr && tuple->is(Kind::kTuple) && tuple->items.size() == 2);
  EXPECT_EQ(tuple->items[0]->str(), "a");
  EXPECT_EQ(tuple->items[1]->integer, -7);
}

// Python refuses a pickle with text that is no UTF-8, and with it all that is right in the file.
TEST(PickleWriter, BytesThatAreNoUtf8AreReplaced) {
  const std::pair<const char*, const char*> cases[] = {
      {"\xc3\xa4 \xe2\x82\xac \xf0\x9f\x9a\xa3", "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x9a\xa3"},
      {"a\xff"
       "b",
       "a\xef\xbf\xbd"
       "b"},
      {"\xc3", "\xef\xbf\xbd"},
      {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
      {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"}};
  for (const auto& [given, wanted] : cases) {
    std::string out;
    Writer writer(out);
    writer.text(given);
    writer.finish();
    std::shared_ptr<const Document> document;
    EXPECT_EQ(read_back(out, document).str(), wanted);
  }
}

TEST(PickleWriter, HoldsTheCallerToItsContainers) {
  std::string out;
  Writer writer(out);
  EXPECT_THROW(writer.end(), Error);
  writer.begin_list();
  EXPECT_THROW(writer.finish(), Error);
}

// As Python's reader has it, what was remembered and what is recalled are one object: here, one address.
TEST(PickleWriter, RecallsValuesAndContainersAsTheSameObject) {
  std::string out;
  Writer writer(out);
  writer.begin_list();
  writer.begin_list();
  writer.integer(7);
  writer.end();
  const uint32_t list = writer.remember();
  std::vector<uint32_t> words;
  for (int i = 0; i < 300; ++i) {  // beyond what one byte can name
    writer.text(std::to_string(i));
    words.push_back(writer.remember());
  }
  writer.recall(list);
  writer.recall(words[2]);
  writer.recall(words[299]);
  writer.end();
  writer.finish();
  std::shared_ptr<const Document> document;
  const Value& root = read_back(out, document);
  ASSERT_EQ(root.items.size(), 304U);
  EXPECT_EQ(root.items[301], root.items[0]);
  EXPECT_EQ(root.items[302]->str(), "2");
  EXPECT_EQ(root.items[303]->str(), "299");
  EXPECT_THROW(writer.recall(301), Error);
}

}  // namespace
}  // namespace trireme::pickle
