// Fields by version, from torch/csrc/distributed/c10d/FlightRecorder: 1.x has seq_id and no list of members; 2.0 process_group; 2.1
// collective_seq_id, p2p_seq_id, record_id, dtypes, is_p2p; 2.4 pg_config and pg_status; 2.8 comm_lib_version; 2.10 thread names; 2.11
// split sizes of all_to_all.
#include "diagnose/job/flight_recorder.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/str.h"
#include "diagnose/excerpt.h"
#include "diagnose/scan.h"

namespace trireme::diagnose {
namespace {

using pickle::Kind;
using pickle::Value;

constexpr size_t kMostDims = 16;
constexpr size_t kMostTensors = 1024;
constexpr size_t kMostRanks = 1U << 20;
constexpr int64_t kMostRank = int64_t{1} << 24;
constexpr int64_t kMostNumber = int64_t{1} << 53;  // of a call; sums with it stay far from overflow

int64_t integer(const Value& dict, std::string_view key, int64_t otherwise) {
  const Value* value = dict.find(key);
  return value == nullptr ? otherwise : value->int_or(otherwise);
}

std::string text(const Value& dict, std::string_view key) {
  const Value* value = dict.find(key);
  constexpr size_t kLongest = 300;
  return value == nullptr ? std::string{} : excerpt(value->str(), kLongest);
}

std::vector<int64_t> integers(const Value* list, size_t most) {
  std::vector<int64_t> out;
  if (list == nullptr || !list->is_sequence()) return out;
  for (const Value* item : list->items) {
    if (out.size() >= most) break;
    out.push_back(item->int_or(-1));
  }
  return out;
}

std::vector<std::vector<int64_t>> shapes(const Value& entry, std::string_view key) {
  std::vector<std::vector<int64_t>> out;
  const Value* list = entry.find(key);
  if (list == nullptr || !list->is_sequence()) return out;
  for (const Value* item : list->items) {
    if (out.size() >= kMostTensors) break;
    out.push_back(integers(item, kMostDims));
  }
  return out;
}

/// One name where all are alike, else all.
std::string dtypes(const Value& entry, std::string_view key) {
  const Value* list = entry.find(key);
  if (list == nullptr) return {};
  if (!list->is_sequence()) return excerpt(list->str(), 40);
  std::vector<std::string> names;
  for (const Value* item : list->items) {
    std::string name = excerpt(item->str(), 40);
    if (names.empty() || names.back() != name) names.push_back(std::move(name));
    if (names.size() > 8) break;
  }
  return join(names, ",");
}

/// The innermost frame outside of torch itself, "train.py:41 in step".
std::string user_frame(const Value& entry) {
  const Value* frames = entry.find("frames");
  if (frames == nullptr || !frames->is_sequence()) return {};
  const Value* best = nullptr;
  constexpr size_t kLooked = 200;
  for (size_t i = 0; i < std::min(frames->items.size(), kLooked) && best == nullptr; ++i) {
    const Value* file = frames->items[i]->find("filename");
    if (file == nullptr || file->str().empty()) continue;
    const bool inside = has(file->str(), "/torch/") || has(file->str(), "<string>") || file->str() == "??";
    if (!inside) best = frames->items[i];
  }
  if (best == nullptr) return {};
  return str(text(*best, "filename"), ":", integer(*best, "line", 0), " in ", text(*best, "name"));
}

CallPhase phase_of(const Value& entry) {
  const Value* state = entry.find("state");
  const std::string_view word = state == nullptr ? std::string_view{} : state->str();
  if (word == "completed") return CallPhase::kFinished;
  if (word == "started") return CallPhase::kStarted;
  if (word == "failed") return CallPhase::kFailed;
  return CallPhase::kQueued;
}

/// "nccl:all_reduce", "nccl:send 0->1", "gloo:recv 3<-0", and plain names.
Signature signature_of(const Value& entry) {
  Signature out;
  std::string name = text(entry, "profiling_name");
  const size_t colon = name.find(':');
  if (colon != std::string::npos) name.erase(0, colon + 1);
  const size_t blank = name.find(' ');
  out.op = name.substr(0, blank);
  out.kind = kind_of_op(out.op);
  if (blank != std::string::npos) {
    const std::string_view pair = std::string_view(name).substr(blank + 1);
    const size_t arrow = pair.find_first_of("<-");
    if (arrow != std::string_view::npos) out.root = leading_number<int>(pair.substr(arrow + 2)).value_or(-1);
  }
  if (!out.is_point_to_point()) out.root = static_cast<int>(integer(entry, "root", integer(entry, "root_rank", -1)));
  out.inputs = shapes(entry, "input_sizes");
  out.outputs = shapes(entry, "output_sizes");
  out.dtypes = dtypes(entry, "input_dtypes");
  if (out.dtypes.empty()) out.dtypes = dtypes(entry, "output_dtypes");
  out.reduce = text(entry, "reduce_op");
  out.label = text(entry, "trireme_label");
  for (const char* key : {"input_split_sizes", "input_splits", "in_split_sizes"}) {
    if (out.in_splits.empty()) out.in_splits = integers(entry.find(key), kMostRanks);
  }
  for (const char* key : {"output_split_sizes", "output_splits", "out_split_sizes"}) {
    if (out.out_splits.empty()) out.out_splits = integers(entry.find(key), kMostRanks);
  }
  return out;
}

/// "[0, 1, 2]", or a list of integers.
std::vector<int> member_ranks(const Value* value) {
  std::vector<int> out;
  if (value == nullptr) return out;
  const auto add = [&out](int64_t rank) {
    if (rank >= 0 && rank < kMostRank) out.push_back(static_cast<int>(rank));
  };
  for (const int64_t rank : integers(value, kMostRanks)) add(rank);
  std::string_view rest = value->str();
  while (out.size() < kMostRanks) {
    const size_t digit = rest.find_first_of("0123456789");
    if (digit == std::string_view::npos) break;
    rest.remove_prefix(digit);
    int rank = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), rank);
    if (error != std::errc{}) break;
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    add(rank);
  }
  return out;
}

