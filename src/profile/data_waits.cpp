#include "profile/data_waits.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <mutex>
#include <vector>

#include "profile/trace_layout.h"
#include "trireme/profile/data_wait.h"

namespace trireme::profile {
namespace {

struct Boards {
  std::mutex mutex;
  std::vector<layout::DataWaits*> boards;
  pid_t owner = getpid();
};

// Leaked on purpose: a static of the user's may still wait.
Boards& all() {
  static auto* instance = new Boards;
  return *instance;
}

/// A forked child has a copy of the list, and the very pages of its parent's file.
bool is_ours(const Boards& boards) { return boards.owner == getpid(); }

uint64_t now_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

/// A reader may come in between: the check in `word` then does not fit `start_ns`.
void put(layout::DataWaits& board, uint64_t start_ns, uint64_t duration_ns) {
  const std::atomic_ref<uint64_t> count(board.count);
  const uint64_t number = count.load(std::memory_order_relaxed);
  layout::DataWait& slot = board.waits.at(number % board.waits.size());
  const std::atomic_ref<uint64_t> word(slot.word);
  word.store(0, std::memory_order_seq_cst);
  std::atomic_ref<uint64_t>(slot.start_ns).store(start_ns, std::memory_order_seq_cst);
  word.store(layout::data_wait_word(start_ns, duration_ns), std::memory_order_release);
  count.store(number + 1, std::memory_order_release);
}

}  // namespace

void add_data_waits_board(layout::DataWaits* board) {
  Boards& boards = all();
  const std::lock_guard lock(boards.mutex);
  boards.boards.push_back(board);
}

void remove_data_waits_board(const layout::DataWaits* board) noexcept {
  Boards& boards = all();
  if (!is_ours(boards)) return;
  const std::lock_guard lock(boards.mutex);
  std::erase(boards.boards, board);
}

void copy_data_waits(const layout::DataWaits& board, layout::DataWaits& out) {
  const std::lock_guard lock(all().mutex);
  out = board;
}

DataWait::DataWait() noexcept : start_ns_(now_ns()) {}

DataWait::~DataWait() {
  const uint64_t duration_ns = std::min(now_ns() - start_ns_, layout::kMostDataWait_ns);
  Boards& boards = all();
  if (!is_ours(boards)) return;
  const std::lock_guard lock(boards.mutex);
  for (layout::DataWaits* board : boards.boards) put(*board, start_ns_, duration_ns);
}

}  // namespace trireme::profile
