// Oracle: what the test itself allocates and frees; the file is read back by our pickle reader, which is held against Python's.
#include "memory/track/allocation_history.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/pickle_reader.h"

namespace {

using trireme::memory::AllocationHistory;
using trireme::memory::HistoryCopy;
using trireme::memory::HistoryEvent;

const void* at(uintptr_t address) { return reinterpret_cast<const void*>(address); }

}  // namespace

// A line of its own.
[[gnu::noinline]] void history_test_allocates(AllocationHistory& history, uintptr_t address, size_t bytes) {
  history.allocated(at(address), bytes);
  asm volatile("");
}

namespace {

std::shared_ptr<const trireme::pickle::Document> read(const HistoryCopy& copy) {
  auto document = trireme::pickle::read(std::make_shared<const std::string>(trireme::memory::snapshot_pickle(copy)));
  EXPECT_TRUE(document.ok()) << document.reason();
  return document.value();
}

TEST(AllocationHistory, TellsEventsInOrderAndWhatIsAlive) {
  AllocationHistory history(100, true);
  history_test_allocates(history, 0x1000, 64);
  history_test_allocates(history, 0x2000, 32);
  history.freed(at(0x1000));
  history.freed(at(0x7777));  // nobody told of it
  history.refused(uintptr_t{1} << 40);
  const auto document = read(history.copy());
  const auto& root = document->root();
  ASSERT_EQ(root.find("segments")->items.size(), 1U);
  const auto& block = *root.find("segments")->items[0]->find("blocks")->items[0];
  EXPECT_EQ(block.find("address")->integer, 0x2000);
  EXPECT_EQ(block.find("size")->integer, 32);
  EXPECT_EQ(block.find("state")->str(), "active_allocated");
  const auto& events = root.find("device_traces")->items[0]->items;
  std::vector<std::string> actions;
  int64_t time = 0;
  for (const auto* event : events) {
    actions.emplace_back(event->find("action")->str());
    EXPECT_GE(event->find("time_us")->integer, time);
    time = event->find("time_us")->integer;
    bool named = false;
    for (const auto* frame : event->find("frames")->items)
      named = named || frame->find("name")->str().find("history_test_allocates") != std::string_view::npos;
    EXPECT_EQ(named, event->find("action")->str() != "oom");
  }
  EXPECT_EQ(actions, (std::vector<std::string>{"alloc", "alloc", "free_requested", "free_completed", "oom"}));
  EXPECT_EQ(events[4]->find("size")->integer, int64_t{1} << 40);
  EXPECT_GT(events[4]->find("device_free")->integer, 0);
  EXPECT_EQ(root.find("trireme")->find("dropped_events")->integer, 0);
}

// The published case: a million events, a ring of 100,000. The newest stay, the file says how many are gone, and it is written in under 10 s.
TEST(AllocationHistory, AMillionEventsLeaveTheNewestAndAFileInSeconds) {
  using Clock = std::chrono::steady_clock;
  AllocationHistory history(100'000, true);
  const auto start = Clock::now();
  for (uintptr_t i = 0; i < 500'000; ++i) {
    history_test_allocates(history, 0x100000 + i * 64, i);
    history.freed(at(0x100000 + i * 64));
  }
  const auto recorded = Clock::now();
  const HistoryCopy copy = history.copy();
  const std::string file = trireme::memory::snapshot_pickle(copy);
  const auto written = Clock::now();
  const auto seconds = [](auto from, auto to) { return std::chrono::duration<double>(to - from).count(); };
  std::printf("recording: %.2f us an event; writing %zu events: %.2f s, %zu bytes\n", seconds(start, recorded),
              copy.events.size(), seconds(recorded, written), file.size());
  EXPECT_LT(seconds(recorded, written), 10);
  EXPECT_EQ(copy.recorded, 1'000'000U);
  EXPECT_EQ(copy.dropped(), 900'000U);
  ASSERT_EQ(copy.events.size(), 100'000U);
  for (uintptr_t i = 0; i < 50'000; ++i) {
    ASSERT_EQ(copy.events[2 * i].bytes, static_cast<int64_t>(450'000 + i));
    ASSERT_EQ(copy.events[2 * i].action, HistoryEvent::Action::kAlloc);
    ASSERT_EQ(copy.events[2 * i + 1].action, HistoryEvent::Action::kFree);
  }
  const auto document = read(copy);
  EXPECT_EQ(document->root().find("trireme")->find("dropped_events")->integer, 900'000);
  EXPECT_EQ(document->root().find("trireme")->find("recorded_events")->integer, 1'000'000);
}

TEST(AllocationHistory, WithoutStacksFramesAreEmpty) {
  AllocationHistory history(3, false);
  for (uintptr_t i = 1; i <= 5; ++i) history.allocated(at(i * 64), i);
  const HistoryCopy copy = history.copy();
  ASSERT_EQ(copy.events.size(), 3U);
  EXPECT_EQ(copy.events[0].bytes, 3);
  EXPECT_EQ(copy.alive.size(), 5U);
  EXPECT_TRUE(read(copy)->root().find("segments")->items[0]->find("frames")->items.empty());
}

// Recording goes on while a file is written: what is copied is a state that was.
TEST(AllocationHistory, IsCopiedWhileThreadsAllocate) {
  AllocationHistory history(1000, false);
  std::vector<std::thread> threads;
  for (uintptr_t t = 1; t <= 3; ++t) {
    threads.emplace_back([&history, t] {
      for (uintptr_t i = 0; i < 20'000; ++i) {
        history.allocated(at((t << 32) + (i % 50) * 64), 1);
        history.freed(at((t << 32) + (i % 50) * 64));
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    const HistoryCopy copy = history.copy();
    EXPECT_LE(copy.alive.size(), 3U);
    for (size_t e = 1; e < copy.events.size(); ++e) EXPECT_LE(copy.events[e - 1].time_us, copy.events[e].time_us);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(history.copy().recorded, 120'000U);
}

}  // namespace
