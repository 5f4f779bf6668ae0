#include "comm/transport/window.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/log.h"
#include "base/str.h"
#include "comm/transport/shm/peer_memory.h"

namespace trireme::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::array<char, 8> kMagic = {'T', 'R', 'I', 'W', 'I', 'N', 'D', 'W'};
constexpr uint32_t kVersion = 1;
/// How often a waiting rank looks whether the others live. Well under the second within which a death must be named.
constexpr milliseconds kSlice{50};

double seconds(milliseconds duration) { return std::chrono::duration<double>(duration).count(); }

size_t round_up(size_t bytes) { return (bytes + 4095) & ~size_t{4095}; }

}  // namespace

struct Window::Layout {
  size_t ranks, lanes, peer_lanes, slots, peer_slots, exchange, total;

  explicit Layout(const WindowShape& shape) {
    const auto n = static_cast<size_t>(shape.num_ranks);
    ranks = round_up(sizeof(Control));
    lanes = ranks + round_up(n * sizeof(RankState));
    peer_lanes = lanes + round_up(n * 2 * sizeof(Lane));
    slots = peer_lanes + round_up(n * n * sizeof(PeerLane));
    peer_slots = slots + round_up(n * 2 * shape.slot_bytes);
    exchange = peer_slots + n * n * 2 * kPeerSlotBytes;
    total = exchange + (n == 2 ? 2 * shape.slot_bytes : 0);
  }
};

size_t WindowShape::total_bytes() const { return Window::Layout(*this).total; }

size_t default_slot_bytes(int num_ranks) { return num_ranks > usable_cores() ? 1 << 20 : 256 << 10; }

Window::Window(std::shared_ptr<WindowMemory> memory, WindowShape shape, int rank, CommunicatorOptions options)
    : memory_(std::move(memory)),
      shape_(shape),
      rank_(rank),
      options_(std::move(options)),
      wait_policy_(shape.num_ranks),
      poison_(reinterpret_cast<Control*>(memory_->data())->poison) {
  TRIREME_CHECK(rank >= 0 && rank < shape.num_ranks);
  const Layout layout(shape);
  std::byte* base = memory_->data();
  ranks_ = reinterpret_cast<RankState*>(base + layout.ranks);
  lanes_ = reinterpret_cast<Lane*>(base + layout.lanes);
  peer_lanes_ = reinterpret_cast<PeerLane*>(base + layout.peer_lanes);
  slots_ = base + layout.slots;
  peer_slots_ = base + layout.peer_slots;
  exchange_ = base + layout.exchange;
  if (options_.global_ranks.empty()) {
    for (int r = 0; r < shape.num_ranks; ++r) options_.global_ranks.push_back(r);
  }

  // Rank 0 signs the memory; attach_and_wait() makes that visible before the others look.
  auto* control = reinterpret_cast<Control*>(base);
  if (rank == 0) {
    std::memcpy(control->magic, kMagic.data(), kMagic.size());
    control->version = kVersion;
    control->num_ranks = static_cast<uint32_t>(shape.num_ranks);
    control->slot_bytes = shape.slot_bytes;
  }
}

Window::~Window() { leave(); }

int Window::global_rank(int group_rank) const { return options_.global_ranks.at(static_cast<size_t>(group_rank)); }

std::string Window::where(const CallInfo& info) const {
  return str("[comm.", to_string(info.op), "] rank ", global_rank(rank_), ": group '", options_.group_name, "' call ",
             info.call);
}

void Window::await_attached(uint32_t stage, const MeetingWatch& watch) {
  const IsMissing is_missing = [&](int r) { return !ranks_[r].attached.reached(stage); };
  for (int r = 0; r < size(); ++r) {
    while (is_missing(r)) {
      ranks_[r].attached.sleep(stage, kSlice);
      if (!is_missing(r)) break;
      watch(is_missing);
      // Who has introduced itself here also shows here how it ends. One that gave up has told `watch` why before.
      std::vector<int> known;
      for (int other = 0; other < size(); ++other) {
        if (!ranks_[other].attached.reached(1)) continue;
        if (ranks_[other].departed.load(std::memory_order_acquire) != 0) watch(is_missing);
        known.push_back(other);
      }
      require_members(known, [&](int i) { return is_missing(known[static_cast<size_t>(i)]); }, options_.group_name);
    }
  }
}

