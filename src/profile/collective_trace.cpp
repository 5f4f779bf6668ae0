// The writer. A record is taken by a counter and a compare-and-swap, filled while its state says kBusy, and shown by
// the state, written last; a reader that finds the same state before and after its copy has one whole record. A record
// belongs to its call until finished(), so started() and finished() need no protection from other writers.
#include "profile/collective_trace.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <mutex>

#include "base/log.h"
#include "base/str.h"
#include "profile/busy_board.h"
#include "profile/data_waits.h"
#include "profile/trace_decode.h"
#include "profile/trace_file.h"
#include "profile/trace_layout.h"

namespace trireme::profile {
namespace {

/// How many records that belong to unfinished calls queued() passes over before it drops the new one.
constexpr int kMaxPassedOver = 256;

int64_t now_ns(clockid_t clock) noexcept {
  timespec time{};
  clock_gettime(clock, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

/// The smallest of a few differences: the two clocks cannot be read at once, but a pair read without interruption is
/// within 0.1 us.
int64_t wall_minus_monotonic_ns() {
  int64_t best = 0;
  int64_t best_width = INT64_MAX;
  for (int i = 0; i < 16; ++i) {
    const int64_t before = now_ns(CLOCK_MONOTONIC);
    const int64_t wall = now_ns(CLOCK_REALTIME);
    const int64_t width = now_ns(CLOCK_MONOTONIC) - before;
    if (width < best_width) {
      best_width = width;
      best = wall - before - width / 2;
    }
  }
  return best;
}

template <typename T>
std::atomic_ref<T> atomic(T& value) {
  return std::atomic_ref<T>(value);
}

/// Arithmetic runs of the list, each as long as possible.
std::vector<layout::RankRun> runs_of(const std::vector<int>& ranks) {
  std::vector<layout::RankRun> runs;
  for (const int rank : ranks) {
    if (!runs.empty()) {
      layout::RankRun& run = runs.back();
      if (run.count == 1) run.stride = rank - run.first;
      if (int64_t{run.first} + int64_t{run.stride} * run.count == rank) {
        ++run.count;
        continue;
      }
    }
    runs.push_back({.first = rank, .stride = 0, .count = 1});
  }
  return runs;
}

class MappedTrace final : public CollectiveTrace {
 public:
  explicit MappedTrace(const TraceOptions& options)
      : capacity_(options.capacity), bytes_(layout::kHeaderBytes + size_t{options.capacity} * sizeof(TraceRecord)) {
    if (options.path.empty()) {
      map(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
      fill_header(options.rank);
      add_boards();
      return;
    }
    const NewTraceFile file = create_trace_file(options, bytes_);
    map(file.memory);
    fill_header(options.rank);
    path_ = file.path;
    try {
      publish_trace_file(file);
    } catch (...) {
      munmap(memory_, bytes_);
      throw;
    }
    add_boards();
  }

  ~MappedTrace() override {
    remove_busy_board(busy_slots());
    remove_data_waits_board(data_waits());
    // A forked child that ends by exit() destroys its copy; the file is still being written.
    if (owner_ == getpid()) atomic(header().closed).store(1, std::memory_order_release);
    munmap(memory_, bytes_);
  }
  MappedTrace(const MappedTrace&) = delete;
  MappedTrace& operator=(const MappedTrace&) = delete;

  uint16_t register_group(std::string_view name, const std::vector<int>& global_ranks) override {
    const std::vector<layout::RankRun> runs = runs_of(global_ranks);
    const size_t name_room = (name.size() + 3) / 4 * 4;
    const size_t entry = sizeof(layout::GroupEntry) + name_room + runs.size() * sizeof(layout::RankRun);
    const std::lock_guard lock(groups_mutex_);
    layout::Header& head = header();
    if (global_ranks.size() > layout::kMaxGroupRanks || head.table_used + entry > layout::kTableBytes) {
      log::warn("profile", "group '", name, "' of ", global_ranks.size(),
                " ranks finds no place in the collective trace's table (", head.num_groups, " groups, ",
                head.table_used, " of ", layout::kTableBytes, " bytes); its calls are recorded without a group name");
      return kUnlistedGroup;
    }
    char* at = memory_ + layout::kTableOffset + head.table_used;
    const layout::GroupEntry fixed = {.name_bytes = static_cast<uint32_t>(name.size()),
                                      .num_runs = static_cast<uint32_t>(runs.size())};
    std::memcpy(at, &fixed, sizeof(fixed));
    if (!name.empty()) std::memcpy(at + sizeof(fixed), name.data(), name.size());
    if (!runs.empty()) std::memcpy(at + sizeof(fixed) + name_room, runs.data(), runs.size() * sizeof(layout::RankRun));
    head.table_used += static_cast<uint32_t>(entry);
    const uint32_t index = head.num_groups;
    atomic(head.num_groups).store(index + 1, std::memory_order_release);
    return static_cast<uint16_t>(index);
  }

  uint64_t queued(const TraceRecord& record) noexcept override {
    if (!recording_.load(std::memory_order_relaxed)) return 0;
    layout::Header& head = header();
    const int tries = static_cast<int>(std::min<uint32_t>(capacity_, kMaxPassedOver));
    for (int i = 0; i < tries; ++i) {
      const uint64_t serial = atomic(head.last_serial).fetch_add(1, std::memory_order_relaxed) + 1;
      TraceRecord& slot = slot_of(serial);
      uint32_t seen = atomic(slot.state).load(std::memory_order_relaxed);
      const uint32_t code = layout::code_of(seen);
      const bool is_free = code == static_cast<uint32_t>(CallState::kEmpty) ||
                           code == static_cast<uint32_t>(CallState::kFinished) ||
                           code == static_cast<uint32_t>(CallState::kFailed);
      // Acquire: our stores come after those of the slot's last owner.
      if (is_free && atomic(slot.state)
                         .compare_exchange_strong(seen, layout::state_word(serial, layout::kBusy),
                                                  std::memory_order_acquire, std::memory_order_relaxed)) {
        fill(slot, record, serial);
        return serial;
      }
    }
    atomic(head.dropped).fetch_add(1, std::memory_order_relaxed);
    return 0;
  }

  void started(uint64_t token) noexcept override {
    if (!owns(token)) return;
    TraceRecord& slot = slot_of(token);
    atomic(slot.started_ns).store(static_cast<uint64_t>(now_ns(CLOCK_MONOTONIC)), std::memory_order_release);
    set_state(slot, token, CallState::kStarted);
  }

  void finished(uint64_t token, bool ok) noexcept override {
    if (!owns(token)) return;
    TraceRecord& slot = slot_of(token);
    atomic(slot.finished_ns).store(static_cast<uint64_t>(now_ns(CLOCK_MONOTONIC)), std::memory_order_release);
    set_state(slot, token, ok ? CallState::kFinished : CallState::kFailed);
  }

  void set_recording(bool on) noexcept override { recording_.store(on, std::memory_order_relaxed); }

  TraceSnapshot snapshot() const override {
    std::vector<char> image(bytes_);
    for (uint32_t i = 0; i < capacity_; ++i) {
      copy_record(slots()[i], image.data() + layout::kHeaderBytes + size_t{i} * sizeof(TraceRecord));
    }
    // After the records, so that it knows the serial and the group of each.
    const layout::Header head = copy_header();
    std::memcpy(image.data(), &head, sizeof(head));
    copy_busy_scopes(reinterpret_cast<layout::BusySlot*>(image.data() + layout::kBusyOffset));
    copy_data_waits(*data_waits(), *reinterpret_cast<layout::DataWaits*>(image.data() + layout::kDataWaitsOffset));
    std::memcpy(image.data() + layout::kTableOffset, memory_ + layout::kTableOffset, head.table_used);
    return decode_trace({image.data(), image.size()}, "this process").value();
  }

  const std::string& path() const override { return path_; }

 private:
  void map(void* memory) {
    if (memory == MAP_FAILED) {
      throw Error(ErrorKind::kOutOfMemory, str("[profile.collective_trace] cannot map ", bytes_,
                                               " bytes: ", std::strerror(errno), ". Use a smaller capacity."));
    }
    memory_ = static_cast<char*>(memory);
  }

  layout::Header& header() const { return *reinterpret_cast<layout::Header*>(memory_); }
  layout::BusySlot* busy_slots() const { return reinterpret_cast<layout::BusySlot*>(memory_ + layout::kBusyOffset); }
  layout::DataWaits* data_waits() const {
    return reinterpret_cast<layout::DataWaits*>(memory_ + layout::kDataWaitsOffset);
  }
  void add_boards() const {
    add_busy_board(busy_slots());
    add_data_waits_board(data_waits());
  }
  TraceRecord* slots() const { return reinterpret_cast<TraceRecord*>(memory_ + layout::kHeaderBytes); }
  TraceRecord& slot_of(uint64_t serial) const { return slots()[(serial - 1) % capacity_]; }

  void fill_header(int rank) {
    layout::Header& head = header();
    head.version = layout::kVersion;
    head.header_bytes = layout::kHeaderBytes;
    head.record_bytes = sizeof(TraceRecord);
    head.capacity = capacity_;
    head.rank = rank;
    head.pid = getpid();
    head.wall_minus_monotonic_ns = wall_minus_monotonic_ns();
    const std::string host = host_name();
    std::memcpy(head.host.data(), host.data(), std::min(host.size(), head.host.size() - 1));
    head.magic = layout::kMagic;
  }

  /// False for a dropped record, and for a call that has finished already.
  bool owns(uint64_t token) const noexcept {
    if (token == 0) return false;
    const uint32_t word = atomic(slot_of(token).state).load(std::memory_order_relaxed);
    const uint32_t code = layout::code_of(word);
    return layout::belongs_to(word, token) &&
           (code == static_cast<uint32_t>(CallState::kQueued) || code == static_cast<uint32_t>(CallState::kStarted));
  }

  static void set_state(TraceRecord& slot, uint64_t serial, CallState state) noexcept {
    atomic(slot.state).store(layout::state_word(serial, static_cast<uint32_t>(state)), std::memory_order_release);
  }

  /// Release for every word, since none may be seen before the kBusy that precedes it. (A fence would do; it is spelled
  /// so because ThreadSanitizer does not know fences, and costs nothing on x86.)
  static void fill(TraceRecord& slot, const TraceRecord& record, uint64_t serial) noexcept {
    TraceRecord full = record;
    full.serial = serial;
    if (full.queued_ns == 0) full.queued_ns = static_cast<uint64_t>(now_ns(CLOCK_MONOTONIC));
    full.started_ns = 0;
    full.finished_ns = 0;
    std::array<uint64_t, layout::kWords> words{};
    std::memcpy(words.data(), &full, sizeof(full));
    auto* out = reinterpret_cast<uint64_t*>(&slot);
    for (size_t i = 0; i < layout::kWords; ++i) {
      if (i != layout::kStateWord) atomic(out[i]).store(words[i], std::memory_order_release);
    }
    atomic(slot.step).store(record.step, std::memory_order_release);
    set_state(slot, serial, CallState::kQueued);
  }

  layout::Header copy_header() const {
    const layout::Header& live = header();
    layout::Header head{};
    head.magic = live.magic;
    head.version = live.version;
    head.header_bytes = live.header_bytes;
    head.record_bytes = live.record_bytes;
    head.capacity = live.capacity;
    head.rank = live.rank;
    head.pid = live.pid;
    head.wall_minus_monotonic_ns = live.wall_minus_monotonic_ns;
    head.host = live.host;
    head.last_serial = atomic(header().last_serial).load(std::memory_order_relaxed);
    head.dropped = atomic(header().dropped).load(std::memory_order_relaxed);
    const std::lock_guard lock(groups_mutex_);
    head.num_groups = live.num_groups;
    head.table_used = live.table_used;
    return head;
  }

  /// Until the state is the same before and after, a few times; then what is left in `out` says kBusy, and the decoder
  /// leaves it out. Acquire for every word: the second look at the state comes after all of them.
  static void copy_record(TraceRecord& slot, char* out) {
    std::array<uint64_t, layout::kWords> words{};
    auto* in = reinterpret_cast<uint64_t*>(&slot);
    TraceRecord record;
    for (int i = 0; i < kReadTries; ++i) {
      const uint32_t before = atomic(slot.state).load(std::memory_order_acquire);
      for (size_t w = 0; w < layout::kWords; ++w) {
        if (w != layout::kStateWord) words[w] = atomic(in[w]).load(std::memory_order_acquire);
      }
      const uint32_t step = atomic(slot.step).load(std::memory_order_acquire);
      std::memcpy(static_cast<void*>(&record), words.data(), sizeof(record));
      record.state = before;
      record.step = step;
      if (atomic(slot.state).load(std::memory_order_relaxed) == before && layout::code_of(before) != layout::kBusy) {
        break;
      }
      record.state = layout::kBusy;
    }
    std::memcpy(out, &record, sizeof(record));
  }

  uint32_t capacity_;
  size_t bytes_;
  const pid_t owner_ = getpid();
  std::atomic<bool> recording_{true};
  char* memory_ = nullptr;
  std::string path_;
  mutable std::mutex groups_mutex_;
};

}  // namespace

std::unique_ptr<CollectiveTrace> open_collective_trace(const TraceOptions& options) {
  if (options.capacity == 0 || options.capacity > kMaxTraceCapacity) {
    throw Error(ErrorKind::kInvalidArgument,
                str("[profile.collective_trace] rank ", options.rank, ": capacity is ", options.capacity,
                    "; it must be from 1 to ", kMaxTraceCapacity, " records."));
  }
  return std::make_unique<MappedTrace>(options);
}

}  // namespace trireme::profile
