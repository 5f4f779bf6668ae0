// Oracle: the contract of a death. In each of six phases of a training run a rank is killed with SIGKILL at seeded moments. Then
//   - every survivor gets kPeerLost naming that rank within 1 s of the death, or of the beginning of its next call. Only in the trials of
//     teardown in which no call is left may it end with 0 instead;
//   - the launcher names that rank and SIGKILL within 1 s of the death, on stderr and then in failure.json;
// (both in seconds of support/pulse_clock.h; the table has milliseconds of the steady clock)
//   - nothing is left: no process, no file in /dev/shm or TMPDIR, nothing unknown in the run folder, and the newest checkpoint is whole and the
//     last that was saved, or the one that was being saved. Leftovers of a killed save go with the next one.
// Moments are drawn over the length of the phase, as runs with as many ranks had it that got to its end.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/str.h"
#include "checkpoint/folder/folder.h"
#include "parallel/kill_trials_phases.h"
#include "support/patience.h"
#include "support/pulse_clock.h"
#include "support/soak.h"
#include "support/subprocess.h"
#include "support/temp_dir.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;  // CLOCK_MONOTONIC, which the ranks read too
using ::testing::ContainsRegex;

constexpr int kTrialsPerPhase = 20;
constexpr double kLimit_s = 1;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

double ms_between(int64_t from_ns, int64_t to_ns) { return static_cast<double>(to_ns - from_ns) * 1e-6; }

Clock::time_point time_of(int64_t ns) { return Clock::time_point(std::chrono::nanoseconds(ns)); }

std::set<std::string> names_below(const std::string& folder) {
  std::set<std::string> names;
  std::error_code ignored;
  for (fs::recursive_directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    if (!entry->is_directory()) names.insert(fs::relative(entry->path(), folder).string());
  }
  return names;
}

struct Trial {
  Phase phase = kInit;
  int number = 0;  ///< within the phase
  int num_ranks = 2;
  int victim = -1;          ///< -1: nobody is killed
  double moment = 0;        ///< 0 the beginning of the phase, 1 its end
  int late = -1;            ///< begins with init only after the death
  bool extra_call = false;  ///< in teardown
};

/// What a rank told of itself.
struct RankStory {
  struct Lost {
    int64_t at_ns = 0;
    int64_t call_began_ns = 0;
    std::string kind;
    std::string text;
  };
  std::array<int64_t, kNumPhases> begin_ns{}, end_ns{};
  int64_t death_ns = 0;
  bool inside = false;  ///< the death came before the end of the phase
  std::optional<Lost> lost;
  int64_t saving = 0, saved = 0;  ///< steps; the second when save() has returned
};