void Window::require_members(std::span<const int> members, const IsMissing& is_missing, const std::string& purpose) {
  throw_if_broken();
  const auto lost = [&](int r, const char* how) {
    poison(ErrorKind::kPeerLost,
           str("[comm.init] rank ", global_rank(rank_), ": group '", purpose, "': rank ", global_rank(r), how,
               options_.group_name, "', before all had come. See the launcher's report and that rank's log for the ",
               "cause."));
  };
  // As in look_for_the_lost(): who died comes before who left, perhaps because of that. Whether one is missing is asked last.
  std::vector<size_t> departed;
  for (size_t i = 0; i < members.size(); ++i) {
    const int r = members[i];
    if (r == rank_) continue;
    const bool alive = memory_->alive(r);
    if (ranks_[r].departed.load(std::memory_order_acquire) != 0) {
      departed.push_back(i);
    } else if (!alive) {
      lost(r, " died, a member of group '");
    }
  }
  for (const size_t i : departed) {
    if (is_missing(static_cast<int>(i))) lost(members[i], " ended or left group '");
  }
}

void Window::attach_and_wait(const MeetingWatch& watch) {
  RankState& me = ranks_[rank_];
  if (getrandom(&proof_, sizeof(proof_), 0) != static_cast<ssize_t>(sizeof(proof_))) proof_ = 0;
  me.pid = getpid();
  me.proof_address = reinterpret_cast<uint64_t>(&proof_);
  me.proof = proof_;
  me.attached.publish(1);
  await_attached(1, watch);

  bool can_read_all = true;
  for (int r = 0; r < size() && can_read_all; ++r) {
    if (r == rank_) continue;
    uint64_t seen = 0;
    can_read_all = ranks_[r].pid != getpid() &&
                   read_peer_memory(ranks_[r].pid, ranks_[r].proof_address, &seen, sizeof(seen)) &&
                   seen == ranks_[r].proof;
  }
  me.can_read_all = can_read_all ? 1 : 0;
  me.attached.publish(2);
  await_attached(2, watch);
  reads_peers_ = size() > 1;
  for (int r = 0; r < size(); ++r) reads_peers_ = reads_peers_ && ranks_[r].can_read_all == 1;
  const auto* control = reinterpret_cast<const Control*>(memory_->data());
  if (std::memcmp(control->magic, kMagic.data(), kMagic.size()) != 0 || control->version != kVersion ||
      control->num_ranks != static_cast<uint32_t>(size()) || control->slot_bytes != shape_.slot_bytes) {
    throw Error(
        ErrorKind::kMismatch,
        str("[comm.init] rank ", global_rank(rank_), ": group '", options_.group_name,
            "': the shared memory was laid out by another version of Trireme; all ranks must run the same build."));
  }
}

void Window::read_peer(int peer, uint64_t remote_address, void* local, size_t bytes, const CallInfo& info) {
  if (read_peer_memory(ranks_[peer].pid, remote_address, local, bytes)) return;
  const int error = errno;
  // Most likely it died; its death shows within moments, and then says more than this failure does.
  for (const auto deadline = Clock::now() + std::chrono::milliseconds(500); Clock::now() < deadline;) {
    throw_if_broken();
    look_for_the_lost(info, peer);
    ranks_[peer].attached.sleep(3, milliseconds{5});
  }
  poison(ErrorKind::kIo, str(where(info), " (", told(info), "): reading the memory of rank ", global_rank(peer),
                             " failed: ", std::strerror(error), ". It must keep the tensor until the call is done."));
}