class Dump {
 public:
  Dump(const Value& root, Story& story, Trail& trail) : root_(root), story_(story), trail_(trail) {}

  /// How many entries were no entries.
  size_t read() {
    read_groups();
    const Value* entries = root_.is(Kind::kDict) ? root_.find("entries") : &root_;
    size_t damaged = 0;
    if (entries == nullptr || !entries->is_sequence()) return 0;
    for (size_t i = 0; i < entries->items.size(); ++i) {
      if (entries->items[i]->is(Kind::kDict)) {
        read_entry(*entries->items[i], i);
      } else {
        ++damaged;
      }
    }
    read_status();
    return damaged;
  }

 private:
  void read_groups() {
    const Value* config = root_.find("pg_config");
    if (config == nullptr || !config->is(Kind::kDict)) return;
    for (size_t i = 0; i + 1 < config->items.size(); i += 2) {
      const std::string name = excerpt(config->items[i]->str(), 100);
      const Value& about = *config->items[i + 1];
      std::vector<int> ranks = member_ranks(about.find("ranks"));
      std::string description = text(about, "desc");
      if (description.empty() || description == "undefined") description = name;
      const std::string key = str(name, "|", join(ranks, ","));
      if (description == "default_pg" || description == "world" || name == "0")
        story_.tell_world_size(static_cast<int64_t>(ranks.size()));
      key_of_[name] = key;
      story_.trails.groups.try_emplace(key, GroupInfo{description, std::move(ranks)});
    }
  }

  const std::string& key_of(const Value& entry) {
    std::string name;
    std::string description;
    if (const Value* group = entry.find("process_group"); group != nullptr) {
      if (group->is_sequence() && !group->items.empty()) {
        name = excerpt(group->items[0]->str(), 100);
        if (group->items.size() > 1) description = excerpt(group->items[1]->str(), 100);
      } else {
        name = excerpt(group->str(), 100);
      }
    }
    if (name.empty()) name = text(entry, "pg_name");
    if (name.empty()) name = str(integer(entry, "pg_id", 0));
    const auto [at, is_new] = key_of_.try_emplace(name, name + "|");
    if (is_new) {
      if (description.empty() || description == "undefined") description = name;
      story_.trails.groups.try_emplace(at->second, GroupInfo{description, {}});
    }
    return at->second;
  }

  void read_entry(const Value& entry, size_t index) {
    Signature signature = signature_of(entry);
    const std::string& key = key_of(entry);
    GroupTrail& group = trail_.groups[key];
    Call call;
    call.record = static_cast<uint32_t>(index);
    call.phase = phase_of(entry);
    call.created_ns = std::max<int64_t>(integer(entry, "time_created_ns", 0), 0);
    call.step = static_cast<uint32_t>(
        std::clamp<int64_t>(integer(entry, "trireme_step", integer(entry, "step", 0)), 0, UINT32_MAX));
    call.where = story_.trails.place(user_frame(entry));
    const bool alone = signature.is_point_to_point() || integer(entry, "is_p2p", 0) != 0;
    const int64_t old_number = integer(entry, "seq_id", 0);
    call.number = alone ? integer(entry, "p2p_seq_id", old_number) : integer(entry, "collective_seq_id", old_number);
    call.number = std::clamp<int64_t>(call.number, 0, kMostNumber);
    // "coalesced" closes a group of calls that share a number, and says nothing of its own.
    if (signature.kind == "coalesced") return;
    call.signature = story_.trails.intern(std::move(signature));
    std::vector<Call>& calls = alone ? group.point_to_point : group.calls;
    if (!alone && !calls.empty() && calls.back().number == call.number) {
      calls.back().phase = std::min(calls.back().phase, call.phase);
      return;
    }
    // A dump holds at most its ring; a hostile one must not fill the memory.
    if (calls.size() < 4 * TrailBook::kMostCalls) calls.push_back(call);
  }

