#include "launch/faults.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "base/str.h"
#include "trireme/base/error.h"
#include "trireme/comm/busy.h"

namespace {

constexpr std::chrono::seconds kLong{100};

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

size_t address_space_bytes() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

std::mutex g_mutex;

__attribute__((noinline)) void load_batch() { std::this_thread::sleep_for(kLong); }

__attribute__((noinline)) void update_statistics() {
  const std::lock_guard lock(g_mutex);
  say("the mutex was free");
}

__attribute__((noinline)) void save_state(double seconds) {
  auto scope = trireme::comm::busy("saving a checkpoint");
  scope.progress(0.63);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

__attribute__((noinline)) void spin() {
  while (true) asm volatile("");
}

}  // namespace

void say(const std::string& text) {
  const std::string line = text + "\n";
  if (write(1, line.data(), line.size()) < 0) _exit(90);
}

__attribute__((noinline)) void evaluate(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

void do_fault(const std::string& fault, void (*allocate)(size_t bytes)) {
  say(trireme::str("fault ", now_ns()));
  if (fault == "late") evaluate(1.5);
  if (fault == "busy") save_state(1.5);
  if (fault == "loader") load_batch();
  if (fault == "stop") raise(SIGSTOP);
  if (fault == "die") kill(getpid(), SIGKILL);
  if (fault == "throw") throw std::runtime_error("the loss is not finite");
  if (fault == "spin") spin();
  if (fault == "mutex") {
    std::thread([] {
      g_mutex.lock();
      std::this_thread::sleep_for(kLong);
    }).detach();
    while (g_mutex.try_lock()) {
      g_mutex.unlock();
      std::this_thread::yield();
    }
    update_statistics();
  }
  if (fault == "memory") {
    const size_t most = address_space_bytes() + (size_t{512} << 20);
    const rlimit limit = {most, most};
    setrlimit(RLIMIT_AS, &limit);
    while (true) allocate(size_t{1} << 24);
  }
  if (fault == "crash") {
    volatile int* nowhere = nullptr;
    *nowhere = 1;
  }
}

int run_rank(int argc, char** argv, int (*train)(const std::vector<std::string>& args)) {
  try {
    return train({argv + 1, argv + argc});
  } catch (const trireme::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return trireme::exit_code(error.kind());
  } catch (const std::runtime_error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