void Window::await_slowly(Flag& flag, uint32_t value, const CallInfo& info, int peer) {
  if (wait_policy_.spin([&] { return flag.reached(value); })) return;
  const auto deadline = deadline_after(options_.timeout);
  const auto start = Clock::now();
  auto next_look = start + kSlice;
  bool told = options_.hang_after.count() == 0;
  while (true) {
    flag.sleep(value, told ? kSlice : std::min(kSlice, options_.hang_after));
    if (flag.reached(value)) return;
    throw_if_broken();
    const auto now = Clock::now();
    if (!told && now - start >= options_.hang_after) {
      told = true;
      tell_of_wait(info, peer, std::chrono::duration<double>(now - start).count());
    }
    if (now < next_look) continue;
    look_for_the_lost(info, peer, &flag, value);
    next_look = now + kSlice;
    if (now > deadline) report_timeout(info, peer);
  }
}

void Window::look_for_the_lost(const CallInfo& info, int peer, const Flag* flag, uint32_t value) {
  std::vector<int> departed;
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    // In this order: a rank says that it leaves before its process ends.
    const bool alive = memory_->alive(r);
    if (ranks_[r].departed.load(std::memory_order_acquire) != 0) {
      departed.push_back(r);
    } else if (!alive) {
      poison(ErrorKind::kPeerLost, str(where(info), " (", told(info), "): rank ", global_rank(r),
                                       " died. The group cannot be used any more; see the launcher's report and that "
                                       "rank's log for the cause."));
    }
  }
  // Only now, since others may have left because of a death.
  for (const int r : departed) {
    // One that left in good order may have done its part of what we wait for; it is missed only where its own flag is.
    const bool missed =
        peer >= 0 ? peer == r && (flag == nullptr || !flag->reached(value)) : !lane_of(r, phase_).flag.reached(phase_);
    if (missed) {
      poison(ErrorKind::kPeerLost,
             str(where(info), " (", told(info), "): rank ", global_rank(r),
                 " has left the group (it ended or destroyed its group) and will not take part. All ranks must make "
                 "the same calls."));
    }
  }
}

void Window::require_alive(int peer, const CallInfo& info) {
  const int64_t now = Clock::now().time_since_epoch().count();
  if (now - last_alive_check_ns_.load(std::memory_order_relaxed) < 10'000'000) return;
  last_alive_check_ns_.store(now, std::memory_order_relaxed);
  look_for_the_lost(info, peer);
}

std::vector<int> Window::late_ranks(int peer) const {
  if (peer >= 0) return {peer};
  std::vector<int> late;
  for (int r = 0; r < size(); ++r) {
    if (!lane_of(r, phase_).flag.reached(phase_)) late.push_back(r);
  }
  return late;
}

std::string Window::last_seen(int rank) const {
  // A lane that its rank has not come to holds what it called two phases ago at the latest.
  const CallInfo& last = lane_of(rank, phase_ - 1).header;
  std::string text =
      last.call > 0 ? str("last seen in call ", last.call, ", ", told(last)) : std::string("not seen yet");
  std::ifstream stat(str("/proc/", ranks_[rank].pid, "/stat"));
  std::string line;
  std::getline(stat, line);
  const size_t close = line.rfind(')');
  if (close != std::string::npos && line.compare(close, 3, ") T") == 0) text += "; it is stopped (SIGSTOP)";
  return text;
}

void Window::tell_of_wait(const CallInfo& info, int peer, double waited_s) const {
  std::vector<std::string> parts;
  for (const int r : late_ranks(peer)) parts.push_back(str("rank ", global_rank(r), " (", last_seen(r), ")"));
  if (parts.empty()) return;
  log::warn("comm", "group '", options_.group_name, "': waiting ", waited_s, " s in call ", info.call, ", ", told(info),
            info.step > 0 ? str(", step ", info.step) : "", ", for ", join(parts), ". Find out what they do instead.");
}

