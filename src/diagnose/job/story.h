// What the files of one job tell, gathered before anything is concluded: readers fill it, reason() reads it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "diagnose/facts.h"
#include "diagnose/finding.h"
#include "diagnose/job/call_trail.h"
#include "profile/collective_trace.h"

namespace trireme::diagnose {

/// How a rank ended, as a launcher, a batch system or an error file tells it.
struct RankEnd {
  std::optional<int> rank{};
  int64_t pid = 0;  ///< 0: not told
  std::string host{};
  int signal = 0;  ///< 0: by exit code
  std::optional<int> exit_code{};
  bool by_launcher = false;  ///< ended because another had failed
  bool first = false;        ///< the teller calls it the first failure
  std::string hint{};        ///< why, in the teller's words
  std::string log{};         ///< file of its last words
  Evidence evidence{};
};

/// A rank that waited in a collective until a watchdog gave up.
struct Waiting {
  int rank = 0;
  std::string group{};  ///< empty: not told
  int64_t call = 0;     ///< number of the call in its group
  std::string op{};     ///< "all_reduce"
  std::string size{};   ///< "9801523 elements", "[2, 3]"; empty: not told
  int64_t timeout_ms = 0;
  Evidence evidence{};
};

/// How far a rank has come in a group, by its own words.
struct Progress {
  int rank = 0;
  std::string group{};
  std::optional<int64_t> enqueued{};
  std::optional<int64_t> completed{};
  bool timed_out = false;  ///< false: it only answered another's call for a dump
  Evidence evidence{};
};

/// Ranks of which a message says that they did not come.
struct Absence {
  std::vector<int> ranks{};
  std::string what{};  ///< "call 17 (all_reduce f32[4]) of group 'world'"
  Evidence evidence{};
  double confidence = 0.9;
};

/// A hang that the launcher has told while the job ran.
struct ToldHang {
  std::string where{};  ///< "group 'world' call 17, all_reduce sum f32[1000] (bucket 0), step 5"
  std::vector<int> waiting{};
  std::vector<int> late{};
  struct Culprit {
    int rank = 0;
    int64_t pid = 0;
    std::string doing{};  ///< "is in its own code: it sleeps (clock_nanosleep) in load_batch, called by train"
  };
  std::vector<Culprit> culprits{};
  std::vector<int> circle{};  ///< ranks that wait for each other
  bool over = false;          ///< the call went on later
  Evidence evidence{};
};

/// Two ranks that called different things, as a checking library tells it.
struct CallClash {
  int first_rank = 0;
  int second_rank = 0;
  std::string first_call{};
  std::string second_call{};
  std::string difference{};  ///< "the dtypes differ"
  std::string where{};       ///< "group 'world' call 17"
  Evidence evidence{};
};

/// The kernel, or a batch system, killed a process for its memory.
struct OomKill {
  int64_t pid = 0;  ///< 0: not told
  std::string process{};
  std::string host{};
  std::vector<int> ranks{};
  bool by_batch_system = false;
  Evidence evidence{};
};

/// An error that a program told with its last words.
struct LastWords {
  std::optional<int> rank{};
  std::string text{};   ///< "RuntimeError: ..."
  std::string where{};  ///< "train.py:41"; empty: not told
  Evidence evidence{};
};

/// A collective trace of ours, whole: its times tell who is slow.
struct OwnTrace {
  std::string file{};
  profile::TraceSnapshot trace{};
};

/// Purpose  Everything of one job that was read. Bounded: each list keeps what came first, and the sets of ranks are complete.
struct Story {
  std::optional<int> world_size{};  ///< how many ranks there are, as told by the user or by a file
  std::set<int> ranks_seen{};       ///< that have left a log line, a dump or a trace
  std::vector<RankEnd> ends{};
  std::vector<Waiting> waiting{};
  std::vector<Progress> progress{};
  std::vector<Absence> absent{};
  std::vector<ToldHang> hangs{};
  std::vector<CallClash> clashes{};
  std::vector<OomKill> oom_kills{};
  std::vector<LastWords> last_words{};
  std::vector<Finding> findings{};  ///< that need no reasoning: what a line says in so many words
  std::vector<MemoryAsk> memory{};  ///< of each out-of-memory message
  TrailBook trails{};
  std::vector<OwnTrace>
      own_traces{};  ///< of at most kMostOwnTraces ranks, with kMostOwnRecords in all; usually half a MiB each
  std::map<int, Evidence> stopped{};  ///< live ranks in state T
  std::map<int, Evidence> gone{};     ///< ranks of a live job without a process

  static constexpr size_t kMost = 5000;
  static constexpr size_t kMostOwnTraces = 512;
  static constexpr size_t kMostOwnRecords = size_t{4} << 20;
  template <typename T>
  static void keep(std::vector<T>& list, T value) {
    if (list.size() < kMost) list.push_back(std::move(value));
  }
  /// The same, once for each rank and group: the first call that it waits in.
  void add_waiting(Waiting one);
  /// The same, the newest of each rank and group.
  void add_progress(Progress one);
  void add_own_trace(OwnTrace one);
  /// Drops what a file has told so far.
  void forget(std::string_view file);
  void tell_world_size(int64_t ranks);

  /// Adds a finding, or its evidence and ranks to one of the same code, cause and host.
  void add(Finding finding);

 private:
  std::map<std::pair<int, std::string>, size_t> waiting_at_{};
  std::map<std::pair<int, std::string>, size_t> progress_at_{};
  size_t num_own_records_ = 0;
};

}  // namespace trireme::diagnose
