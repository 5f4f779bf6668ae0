#include "comm/transport/shm/gathering.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/log.h"
#include "base/str.h"

namespace trireme::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kSlice{50};
constexpr const char* kGivenUp = "given up";

std::string came_key(int rank) { return str("came/", rank); }

bool has(rendezvous::Store& store, const std::string& key) { return store.check({&key, 1}); }

}  // namespace

Gathering::Gathering(rendezvous::Store& store, rendezvous::Store& root, int rank, int size,
                     const CommunicatorOptions& options, MeetingWatch watch)
    : store_(store),
      root_(root),
      rank_(rank),
      size_(size),
      options_(options),
      watch_(std::move(watch)),
      deadline_(deadline_after(options.timeout)),
      tell_at_(options.hang_after.count() > 0 ? Clock::now() + options.hang_after : Clock::time_point::max()) {
  store_.set(came_key(rank), "1");
}

int Gathering::global_rank(int rank) const {
  const auto index = static_cast<size_t>(rank);
  return index < options_.global_ranks.size() ? options_.global_ranks[index] : rank;
}

std::string Gathering::prefix() const {
  return str("[comm.init] rank ", global_rank(rank_), ": group '", options_.group_name, "': ");
}

milliseconds Gathering::time_left() const {
  return std::max(std::chrono::ceil<milliseconds>(deadline_ - Clock::now()), milliseconds{0});
}

void Gathering::look(const IsMissing& is_missing) {
  const std::string notice(rendezvous::kDeathNoticeKey);
  if (has(root_, notice)) {
    throw Error(ErrorKind::kPeerLost, str(prefix(), root_.get(notice, kSlice), " while the group was being made."));
  }
  if (has(store_, kGivenUp)) give_up_for(ErrorKind::kPeerLost, "");
  if (watch_) watch_(is_missing);
  if (Clock::now() > deadline_) report_timeout(is_missing);
  if (Clock::now() > tell_at_) tell_of_wait(is_missing);
}

std::pair<std::vector<int>, bool> Gathering::late_ranks(const IsMissing& is_missing) {
  std::vector<int> absent;
  std::vector<int> slow;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    if (!has(store_, came_key(r))) {
      absent.push_back(global_rank(r));
    } else if (is_missing(r)) {
      slow.push_back(global_rank(r));
    }
  }
  const bool came = absent.empty();
  return {came ? std::move(slow) : std::move(absent), came};
}

// Once: who is late may have a reason.
void Gathering::tell_of_wait(const IsMissing& is_missing) {
  tell_at_ = Clock::time_point::max();
  const auto [late, came] = late_ranks(is_missing);
  if (late.empty()) return;
  log::warn("comm", "group '", options_.group_name, "': waiting ",
            std::chrono::duration<double>(options_.hang_after).count(), " s for rank", late.size() == 1 ? " " : "s ",
            join(late),
            came ? ", which came, but did not finish joining" : " to come to trireme::init() or to make the group",
            ". Find out what they do instead.");
}

std::string Gathering::await_key(const std::string& key) {
  while (true) {
    try {
      return store_.get(key, std::min(time_left(), kSlice));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kTimeout) throw;
    }
    look([&](int) { return !has(store_, key); });
  }
}

void Gathering::await_cause() {
  const std::string notice(rendezvous::kDeathNoticeKey);
  const auto until = Clock::now() + kSlice * 10;
  do {
    look([](int) { return true; });
    try {
      root_.wait({&notice, 1}, kSlice);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kTimeout) throw;
    }
  } while (Clock::now() < until);
}

void Gathering::report_timeout(const IsMissing& is_missing) {
  const auto [late, came] = late_ranks(is_missing);
  give_up_for(
      ErrorKind::kTimeout,
      str("[comm.init] group '", options_.group_name, "' of ", size_, ": rank", late.size() == 1 ? " " : "s ",
          join(late), came ? " came, but did not finish joining" : " did not come", " within ",
          std::chrono::duration<double>(options_.timeout).count(), " s; the others are there. See what ",
          late.size() == 1 ? "that rank is" : "those ranks are", " doing and their logs, or raise the timeout."));
}

// "<kind> <text>": what the first one that gave up has written.
void Gathering::give_up_for(ErrorKind kind, const std::string& text) {
  const std::string mine = str(static_cast<int>(kind), " ", text);
  const std::string first = text.empty() ? store_.get(kGivenUp, kSlice) : store_.compare_set(kGivenUp, "", mine);
  char* end = nullptr;
  const int64_t number = std::strtol(first.c_str(), &end, 10);
  const int64_t checked = std::clamp<int64_t>(number, 0, static_cast<int64_t>(ErrorKind::kInternal));
  throw Error(static_cast<ErrorKind>(checked), *end == ' ' ? std::string(end + 1) : first);
}

void Gathering::give_up(const Error& error) noexcept {
  try {
    if (has(store_, kGivenUp)) return;
    give_up_for(ErrorKind::kPeerLost, str("[comm.init] group '", options_.group_name, "': rank ", global_rank(rank_),
                                          " gave up while the group was being made: ", error.what()));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): its own error is what this rank reports
  }
}

}  // namespace trireme::comm