  void read_status() {
    const Value* status = root_.find("pg_status");
    if (status == nullptr || !status->is(Kind::kDict)) return;
    for (size_t i = 0; i + 1 < status->items.size(); i += 2) {
      const Value& name = *status->items[i];
      const Value& about = *status->items[i + 1];
      const std::string text_name = name.is(Kind::kInt) ? str(name.integer) : excerpt(name.str(), 100);
      const auto key = key_of_.find(text_name);
      if (key == key_of_.end()) continue;
      GroupTrail& group = trail_.groups[key->second];
      const auto take = [&about](std::optional<int64_t>& into, const char* field) {
        const int64_t value = integer(about, field, -1);
        if (value >= 0) into = std::min(value, kMostNumber);
      };
      // The newer numbers count collectives and sends together, so entries win where there are some.
      if (!group.calls.empty() || !group.point_to_point.empty()) continue;
      take(group.last_enqueued, "last_enqueued_collective");
      take(group.last_started, "last_started_collective");
      take(group.last_completed, "last_completed_collective");
    }
  }

  const Value& root_;
  Story& story_;
  Trail& trail_;
  std::map<std::string, std::string> key_of_;
};

}  // namespace

std::string kind_of_op(std::string_view op) {
  std::string name;
  for (const char c : op) {
    if (c != '_' && c != '-') name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kKinds = {{
      {"allreducebarrier", "barrier"},
      {"allreduce", "all_reduce"},
      {"reducescatter", "reduce_scatter"},
      {"allgather", "all_gather"},
      {"alltoall", "all_to_all"},
      {"broadcast", "broadcast"},
      {"barrier", "barrier"},
      {"scatter", "scatter"},
      {"gather", "gather"},
      {"reduce", "reduce"},
      {"send", "send"},
      {"recv", "recv"},
      {"coalesced", "coalesced"},
      {"split", "split"},
  }};
  for (const auto& [prefix, kind] : kKinds) {
    if (name.starts_with(prefix)) return std::string(kind);
  }
  return std::string(op);
}

std::optional<int> rank_of_file_name(std::string_view file) {
  file = file.substr(file.rfind('/') + 1);
  // A suffix has a letter: "rank3.json", but not "trace.7".
  const size_t dot = file.rfind('.');
  if (dot != std::string_view::npos && dot > 0 && !all_digits(file.substr(dot + 1))) file = file.substr(0, dot);
  size_t digits = 0;
  while (digits < file.size() && file[file.size() - 1 - digits] >= '0' && file[file.size() - 1 - digits] <= '9')
    ++digits;
  if (digits == 0 || digits > 7) return std::nullopt;
  return leading_number<int>(file.substr(file.size() - digits));
}

bool is_flight_recorder(const Value& root) {
  if (root.is(Kind::kDict))
    return root.find("version") != nullptr && (root.find("entries") != nullptr || root.find("pg_status") != nullptr);
  if (!root.is(Kind::kList) || root.items.empty()) return false;
  return root.items[0]->find("profiling_name") != nullptr;
}

std::string add_flight_recorder(const Value& root, const std::string& file, Story& story) {
  Trail trail;
  trail.file = file;
  trail.source = str("flight recorder ", text(root, "version"));
  std::optional<int> rank;
  if (const Value* ours = root.find("trireme"); ours != nullptr) {
    const int64_t told = integer(*ours, "rank", -1);
    if (told >= 0 && told < kMostRank) rank = static_cast<int>(told);
    trail.host = text(*ours, "host");
    trail.ended = integer(*ours, "closed", 0) != 0;
  }
  if (const int64_t told = integer(root, "rank", -1); !rank && told >= 0 && told < kMostRank) {
    rank = static_cast<int>(told);
  }
  if (!rank) rank = rank_of_file_name(file);
  if (!rank)
    return "a flight-recorder dump whose name does not end with its rank, so it cannot be compared; name it as c10d "
           "does: nccl_trace_rank_3";
  trail.rank = *rank;
  const size_t damaged = Dump(root, story, trail).read();
  story.ranks_seen.insert(*rank);
  story.trails.add(std::move(trail));
  return damaged == 0 ? std::string{} : str(damaged, " entries are no entries and were left out");
}

}  // namespace trireme::diagnose
