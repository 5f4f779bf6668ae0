// The collective calls of each rank, whoever recorded them: c10d's flight recorder (pickle or JSON) or our own collective trace.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::diagnose {

enum class CallPhase : uint8_t { kQueued, kStarted, kFinished, kFailed };

/// "scheduled", "started", "completed", "failed": c10d's words.
[[nodiscard]] const char* to_string(CallPhase phase) noexcept;

/// What ranks must agree on, or (sizes of all_to_all, peers of send and recv) how their calls fit together.
struct Signature {
  std::string op{};    ///< as recorded, without the library: "all_reduce", "_all_gather_base"
  std::string kind{};  ///< what it is compared by: "all_gather" for "_all_gather_base"
  std::vector<std::vector<int64_t>> inputs{};
  std::vector<std::vector<int64_t>> outputs{};
  std::string dtypes{};               ///< of the inputs, else of the outputs: "Float" or "f32"
  std::string reduce{};               ///< "sum"; empty: not told
  int root = -1;                      ///< group rank; of send and recv the peer
  std::string label{};                ///< "bucket 2"
  bool cut_shape = false;             ///< only the first dims are known
  std::vector<int64_t> in_splits{};   ///< elements to each peer, where recorded
  std::vector<int64_t> out_splits{};  ///< elements from each peer

  /// "all_reduce f32[2, 3]", "send f32[4] to 1".
  [[nodiscard]] std::string text() const;
  [[nodiscard]] bool is_point_to_point() const { return kind == "send" || kind == "recv"; }
};

struct Call {
  int64_t number = 0;  ///< within its group, from where the recorder counts
  uint32_t signature = 0;
  uint32_t where = 0;  ///< index into TrailBook::places; 0: not told
  uint32_t step = 0;
  uint32_t record = 0;  ///< in its file
  int64_t created_ns = 0;
  CallPhase phase = CallPhase::kQueued;
};

/// One rank's calls in one group. Sends and receives are not in `calls`: a number of theirs is not the group's.
struct GroupTrail {
  std::vector<Call> calls{};           ///< collectives, by number
  std::vector<Call> point_to_point{};  ///< in order of issue
  std::optional<int64_t> last_enqueued{};
  std::optional<int64_t> last_started{};
  std::optional<int64_t> last_completed{};

  [[nodiscard]] const Call* find(int64_t number) const;
  /// The highest number that was issued or reported; -1: none.
  [[nodiscard]] int64_t last() const;
  [[nodiscard]] int64_t first() const { return calls.empty() ? 0 : calls.front().number; }
};

struct Trail {
  int rank = -1;
  std::string host{};
  std::string file{};
  std::string source{};                        ///< "flight recorder 2.4", "collective trace"
  std::string note{};                          ///< "its process ended in order"
  bool ended = false;                          ///< the writer closed it
  std::map<std::string, GroupTrail> groups{};  ///< by key
};

struct GroupInfo {
  std::string name{};        ///< for people: "world", "default_pg"
  std::vector<int> ranks{};  ///< global, by group rank; empty: not told
};

/// Purpose  All trails of a job with shared texts: a thousand ranks record the same few signatures.
class TrailBook {
 public:
  static constexpr size_t kMostCalls = 4096;  ///< of one rank in one group: the newest are kept
  static constexpr size_t kMostTrails = 20'000;

  TrailBook() : places{""} {}

  /// The number of an equal signature, or a new one.
  uint32_t intern(Signature signature);
  uint32_t place(const std::string& text);
  void add(Trail trail);

  [[nodiscard]] const Signature& at(const Call& call) const { return signatures[call.signature]; }
  [[nodiscard]] int global_rank(const std::string& group, int group_rank) const;

  std::vector<Signature> signatures{};
  std::vector<std::string> places;
  std::map<int, Trail> trails{};              ///< by global rank
  std::map<std::string, GroupInfo> groups{};  ///< by key: the name and the members
  std::vector<std::string> duplicates{};      ///< files of a rank that has a trail already

 private:
  std::map<std::string, uint32_t> by_text_{};
  std::map<std::string, uint32_t> by_place_{};
};

}  // namespace trireme::diagnose