/// One job under `trireme run`, in a folder of its own.
class Job {
 public:
  Job(const Trial& trial, int64_t delay_ns) : stories_(static_cast<size_t>(trial.num_ranks)) {
    for (const std::string_view name : {kEvents, kGate, kLateGate}) {
      if (mkfifo(at(name).c_str(), 0600) != 0) ADD_FAILURE() << "mkfifo " << name;
    }
    fs::create_directory(dir_ / "tmp");
    // Both ends, so that neither opening waits and the end of a rank is no end of file.
    events_ = open(at(kEvents).c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    const std::string bin = TRIREME_BIN_DIR;
    // A long report-grace, so that a rank that is slow to notice is seen being slow.
    std::vector<std::string> command{bin + "/trireme", "run", "--report-grace", "30", "--run-dir", dir_ / "run"};
    command.insert(command.end(), {"--nproc-per-node", std::to_string(trial.num_ranks)});
    command.insert(command.end(), {bin + "/parallel_kill_rank", dir_.path()});
    if (trial.victim >= 0) {
      for (const int64_t argument :
           {int64_t{trial.phase}, int64_t{trial.victim}, delay_ns, int64_t{trial.late}, int64_t{trial.extra_call}}) {
        command.push_back(std::to_string(argument));
      }
    }
    Subprocess::Options options;
    options.env.insert(tag_.variable());
    options.env["TMPDIR"] = dir_ / "tmp";
    options.folder = dir_.path();
    launcher_ = std::make_unique<Subprocess>(command, options);
  }
  ~Job() {
    for (const int fd : {events_, gate_, late_gate_}) {
      if (fd >= 0) close(fd);
    }
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  void open_gate() { gate_ = open(at(kGate).c_str(), O_RDWR | O_CLOEXEC); }
  void open_late_gate() { late_gate_ = open(at(kLateGate).c_str(), O_RDWR | O_CLOEXEC); }

  /// Reads events until `count` lines have had this word.
  [[nodiscard]] bool await(const std::string& word, int count) {
    const auto deadline = Clock::now() + test::kPatience;
    while (num_[word] < count) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
      pollfd item{events_, POLLIN, 0};
      if (left <= 0 || poll(&item, 1, static_cast<int>(left)) <= 0) return false;
      take_events();
    }
    return true;
  }
  void take_events() {
    std::array<char, 4096> buffer{};
    for (ssize_t got; (got = read(events_, buffer.data(), buffer.size())) > 0;) {
      unread_.append(buffer.data(), static_cast<size_t>(got));
    }
    for (size_t end; (end = unread_.find('\n')) != std::string::npos; unread_.erase(0, end + 1)) {
      take_event(unread_.substr(0, end));
    }
  }

  [[nodiscard]] std::string at(std::string_view name) const { return dir_.path() + std::string(name); }
  [[nodiscard]] const RankStory& story(int rank) const { return stories_.at(static_cast<size_t>(rank)); }
  [[nodiscard]] Subprocess& launcher() { return *launcher_; }
  [[nodiscard]] const Tag& tag() const { return tag_; }

 private:
  void take_event(const std::string& line) {
    std::istringstream in(line);
    int rank = 0;
    std::string word;
    in >> rank >> word;
    ++num_[word];
    RankStory& story = stories_.at(static_cast<size_t>(rank));
    if (word == "begin" || word == "end") {
      size_t phase = 0;
      in >> phase;
      in >> (word == "begin" ? story.begin_ns : story.end_ns).at(phase);
    } else if (word == "death") {
      std::string where;
      in >> story.death_ns >> where;
      story.inside = where == "inside";
    } else if (word == "saving" || word == "saved") {
      in >> (word == "saved" ? story.saved : story.saving);
    } else if (word == "error") {
      RankStory::Lost lost;
      in >> lost.at_ns >> lost.call_began_ns >> lost.kind;
      std::getline(in, lost.text);
      story.lost = lost;
    }
  }

  // In memory where there is /dev/shm: a process that waits for a disk does not die before the disk answers, and how long a disk takes that
  // others use too is not what is tested here.
  test::TempDir dir_{fs::exists("/dev/shm") ? "/dev/shm" : fs::temp_directory_path()};
  Tag tag_;
  int events_ = -1, gate_ = -1, late_gate_ = -1;
  std::string unread_;
  std::map<std::string, int> num_;
  std::vector<RankStory> stories_;
  std::unique_ptr<Subprocess> launcher_;
};

/// One line of the table.
struct Row {
  int trials = 0;
  int inside = 0;
  int ended_with_0 = 0;
  int torn_saves = 0;
  int left = 0;
  std::vector<double> survivors_ms, launcher_ms;
};

std::string max_and_median(std::vector<double> ms) {
  if (ms.empty()) return "- | -";
  std::sort(ms.begin(), ms.end());
  return str(std::lround(ms.back()), " | ", std::lround(ms[ms.size() / 2]));
}

void print(const std::array<Row, kNumPhases>& rows) {
  std::string text =
      "| phase | trials | before its end | survivors | named, max ms | median ms | ended with 0 | launcher, max ms | "
      "median ms | torn saves "
      "| left |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (size_t phase = 0; phase < rows.size(); ++phase) {
    const Row& row = rows[phase];
    text += str("| ", kPhases[phase], " | ", row.trials, " | ", row.inside, " | ",
                row.survivors_ms.size() + static_cast<size_t>(row.ended_with_0), " | ",
                max_and_median(row.survivors_ms), " | ", row.ended_with_0, " | ", max_and_median(row.launcher_ms),
                " | ", row.torn_saves, " | ", row.left, " |\n");
  }
  std::fputs(text.c_str(), stdout);
}

