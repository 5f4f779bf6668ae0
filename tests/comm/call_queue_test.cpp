// Oracle: the queue's contract: calls run in issue order, on the waiting thread unless nobody waits, each exactly once.
#include "comm/algorithms/call_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

TEST(CallQueue, RunsOnTheWaitingThreadInIssueOrder) {
  CallQueue queue("g", "test", nullptr);
  std::mutex mutex;
  std::vector<uint64_t> order;
  std::vector<CallPtr> calls;
  for (int i = 0; i < 5; ++i) {
    calls.push_back(queue.issue({}, [&](const CallInfo& info) {
      const std::lock_guard lock(mutex);
      order.push_back(info.call);
    }));
  }
  queue.wait(calls[4]);
  EXPECT_EQ(order, (std::vector<uint64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(queue.last_finished(), 5U);
  queue.wait(calls[0]);  // long done
  EXPECT_EQ(order.size(), 5U);
}

TEST(CallQueue, ProgressThreadTakesWhatNobodyWaitsFor) {
  CallQueue queue("g", "test", nullptr);
  std::promise<std::thread::id> ran;
  const CallPtr call = queue.issue({}, [&](const CallInfo&) { ran.set_value(std::this_thread::get_id()); });
  EXPECT_NE(ran.get_future().get(), std::this_thread::get_id());
  queue.wait(call);
  EXPECT_TRUE(CallQueue::finished(*call));
}

TEST(CallQueue, ProgressThreadWakesAgainAfterItWentToSleep) {
  CallQueue queue("g", "test", nullptr);
  for (int round = 0; round < 3; ++round) {
    std::promise<void> ran;
    const CallPtr call = queue.issue({}, [&](const CallInfo&) { ran.set_value(); });
    ran.get_future().get();
    // Longer than the progress thread stays awake: its sleep is what is tested, and no event tells of it.
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
  }
  EXPECT_EQ(queue.last_issued(), 3U);
}

TEST(CallQueue, KickStartsAtOnce) {
  CallQueue queue("g", "test", nullptr);
  std::promise<void> ran;
  const CallPtr call = queue.issue({}, [&](const CallInfo&) { ran.set_value(); });
  queue.kick();
  ran.get_future().get();
  queue.wait(call);
  EXPECT_TRUE(CallQueue::finished(*call));
}

TEST(CallQueue, ErrorReachesEveryWaiterAndTheDoneFunction) {
  CallQueue queue("g", "test", nullptr);
  std::exception_ptr seen;
  const CallPtr call = queue.issue(
      {}, [](const CallInfo&) { throw Error(ErrorKind::kPeerLost, "rank 3 died"); },
      [&](std::exception_ptr error) { seen = error; });
  EXPECT_THROW(queue.wait(call), Error);
  EXPECT_THROW(queue.wait(call), Error);
  EXPECT_TRUE(seen != nullptr);
  const CallPtr next = queue.issue({}, [](const CallInfo&) {});
  queue.wait(next);  // the queue itself goes on; whether the group is broken is the communicator's business
  EXPECT_TRUE(CallQueue::finished(*next));
}

TEST(CallQueue, ManyThreadsIssueAndWaitEachCallOnce) {
  CallQueue queue("g", "test", nullptr);
  std::atomic<int> runs{0};
  std::atomic<uint64_t> last{0};
  std::atomic<bool> in_order{true};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        const CallPtr call = queue.issue({}, [&](const CallInfo& info) {
          if (last.exchange(info.call) + 1 != info.call) in_order = false;
          ++runs;
        });
        if (i % 3 == 0) queue.kick();
        if (i % 2 == 0) queue.wait(call);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const CallPtr end = queue.issue({}, [](const CallInfo&) {});
  queue.wait(end);
  EXPECT_EQ(runs.load(), 2000);
  EXPECT_TRUE(in_order.load());
}

// A done function is where a user's Future callback runs; whatever thread executes the call, it may use the group like any other code.
class DoneFunctionOn : public ::testing::TestWithParam<bool> {
 protected:
  /// Has the first call executed by this thread or by the progress thread, and returns when `done` has been called.
  static void run_first(CallQueue& queue, const CallPtr& call, std::future<void> done) {
    if (GetParam()) {
      queue.kick();
      done.get();
    } else {
      queue.wait(call);
    }
  }
};

TEST_P(DoneFunctionOn, MayWaitForTheCallsBehindItAndForItsOwn) {
  CallQueue queue("g", "test", nullptr);
  std::vector<uint64_t> order;
  const auto body = [&](const CallInfo& info) { order.push_back(info.call); };
  std::promise<void> done;
  std::future<void> is_done = done.get_future();
  CallPtr second;
  CallPtr first;
  first = queue.issue({}, body, [&](std::exception_ptr) {
    queue.wait(second);
    queue.wait(first);
    queue.wait(queue.issue({}, body, [&](std::exception_ptr) { queue.wait(queue.issue({}, body)); }));
    done.set_value();
  });
  second = queue.issue({}, body);
  run_first(queue, first, std::move(is_done));
  queue.wait(first);
  EXPECT_EQ(order, (std::vector<uint64_t>{1, 2, 3, 4}));
  EXPECT_EQ(queue.last_finished(), 4U);
}

TEST_P(DoneFunctionOn, MayDestroyTheQueue) {
  auto queue = std::make_unique<CallQueue>("g", "test", nullptr);
  std::promise<void> done;
  std::future<void> is_done = done.get_future();
  CallPtr second;
  const CallPtr first = queue->issue(
      {}, [](const CallInfo&) {},
      [&](std::exception_ptr) {
        second = queue->issue({}, [](const CallInfo&) {});
        queue.reset();
        done.set_value();
      });
  run_first(*queue, first, std::move(is_done));
  EXPECT_EQ(queue, nullptr);
  EXPECT_TRUE(CallQueue::finished(*second));
  EXPECT_TRUE(CallQueue::error(*second) != nullptr);
}

// Who hears of the end may let the group go at once, and must not find a call pending.
TEST_P(DoneFunctionOn, SeesItsCallCountedAsFinished) {
  CallQueue queue("g", "test", nullptr);
  std::promise<void> done;
  std::future<void> is_done = done.get_future();
  uint64_t seen = 0;
  const CallPtr call = queue.issue(
      {}, [](const CallInfo&) {},
      [&](std::exception_ptr) {
        seen = queue.last_finished();
        done.set_value();
      });
  run_first(queue, call, std::move(is_done));
  EXPECT_EQ(seen, queue.last_issued());
}

INSTANTIATE_TEST_SUITE_P(Thread, DoneFunctionOn, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "ProgressThread" : "WaitingThread"; });

TEST(CallQueue, IssueThatCannotStartItsThreadLeavesNothingBehind) {
  // No address space holds such a stack, so that no thread can be made.
  pthread_attr_t usual;
  pthread_attr_t huge;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(pthread_attr_init(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 50), 0);
  CallQueue queue("dp", "test", nullptr);
  bool ran = false;
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  std::string error;
  try {
    (void)queue.issue({}, [&](const CallInfo&) { ran = true; });
  } catch (const Error& thrown) {
    EXPECT_EQ(thrown.kind(), ErrorKind::kOutOfMemory);
    error = thrown.what();
  }
  ASSERT_EQ(pthread_setattr_default_np(&usual), 0);
  EXPECT_THAT(error, ::testing::HasSubstr("group 'dp': the progress thread cannot be started"));
  EXPECT_EQ(queue.last_issued(), 0U);
  queue.wait(queue.issue({}, [](const CallInfo&) {}));
  EXPECT_FALSE(ran);
  EXPECT_EQ(queue.last_finished(), 1U);
}

// It would take part beside its parent, under the same rank.
TEST(CallQueue, AForkedChildMayNotCall) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer's allocator does not survive a fork while another thread is in it";
#endif
  CallQueue queue("dp", "test", nullptr);
  queue.wait(queue.issue({}, [](const CallInfo&) {}));
  const pid_t child = fork();
  if (child == 0) {
    int code = 1;
    try {
      static_cast<void>(queue.issue({}, [](const CallInfo&) { _exit(2); }));
    } catch (const Error& error) {
      const std::string text = error.what();
      code = error.kind() == ErrorKind::kUnsupported && text.find("group 'dp'") != std::string::npos &&
                     text.find("forked") != std::string::npos
                 ? 0
                 : 3;
    }
    _exit(code);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  queue.wait(queue.issue({}, [](const CallInfo&) {}));  // the rank itself goes on
  EXPECT_EQ(queue.last_finished(), 2U);
}

TEST(CallQueue, DestroyedQueueFailsWhatNeverRan) {
  CallPtr second;
  std::promise<void> started;
  std::promise<void> release;
  std::thread opener;
  {
    CallQueue queue("dp", "test", nullptr);
    const CallPtr first = queue.issue({}, [&](const CallInfo&) {
      started.set_value();
      release.get_future().get();
    });
    second = queue.issue({}, [](const CallInfo&) {});
    queue.kick();
    started.get_future().get();
    opener = std::thread([&] { release.set_value(); });
  }
  opener.join();
  // Either the progress thread still got to it, or it fails; it is never left unfinished.
  EXPECT_TRUE(CallQueue::finished(*second));
}

}  // namespace
}  // namespace trireme::comm
