// Oracle: closed form. What a scope says is what a reader of the trace file finds, while the scope lives and no longer.
#include "trireme/comm/busy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <thread>
#include <vector>

#include "base/str.h"
#include "profile/collective_trace.h"
#include "support/temp_dir.h"

namespace trireme::profile {
namespace {

std::vector<std::string> shown(const std::string& path) {
  std::vector<std::string> texts;
  const auto trace = read_collective_trace(path);
  if (!trace.ok()) return {trace.reason()};
  for (const BusyState& state : trace.value().busy) texts.push_back(str(state.what, " ", state.fraction));
  return texts;
}

class BusyTest : public ::testing::Test {
 protected:
  test::TempDir folder_;
  std::string path_ = folder_.path() + "/rank0.trace";
  std::unique_ptr<CollectiveTrace> trace_ = open_collective_trace({.path = path_});
};

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(BusyTest, IsShownWhileItLives) {
  EXPECT_THAT(shown(path_), IsEmpty());
  {
    comm::BusyScope saving = comm::busy("saving a checkpoint");
    EXPECT_THAT(shown(path_), ElementsAre("saving a checkpoint -1"));
    saving.progress(0.25);
    EXPECT_THAT(shown(path_), ElementsAre("saving a checkpoint 0.25"));
    const comm::BusyScope inner = comm::busy("line\nfeed", 2);
    EXPECT_THAT(shown(path_), ElementsAre("saving a checkpoint 0.25", "line?feed 1"));
    EXPECT_EQ(trace_->snapshot().busy.size(), 2U);
  }
  EXPECT_THAT(shown(path_), IsEmpty());
}

TEST_F(BusyTest, ATraceThatIsOpenedLaterShowsItToo) {
  const comm::BusyScope scope = comm::busy("loading");
  const auto later = open_collective_trace({.path = path_ + ".2"});
  EXPECT_THAT(shown(path_ + ".2"), ElementsAre("loading -1"));
}

TEST_F(BusyTest, MoreThanCanBeShownAreLeftOut) {
  std::vector<std::unique_ptr<comm::BusyScope>> scopes;
  for (int i = 0; i < 12; ++i) scopes.push_back(std::make_unique<comm::BusyScope>("many", -1));
  EXPECT_EQ(shown(path_).size(), 8U);
  scopes.clear();
  EXPECT_THAT(shown(path_), IsEmpty());
}

// Its pages are those of its parent's file.
TEST_F(BusyTest, AForkedChildShowsNothing) {
  const pid_t child = fork();
  if (child == 0) {
    const comm::BusyScope scope = comm::busy("of the child");
    _exit(shown(path_).empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(BusyTest, PendingCallsAreReadAloneAndShowItToo) {
  const uint16_t group = trace_->register_group("world", {0, 1});
  TraceRecord record;
  record.group = group;
  for (int call = 1; call <= 3; ++call) {
    record.call = static_cast<uint64_t>(call);
    const uint64_t token = trace_->queued(record);
    if (call > 1) trace_->started(token);
    if (call == 2) trace_->finished(token, true);
  }
  const comm::BusyScope scope = comm::busy("loading");
  PendingCalls pending;
  for (int i = 0; i < 2; ++i) {
    const auto trace = pending.read(path_);
    ASSERT_TRUE(trace.ok()) << trace.reason();
    ASSERT_EQ(trace.value().records.size(), 2U);
    EXPECT_EQ(trace.value().records[0].call, 1U);
    EXPECT_EQ(trace.value().records[1].call, 3U);
    EXPECT_EQ(trace.value().torn, 0U);
    EXPECT_EQ(trace.value().busy.size(), 1U);
  }
}

TEST_F(BusyTest, ThreadsMayBeBusyAtOnce) {
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 500; ++i) {
        comm::BusyScope scope = comm::busy("turning", 0);
        scope.progress(0.5);
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    for (const std::string& text : shown(path_)) EXPECT_THAT(text, ::testing::StartsWith("turning "));
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(shown(path_), IsEmpty());
}

}  // namespace
}  // namespace trireme::profile
