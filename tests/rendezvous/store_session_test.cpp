// Oracle: closed form, on the bytes of the protocol; no sockets.
#include "rendezvous/store_session.h"

#include <gtest/gtest.h>

namespace trireme::rendezvous {
namespace {

using wire::Query;

class StoreSessionTest : public testing::Test {
 protected:
  StoreSessionTest() {
    EXPECT_TRUE(say([](wire::Writer& w) { w.query(Query::kValidate), w.number(wire::kMagic); }));
  }

  template <typename Build>
  bool say(Build&& build) {
    wire::Writer writer;
    build(writer);
    session_.receive(writer.bytes());
    return session_.progress();
  }
  std::string answer() {
    const std::string bytes(session_.unread());
    session_.sent(bytes.size());
    return bytes;
  }

  StoreTable table_;
  std::vector<uint64_t> over_;
  StoreSession session_{table_, 4096, [this](uint64_t number) { over_.push_back(number); }};
};

TEST_F(StoreSessionTest, LimitCountsEntriesToo) {
  int rounds = 0;
  const auto add_one = [&](wire::Writer& w) {
    w.query(Query::kAdd);
    w.text("/" + std::to_string(rounds));
    w.number(int64_t{1});
  };
  while (rounds < 1000 && say(add_one)) ++rounds;
  EXPECT_LE(rounds, 4096 / 128 + 1) << "small entries cost nothing";
  EXPECT_GT(rounds, 10);
}

// The answer is held in memory until it is read.
TEST_F(StoreSessionTest, OneAnswerStaysBelowTheLimitOfAMessage) {
  StoreTable table;
  table.set("/big", std::string(size_t{1} << 20, 'x'));
  StoreSession session(table, size_t{1} << 30, [](uint64_t) {});
  const auto ask = [&session](uint64_t times) {
    wire::Writer request;
    request.query(Query::kMultiGet);
    request.number(times);
    for (uint64_t i = 0; i < times; ++i) request.text("/big");
    session.receive(request.bytes());
    return session.progress();
  };
  wire::Writer hello;
  hello.query(Query::kValidate);
  hello.number(wire::kMagic);
  session.receive(hello.bytes());
  EXPECT_TRUE(ask(8));
  session.sent(session.unread().size());
  EXPECT_FALSE(ask(65));
}

TEST_F(StoreSessionTest, BytesOfWhatIsGoneAreGivenBack) {
  for (int round = 0; round < 200; ++round) {
    ASSERT_TRUE(say([](wire::Writer& w) { w.query(Query::kSet), w.text("/k"), w.text(std::string(1000, 'x')); }));
    ASSERT_TRUE(say([](wire::Writer& w) { w.query(Query::kAppend), w.text("/k"), w.text("more"); }));
    ASSERT_TRUE(say([](wire::Writer& w) { w.query(Query::kQueuePush), w.text("/q"), w.text(std::string(500, 'y')); }));
    ASSERT_TRUE(say([](wire::Writer& w) { w.query(Query::kQueuePop), w.text("/q"); }));
    ASSERT_TRUE(say([](wire::Writer& w) { w.query(Query::kDeleteKey), w.text("/k"); }));
    (void)answer();
  }
  EXPECT_EQ(table_.bytes(), 0U);
}

TEST_F(StoreSessionTest, LateCallBackOfACancelledWaitReleasesNothing) {
  const auto wait_for = [](const char* key) {
    return [key](wire::Writer& w) { w.query(Query::kWait), w.number(uint64_t{1}), w.text(key); };
  };
  ASSERT_TRUE(say(wait_for("/a")));
  table_.set("/a", "");
  ASSERT_EQ(over_.size(), 1U);
  ASSERT_TRUE(say([](wire::Writer& w) { w.query(Query::kCancelWait); }));
  EXPECT_EQ(answer(), std::string(1, static_cast<char>(wire::kWaitCanceled)));
  ASSERT_TRUE(say(wait_for("/b")));
  session_.release(over_[0]);
  EXPECT_EQ(answer(), "") << "the wait for b was released by a";
  table_.set("/b", "");
  session_.release(over_.at(1));
  EXPECT_EQ(answer(), std::string(1, static_cast<char>(wire::kStopWaiting)));
  session_.release(over_[1]);
  EXPECT_EQ(answer(), "") << "released twice";
}

TEST_F(StoreSessionTest, UnreadAnswersHoldRequestsBack) {
  table_.set("/big", std::string(size_t{6} << 20, 'x'));
  wire::Writer many;
  for (int i = 0; i < 10; ++i) many.query(Query::kGet), many.text("/big");
  session_.receive(many.bytes());
  ASSERT_TRUE(session_.progress());
  EXPECT_LT(session_.unread().size(), StoreSession::kMaxUnreadBytes + (size_t{7} << 20));
  size_t bytes = 0;
  while (!session_.unread().empty()) {
    bytes += answer().size();
    ASSERT_TRUE(session_.progress());
  }
  EXPECT_EQ(bytes, 10 * ((size_t{6} << 20) + 8)) << "all ten are answered in the end";
}

}  // namespace
}  // namespace trireme::rendezvous