class KillTrials : public ::testing::Test {
 protected:
  /// How long each phase took on each rank, at its fastest so far.
  using Lengths = std::vector<std::array<int64_t, kNumPhases>>;

  const Lengths& lengths(int num_ranks) {
    const auto [found, fresh] = lengths_.try_emplace(num_ranks, static_cast<size_t>(num_ranks));
    if (!fresh) return found->second;
    Trial trial;
    trial.num_ranks = num_ranks;
    Job job(trial, 0);
    EXPECT_TRUE(job.await("ready", num_ranks));
    job.open_gate();
    EXPECT_EQ(job.launcher().wait(), 0) << job.launcher().err();
    job.take_events();
    learn_lengths(job, num_ranks);
    for (const auto& phases : found->second) EXPECT_THAT(phases, ::testing::Each(::testing::Gt(0)));
    EXPECT_EQ(job.story(0).saved, kLastStep);
    expect_checkpoint(job);
    return found->second;
  }

  void learn_lengths(const Job& job, int num_ranks) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      const RankStory& story = job.story(rank);
      for (size_t phase = 0; phase < kNumPhases; ++phase) {
        const int64_t length = story.end_ns.at(phase) - story.begin_ns.at(phase);
        int64_t& least = lengths_.at(num_ranks).at(static_cast<size_t>(rank)).at(phase);
        if (story.end_ns.at(phase) > 0 && (least == 0 || length < least)) least = length;
      }
    }
  }

  void run(const Trial& trial) {
    const std::set<std::string> shared_before = names_below("/dev/shm");
    const auto length = static_cast<double>(lengths(trial.num_ranks)[static_cast<size_t>(trial.victim)][trial.phase]);
    Job job(trial, static_cast<int64_t>(trial.moment * length));
    ASSERT_TRUE(job.await("ready", trial.num_ranks)) << job.launcher().err();
    job.open_gate();
    if (trial.late >= 0) {
      ASSERT_TRUE(job.await("death", 1));
      job.open_late_gate();
    }
    EXPECT_TRUE(job.launcher().await_output("[launch] FAILED"));
    const int64_t reported_ns = now_ns();
    EXPECT_EQ(job.launcher().wait(), 128 + SIGKILL);
    job.take_events();
    SCOPED_TRACE(job.launcher().err());
    learn_lengths(job, trial.num_ranks);

    Row& row = rows_[trial.phase];
    ++row.trials;
    const RankStory& victim = job.story(trial.victim);
    ASSERT_GT(victim.death_ns, 0);
    row.inside += victim.inside ? 1 : 0;
    const double launcher_ms = ms_between(victim.death_ns, reported_ns);
    row.launcher_ms.push_back(launcher_ms);
    EXPECT_LT(pulses_.seconds_between(time_of(victim.death_ns), time_of(reported_ns)), kLimit_s)
        << launcher_ms << " ms";
    expect_report(job, trial);
    for (int rank = 0; rank < trial.num_ranks; ++rank) {
      if (rank != trial.victim) expect_named(job, trial, rank);
    }
    expect_nothing_left(job, trial, shared_before);
  }

  static void expect_report(Job& job, const Trial& trial) {
    EXPECT_THAT(job.launcher().err(),
                ContainsRegex(str("FAILED, 1 of ", trial.num_ranks, " ranks\\. First, [0-9:]+: rank ", trial.victim,
                                  " on [^ ]+, pid [0-9]+, SIGKILL ")));
    std::ifstream file(job.at("/run/failure.json"));
    const nlohmann::json report = nlohmann::json::parse(file, nullptr, false);
    ASSERT_FALSE(report.is_discarded());
    EXPECT_EQ(report["first"]["rank"], trial.victim);
    EXPECT_EQ(report["first"]["signal"], "SIGKILL");
    for (const auto& end : report["ends"]) {
      if (end["rank"] == trial.victim) continue;
      EXPECT_EQ(end["by_launcher"], false) << end;
      EXPECT_EQ(end["exit_code"], job.story(end["rank"]).lost ? 5 : 0) << end;
    }
  }

  void expect_named(const Job& job, const Trial& trial, int rank) {
    SCOPED_TRACE(str("survivor ", rank));
    const RankStory& story = job.story(rank);
    if (!story.lost) {
      EXPECT_TRUE(trial.phase == kTeardown && !trial.extra_call) << "got no error";
      ++rows_[trial.phase].ended_with_0;
      return;
    }
    EXPECT_EQ(story.lost->kind, "kPeerLost") << story.lost->text;
    EXPECT_THAT(story.lost->text, ContainsRegex(str("rank ", trial.victim, "[^0-9/]")));
    const int64_t from_ns = std::max(job.story(trial.victim).death_ns, story.lost->call_began_ns);
    const double ms = ms_between(from_ns, story.lost->at_ns);
    EXPECT_LT(pulses_.seconds_between(time_of(from_ns), time_of(story.lost->at_ns)), kLimit_s)
        << ms << " ms: " << story.lost->text;
    rows_[trial.phase].survivors_ms.push_back(ms);
  }

  void expect_nothing_left(const Job& job, const Trial& trial, const std::set<std::string>& shared_before) {
    std::vector<std::string> left;
    for (const pid_t pid : job.tag().processes()) left.push_back(str("process ", pid));
    for (const std::string& name : names_below("/dev/shm")) {
      // Others may use it too; names of Trireme and LibTorch are known, and so are the folders of tests.
      const bool ours = name.starts_with("trireme") && !name.starts_with("trireme-test-");
      if ((ours || name.starts_with("torch")) && !shared_before.contains(name)) left.push_back("/dev/shm/" + name);
    }
    for (const std::string& name : names_below(job.at("/tmp"))) left.push_back("TMPDIR: " + name);
    std::set<std::string> known{"failure.json"};
    for (int rank = 0; rank < trial.num_ranks; ++rank) {
      known.insert({str("logs/rank", rank, ".out"), str("logs/rank", rank, ".err"), str("trace/rank", rank, ".trace"),
                    str("reports/rank", rank, ".txt")});
    }
    for (const std::string& name : names_below(job.at("/run"))) {
      if (!known.contains(name)) left.push_back("run folder: " + name);
    }
    EXPECT_THAT(left, ::testing::IsEmpty());
    rows_[trial.phase].left += static_cast<int>(left.size());

    expect_checkpoint(job);
    rows_[trial.phase].torn_saves += num_torn(job) > 0 ? 1 : 0;
    if (num_torn(job) > 0) {
      (void)checkpoint::write_checkpoint(job.at(kCheckpoints), {kLastStep + 1, {}, {}}, 2);
      EXPECT_EQ(num_torn(job), 0);
    }
  }

  static int num_torn(const Job& job) {
    int count = 0;
    std::error_code ignored;
    for (fs::directory_iterator entry(job.at(kCheckpoints), ignored), end; entry != end; entry.increment(ignored)) {
      count += entry->path().filename().string().starts_with(".tmp-") ? 1 : 0;
    }
    return count;
  }

  /// Reads as checkpoint::load_latest does, without LibTorch: what was saved last, or what was being saved.
  static void expect_checkpoint(const Job& job) {
    const auto read = checkpoint::read_latest(job.at(kCheckpoints));
    const RankStory& writer = job.story(0);
    const int64_t step = read ? read->step : 0;
    EXPECT_TRUE(step == writer.saved || step == writer.saving) << step;
    if (!read) return;
    const auto bytes = read->tensors.at(std::string(kMarkName)).view.bytes;
    ASSERT_EQ(bytes.size(), sizeof(float) * kMarkElements);
    const auto* values = reinterpret_cast<const float*>(bytes.data());
    EXPECT_TRUE(std::all_of(values, values + kMarkElements,
                            [&](float value) { return value == static_cast<float>(read->step); }));
  }

  test::PulseClock pulses_;
  std::map<int, Lengths> lengths_;
  std::array<Row, kNumPhases> rows_;
};