// No error: a program may count its steps as it likes. But what is added up here are then values of different steps.
void Window::tell_of_steps(const CallInfo& mine) {
  if (rank_ != 0 || std::exchange(steps_told_, true)) return;
  std::map<uint32_t, std::vector<int>> by_step;
  for (int r = 0; r < size(); ++r) by_step[lane_of(r, phase_).header.step].push_back(global_rank(r));
  std::vector<std::string> parts;
  for (const auto& [step, ranks] : by_step)
    parts.push_back(str(ranks.size() == 1 ? "rank " : "ranks ", join(ranks), " in step ", step));
  const bool gradients = mine.op == OpKind::kAllReduce && mine.label_view().starts_with("bucket ");
  log::warn("comm", "group '", options_.group_name, "' call ", mine.call, ", ", told(mine),
            ": the ranks are out of step: ", join(parts), "; in the call before they were in one. ",
            gradients ? "Gradients of different steps are averaged. A rank has made a step without this group's calls, "
                        "perhaps alone in no_sync(): all ranks must leave no_sync() for the same backward."
                      : "A rank has made a step with other calls than the others. All ranks must make the same calls "
                        "in every step.");
}

void Window::report_timeout(const CallInfo& info, int peer) {
  std::vector<int> late;
  for (const int r : late_ranks(peer)) late.push_back(global_rank(r));
  poison(ErrorKind::kTimeout, str(where(info), " (", told(info), "): nothing for ", seconds(options_.timeout),
                                  " s; still waiting for rank", late.size() == 1 ? " " : "s ", join(late),
                                  ". Find out what they do instead, or raise the group's timeout."));
}

void Window::report_mismatch(const CallInfo& mine) {
  // The first pair that differs in group order, whichever rank finds it: every rank then tells the same story.
  const CallInfo& first = lane_of(0, phase_).header;
  for (int r = 1; r < size(); ++r) {
    const CallInfo& other = lane_of(r, phase_).header;
    if (same_call(first, other)) continue;
    const char* what = first.call != other.call       ? "the call numbers differ"
                       : first.op != other.op         ? "the operations differ"
                       : first.dtype != other.dtype   ? "the dtypes differ"
                       : first.reduce != other.reduce ? "the reductions differ"
                       : first.root != other.root     ? "the roots differ"
                       : first.label != other.label   ? "the labels differ"
                       : first.dims != other.dims || first.num_dims != other.num_dims
                           ? "the shapes differ"
                           : "the shapes differ, in dims that are not shown";
    auto step = [](const CallInfo& info) { return info.step == 0 ? std::string{} : str(" in step ", info.step); };
    poison(ErrorKind::kMismatch,
           str("[comm.", to_string(mine.op), "] group '", options_.group_name, "' call ", mine.call, ": rank ",
               global_rank(0), " called ", told(first), step(first), ", rank ", global_rank(r), " called ", told(other),
               step(other), "; ", what,
               ". All ranks must make the same calls in the same order. Last common call: ", mine.call - 1, "."));
  }
  TRIREME_CHECK(false, "headers differ from mine but not from each other");
  std::abort();
}

void Window::poison(ErrorKind kind, const std::string& message) {
  if (owner_ != getpid()) throw Error(kind, message);  // a forked child speaks for itself only
  if (poison_.claim()) {
    PoisonRecord& record = poison_.record();
    record.kind = static_cast<uint32_t>(kind);
    const size_t length = std::min(message.size(), sizeof(record.text) - 1);
    std::memcpy(record.text, message.data(), length);
    record.text[length] = '\0';
    poison_.publish();
  }
  throw_broken();
}

void Window::throw_broken() {
  const auto deadline = Clock::now() + kSlice * 4;
  const PoisonRecord* record = poison_.read();
  while (record == nullptr && Clock::now() < deadline) {
    std::this_thread::yield();
    record = poison_.read();
  }
  if (record == nullptr) {
    throw Error(ErrorKind::kPeerLost,
                str("[comm] rank ", global_rank(rank_), ": group '", options_.group_name,
                    "': a rank died while it was reporting an error; see the launcher's report."));
  }
  // What another process wrote is checked before it is believed.
  const uint32_t kind = std::min(record->kind, static_cast<uint32_t>(ErrorKind::kInternal));
  throw Error(static_cast<ErrorKind>(kind), std::string(record->text, strnlen(record->text, sizeof(record->text))));
}

void Window::leave() noexcept {
  // A forked child that ends by exit() destroys its copy; the rank itself is still there.
  if (owner_ == getpid()) ranks_[rank_].departed.store(1, std::memory_order_release);
}

}  // namespace trireme::comm
