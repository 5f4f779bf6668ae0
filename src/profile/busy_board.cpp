#include "profile/busy_board.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <ctime>
#include <mutex>
#include <vector>

#include "profile/trace_layout.h"

namespace trireme::profile {
namespace {

struct Boards {
  std::mutex mutex;
  std::array<layout::BusySlot, layout::kBusySlots> scopes{};
  std::vector<layout::BusySlot*> boards;
  pid_t owner = getpid();
};

// Leaked on purpose: a static of the user's may still be busy.
Boards& all() {
  static auto* instance = new Boards;
  return *instance;
}

/// The version is odd while the rest changes, and 0 while nobody is busy.
void copy_to(layout::BusySlot& shown, const layout::BusySlot& scope) {
  const std::atomic_ref<uint32_t> version(shown.version);
  const uint32_t before = version.load(std::memory_order_relaxed);
  version.store((before + 1) | 1U, std::memory_order_seq_cst);
  shown.in_use = scope.in_use;
  shown.fraction = scope.fraction;
  shown.tid = scope.tid;
  shown.since_ns = scope.since_ns;
  shown.what = scope.what;
  version.store(((before + 1) | 1U) + 1, std::memory_order_seq_cst);
}

/// A forked child has a copy of the list, and the very pages of its parent's file.
bool is_ours(const Boards& boards) { return boards.owner == getpid(); }

void show(Boards& boards, int slot) {
  const auto index = static_cast<size_t>(slot);
  for (layout::BusySlot* board : boards.boards) copy_to(board[index], boards.scopes.at(index));
}

float checked(double fraction) {
  return std::isfinite(fraction) && fraction >= 0 ? static_cast<float>(std::min(fraction, 1.0)) : -1.0F;
}

int begin(uint32_t kind, std::string_view what, double fraction) {
  Boards& boards = all();
  if (!is_ours(boards)) return -1;
  const std::lock_guard lock(boards.mutex);
  const auto free =
      std::find_if(boards.scopes.begin(), boards.scopes.end(), [](const auto& s) { return s.in_use == 0; });
  if (free == boards.scopes.end()) return -1;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  free->in_use = kind;
  free->fraction = checked(fraction);
  free->tid = static_cast<int32_t>(syscall(SYS_gettid));
  free->since_ns = int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  free->what.fill('\0');
  std::copy_n(what.data(), std::min(what.size(), free->what.size() - 1), free->what.data());
  const auto slot = static_cast<int>(free - boards.scopes.begin());
  show(boards, slot);
  return slot;
}

}  // namespace

int begin_busy(std::string_view what, double fraction) { return begin(layout::kBusyScope, what, fraction); }
int begin_note(std::string_view what) noexcept { return begin(layout::kNote, what, -1); }

void set_busy_fraction(int slot, double fraction) noexcept {
  Boards& boards = all();
  if (slot < 0 || !is_ours(boards)) return;
  const std::lock_guard lock(boards.mutex);
  boards.scopes.at(static_cast<size_t>(slot)).fraction = checked(fraction);
  show(boards, slot);
}

void end_busy(int slot) noexcept {
  Boards& boards = all();
  if (slot < 0 || !is_ours(boards)) return;
  const std::lock_guard lock(boards.mutex);
  boards.scopes.at(static_cast<size_t>(slot)) = {};
  show(boards, slot);
}

void copy_busy_scopes(layout::BusySlot* out) {
  Boards& boards = all();
  const std::lock_guard lock(boards.mutex);
  std::copy(boards.scopes.begin(), boards.scopes.end(), out);
}

void add_busy_board(layout::BusySlot* slots) {
  Boards& boards = all();
  const std::lock_guard lock(boards.mutex);
  boards.boards.push_back(slots);
  for (int slot = 0; slot < layout::kBusySlots; ++slot) {
    if (boards.scopes.at(static_cast<size_t>(slot)).in_use != 0) show(boards, slot);
  }
}

void remove_busy_board(const layout::BusySlot* slots) noexcept {
  Boards& boards = all();
  if (!is_ours(boards)) return;
  const std::lock_guard lock(boards.mutex);
  std::erase(boards.boards, slots);
}

}  // namespace trireme::profile
