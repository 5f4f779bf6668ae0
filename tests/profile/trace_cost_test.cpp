// Oracle: counts. A seccomp filter kills a child at its first system call but exit; operator new is replaced by one
// that counts.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "profile/trace_oracle.h"
#include "support/temp_dir.h"

namespace {
thread_local size_t num_allocations = 0;
}  // namespace

// All others of the standard library call these; the one that does not throw is here because a sanitizer brings its own. Not inlined: GCC
// would pair new with free and warn.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++num_allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  ++num_allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace trireme::profile {
namespace {

void write_records(CollectiveTrace& trace, const TraceRecord& record, int count) {
  for (int i = 0; i < count; ++i) {
    const uint64_t token = trace.queued(record);
    trace.started(token);
    trace.finished(token, true);
  }
}

TraceRecord without_time() {
  TraceRecord record = record_of(1);
  record.queued_ns = 0;
  return record;
}

TEST(TraceCost, NoAllocationPerRecord) {
  const auto trace = open_collective_trace({.capacity = 128});
  const TraceRecord record = without_time();
  const size_t before = num_allocations;
  write_records(*trace, record, 1000);
  EXPECT_EQ(num_allocations, before);
  (void)trace->snapshot();
  EXPECT_GT(num_allocations, before);  // the count counts
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
bool forbid_all_but_exit() {
  std::array<sock_filter, 4> program = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  }};
  const sock_fprog filter = {.len = program.size(), .filter = program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(TraceCost, NoSystemCallPerRecord) {
  const test::TempDir dir;
  const auto trace = open_collective_trace({.path = dir / "trace", .capacity = 128});
  const TraceRecord record = without_time();
  const auto ends_well = [&](auto&& body) {
    const pid_t child = fork();
    if (child == 0) {
      if (!forbid_all_but_exit()) _exit(77);
      body();
      syscall(SYS_exit, 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status;
  };
  const int with_call = ends_well([] { (void)getppid(); });
  if (WIFEXITED(with_call) && WEXITSTATUS(with_call) == 77) GTEST_SKIP() << "this kernel refuses a seccomp filter";
  EXPECT_TRUE(WIFSIGNALED(with_call)) << "the check sees a system call";
  const int with_records = ends_well([&] { write_records(*trace, record, 1000); });
  EXPECT_TRUE(WIFEXITED(with_records) && WEXITSTATUS(with_records) == 0) << "status " << with_records;
  EXPECT_EQ(read_collective_trace(dir / "trace").value().records.back().serial, 1000U);
}
#endif

// A time that only a system call, a lock with waiting or a fault per record could reach; the figure is for people.
TEST(TraceCost, PrintsTheTimePerRecord) {
  const test::TempDir dir;
  const auto trace = open_collective_trace({.path = dir / "trace"});
  const TraceRecord record = without_time();
  constexpr int kCount = 20'000;
  double best_ns = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    write_records(*trace, record, kCount);
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
    best_ns = std::min(best_ns, time.count() / kCount);
  }
  std::printf("              queued + started + finished: %.0f ns\n", best_ns);
  EXPECT_LT(best_ns, 20'000);
}

}  // namespace
}  // namespace trireme::profile