/// The whole table; every victim is met with every number of ranks, and moments are spread over the phase.
std::vector<Trial> make_trials(std::mt19937& random) {
  std::vector<Trial> trials;
  for (int phase = 0; phase < kNumPhases; ++phase) {
    std::array<int, kTrialsPerPhase> places{};
    std::iota(places.begin(), places.end(), 0);
    std::shuffle(places.begin(), places.end(), random);
    for (int number = 0; number < kTrialsPerPhase; ++number) {
      Trial trial;
      trial.phase = static_cast<Phase>(phase);
      trial.number = number;
      trial.num_ranks = 2 + number % 3;
      trial.victim = number / 3 % trial.num_ranks;
      trial.moment =
          (places.at(static_cast<size_t>(number)) + std::uniform_real_distribution<>()(random)) / kTrialsPerPhase;
      if (trial.phase == kInit && random() % 2 == 0) trial.late = (trial.victim + 1) % trial.num_ranks;
      trial.extra_call = trial.phase == kTeardown && random() % 3 != 0;
      trials.push_back(trial);
    }
  }
  return trials;
}

/// Two trials of each phase: one that kills rank 0 of two, one that kills another of three. Four ranks are for the whole table: loading
/// LibTorch is most of a trial, and each rank does it.
std::vector<Trial> sample(const std::vector<Trial>& all, std::mt19937& random) {
  std::vector<Trial> some;
  for (int phase = 0; phase < kNumPhases; ++phase) {
    for (const bool rank0 : {true, false}) {
      std::vector<Trial> candidates;
      std::copy_if(all.begin(), all.end(), std::back_inserter(candidates), [&](const Trial& trial) {
        return trial.phase == phase && (trial.victim == 0) == rank0 && trial.num_ranks == (rank0 ? 2 : 3);
      });
      some.push_back(candidates[random() % candidates.size()]);
    }
  }
  return some;
}

TEST_F(KillTrials, SurvivorsAndLauncherNameTheDeadAndNothingIsLeft) {
  // --gtest_random_seed=N draws other moments.
  const unsigned seed = 20'261'130U + static_cast<unsigned>(GTEST_FLAG_GET(random_seed));
  std::mt19937 random(seed);
  const std::vector<Trial> all = make_trials(random);
  const std::vector<Trial> trials = whole_table() ? all : sample(all, random);
  for (const Trial& trial : trials) {
    SCOPED_TRACE(str("seed ", seed, ", phase '", kPhases[trial.phase], "', trial ", trial.number, ": rank ",
                     trial.victim, " of ", trial.num_ranks, " at ", trial.moment, " of the phase",
                     trial.late >= 0 ? str(", rank ", trial.late, " late") : "",
                     trial.extra_call ? ", one more call" : ""));
    run(trial);
  }
  print(rows_);
  int inside = 0;
  for (const Row& row : rows_) inside += row.inside;
  EXPECT_GT(inside, static_cast<int>(trials.size()) / 4)
      << "most deaths came at the end of their phase: the lengths are off";
}

}  // namespace
}  // namespace trireme::testing
