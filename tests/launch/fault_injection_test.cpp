// Oracle: closed form. The test decides which rank goes wrong, how and in which step; the launcher must name that rank and no other, say what
// it does, and say it within 10 s. A run in which nobody goes wrong must name nobody.
//
// The table is every fault x pattern of calls x 2, 3 and 4 ranks x each rank as the culprit, at seeded steps; a seeded tenth of it runs
// everywhere else (support/soak.h). It prints the rows of bench/results/fault_injection.md.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <random>

#include "base/fd.h"
#include "base/str.h"
#include "launch/job_fixture.h"
#include "profile/collective_trace.h"
#include "support/patience.h"
#include "support/soak.h"

namespace trireme::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kLimit_s = 10;
constexpr int kNumSteps = 12;

double now_s() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// What rank 0 of fault_rank tells of its steps.
class Steps {
 public:
  explicit Steps(std::string path) : path_(std::move(path)) {
    EXPECT_EQ(mkfifo(path_.c_str(), 0600), 0) << path_;
    // Both ends, so that opening does not wait for the rank and its end is none of the FIFO's.
    fifo_ = Fd(open(path_.c_str(), O_RDWR | O_CLOEXEC));
  }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Returns when `count` more have been made, or false after the patience of tests.
  [[nodiscard]] bool await(int count) {
    const auto patience = static_cast<int>(std::chrono::milliseconds(test::kPatience).count());
    for (char byte = 0; count > 0; --count) {
      pollfd entry = {.fd = fifo_.get(), .events = POLLIN, .revents = 0};
      if (poll(&entry, 1, patience) != 1 || read(fifo_.get(), &byte, 1) != 1) return false;
    }
    return true;
  }

 private:
  std::string path_;
  Fd fifo_;
};

/// How the launcher comes to name the culprit.
enum class Told { kHang, kBusy, kCallsDiffer, kEnded };

struct Fault {
  const char* name;
  Told told;
  const char* words;  ///< that must stand in what is said of the culprit
};
constexpr Fault kFaults[] = {
    {"late", Told::kHang, "sleeps (clock_nanosleep) in evaluate"},
    {"loader", Told::kHang, "sleeps (clock_nanosleep) in load_batch"},
    {"mutex", Told::kHang, "waits for a mutex (pthread_mutex_lock) in update_statistics"},
    {"spin", Told::kHang, "computes in spin"},
    {"stop", Told::kHang, "is stopped (SIGSTOP)"},
    {"busy", Told::kBusy, "is busy: saving a checkpoint, 63 %"},
    {"missing", Told::kCallsDiffer, "is out of step"},
    {"extra", Told::kCallsDiffer, "is out of step"},
    {"swapped", Told::kCallsDiffer, "is out of step"},
    {"shape", Told::kCallsDiffer, "is out of step"},
    {"dtype", Told::kCallsDiffer, "the dtypes differ"},
    {"root", Told::kCallsDiffer, "is out of step"},
    {"die", Told::kEnded, "SIGKILL"},
    {"throw", Told::kEnded, "exit code 1"},
    {"memory", Told::kEnded, "SIGABRT"},
    {"crash", Told::kEnded, "SIGSEGV"},
};
struct Pattern {
  const char* name;
  const char* program;
};
constexpr Pattern kPatterns[] = {
    {"collectives", TRIREME_BIN_DIR "/launch_fault_rank"},
    {"all_to_all", TRIREME_BIN_DIR "/launch_fault_rank"},
    {"messages", TRIREME_BIN_DIR "/launch_fault_rank"},
#ifdef TRIREME_DDP_FAULT_RANK
    {"ddp", TRIREME_DDP_FAULT_RANK},
#endif
};

struct Trial {
  const Fault* fault = nullptr;
  const Pattern* pattern = nullptr;
  int num_ranks = 0;
  int culprit = 0;
  int step = 0;
};

/// What can go wrong. There is no root in an all_to_all, and no third rank to send to among two.
bool exists(const Fault& fault, std::string_view pattern, int num_ranks) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  // The sanitizers end these themselves, in their own way.
  if (std::string_view(fault.name) == "memory" || std::string_view(fault.name) == "crash") return false;
#endif
  if (std::string_view(fault.name) != "root") return true;
  return pattern == "collectives" || pattern == "ddp" || (pattern == "messages" && num_ranks > 2);
}

std::vector<Trial> whole_list() {
  std::vector<Trial> trials;
  for (const Fault& fault : kFaults) {
    for (const Pattern& pattern : kPatterns) {
      for (int num_ranks = 2; num_ranks <= 4; ++num_ranks) {
        if (!exists(fault, pattern.name, num_ranks)) continue;
        for (int culprit = 0; culprit < num_ranks; ++culprit)
          trials.push_back({&fault, &pattern, num_ranks, culprit, 0});
      }
    }
  }
  return trials;
}

class FaultInjection : public JobTest {
 protected:
  [[nodiscard]] std::unique_ptr<Subprocess> start_faulty(const Trial& trial) const {
    Subprocess::Options with = options();
    with.env["TRIREME_HANG_AFTER_S"] = "0.2";
    return std::make_unique<Subprocess>(
        command({"--nproc-per-node", std::to_string(trial.num_ranks), "--grace", "0.1", trial.pattern->program,
                 trial.pattern->name, trial.fault->name, std::to_string(trial.culprit), std::to_string(trial.step),
                 std::to_string(kNumSteps)}),
        with);
  }

  /// Seconds from the fault to the launcher's words; checks the words.
  double run_trial(const Trial& trial) {
    std::filesystem::remove_all(run_dir());
    const auto job = start_faulty(trial);
    const std::string culprit = str("rank ", trial.culprit);
    const bool hang = trial.fault->told == Told::kHang || trial.fault->told == Told::kBusy;
    const std::string awaited = hang                                      ? str("[launch]   ", culprit, " (pid ")
                                : trial.fault->told == Told::kCallsDiffer ? str("[launch] Why: ")
                                                                          : str("[launch] FAILED");
    const bool named = job->await_output(awaited);
    const double named_s = now_s();
    if (hang && std::string_view(trial.fault->name) != "late" && std::string_view(trial.fault->name) != "busy") {
      job->kill(SIGTERM);
    }
    const int code = job->wait();
    EXPECT_TRUE(named) << job->err();
    const size_t at = job->out().find("fault ");
    EXPECT_NE(at, std::string::npos) << job->out() << job->err();
    if (at == std::string::npos) return -1;
    check_hangs(trial);
    if (hang) {
      EXPECT_THAT(job->err(), ::testing::ContainsRegex(str("\\[launch\\]   ", culprit, " \\(pid [0-9]+\\) .*")));
      EXPECT_THAT(job->err(), HasSubstr(trial.fault->words));
    } else if (trial.fault->told == Told::kCallsDiffer) {
      EXPECT_THAT(failure()["why"].dump(), HasSubstr(str("Why: ", culprit, " is out of step"))) << job->err();
      EXPECT_THAT(failure()["why"].dump(), HasSubstr(trial.fault->words));
      EXPECT_THAT(failure()["why"].dump(), HasSubstr(str(" in step ", trial.step)));
    } else {
      EXPECT_EQ(failure()["first"]["rank"], trial.culprit) << job->err();
      EXPECT_THAT(job->err(), HasSubstr(trial.fault->words));
      EXPECT_NE(code, 0);
      const std::string name = trial.fault->name;
      // A catch that throws on leaves nothing of the stack below it.
      const std::string report = read(str("run/reports/rank", trial.culprit, ".txt"));
      const std::string inside = name == "crash" ? "train(" : name == "memory" ? "std::terminate" : "";
      EXPECT_THAT(report, HasSubstr(inside));
      for (int rank = 0; rank < trial.num_ranks; ++rank) {
        // Who lost the culprit ends as well, and has no memory any more when it is caught at that.
        EXPECT_THAT(read(str("run/reports/rank", rank, ".txt")), AnyOf(HasSubstr("VmHWM"), HasSubstr("is ending")))
            << rank;
        EXPECT_TRUE(std::filesystem::exists(str(run_dir(), "/trace/rank", rank, ".trace")));
      }
    }
    return named_s - 1e-9 * std::stod(job->out().substr(at + 6));
  }

  /// Whatever was told as a hang, nobody else was named.
  void check_hangs(const Trial& trial) const {
    const nlohmann::json hangs = nlohmann::json::parse(read("run/hang.json"), nullptr, false);
    const bool expected = trial.fault->told == Told::kHang || trial.fault->told == Told::kBusy;
    EXPECT_EQ(hangs.is_object() || !expected, true) << "no hang.json";
    if (!hangs.is_object()) return;
    for (const nlohmann::json& hang : hangs["hangs"]) {
      if (hang["kind"] == "over") continue;
      ASSERT_EQ(hang["culprits"].size(), 1U) << hang.dump(1);
      EXPECT_EQ(hang["culprits"][0]["rank"], trial.culprit) << hang.dump(1);
      if (!expected) continue;
      EXPECT_THAT(hang["culprits"][0]["words"].get<std::string>(), HasSubstr(trial.fault->words));
      EXPECT_EQ(hang["kind"], trial.fault->told == Told::kBusy ? "busy" : "hang");
      // Messages let the others run ahead by as many steps as there are ranks between.
      EXPECT_GE(hang["step"], trial.step);
      EXPECT_LE(hang["step"], trial.step + (std::string_view(trial.pattern->name) == "messages" ? trial.num_ranks : 0));
    }
  }
};

TEST_F(FaultInjection, TheCulpritIsNamed) {
  std::vector<Trial> trials = whole_list();
  const auto given = GTEST_FLAG_GET(random_seed);
  const int seed = given != 0 ? given : 20261130;
  std::mt19937 random(static_cast<unsigned>(seed));
  for (Trial& trial : trials) trial.step = 3 + static_cast<int>(random() % (kNumSteps - 4));
  if (!whole_table()) {
    std::shuffle(trials.begin(), trials.end(), random);
    trials.resize(trials.size() / 10);
    std::sort(trials.begin(), trials.end(), [](const Trial& a, const Trial& b) { return a.fault < b.fault; });
  }
  std::printf("seed %d\n| fault | trials | named | by | max s | median s |\n| --- | --- | --- | --- | --- | --- |\n",
              seed);
  for (const Fault& fault : kFaults) {
    std::vector<double> times;
    int named = 0;
    for (const Trial& trial : trials) {
      if (trial.fault != &fault) continue;
      SCOPED_TRACE(str(fault.name, " of rank ", trial.culprit, "/", trial.num_ranks, ", ", trial.pattern->name,
                       ", step ", trial.step, ", seed ", seed));
      const auto failures = ::testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
      times.push_back(run_trial(trial));
      EXPECT_LT(times.back(), kLimit_s);
      named +=
          ::testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count() == failures ? 1 : 0;
    }
    if (times.empty()) continue;
    std::sort(times.begin(), times.end());
    const char* by = fault.told == Told::kHang    ? "HANG"
                     : fault.told == Told::kBusy  ? "Waiting"
                     : fault.told == Told::kEnded ? "FAILED"
                                                  : "Why";
    std::printf("| %s | %zu | %d | %s | %.2f | %.2f |\n", fault.name, times.size(), named, by, times.back(),
                times[times.size() / 2]);
  }
}

// With the default limit. In the whole table 1,000 steps with ten evaluations of 2 s, else 100 steps with one.
TEST_F(FaultInjection, NobodyIsNamedInAHealthyRun) {
  const char* steps = whole_table() ? "1000" : "100";
  for (const Pattern& pattern : kPatterns) {
    const Finished job = run({"--nproc-per-node", "3", pattern.program, pattern.name, "evaluate", "-1", "0", steps,
                              &pattern == kPatterns ? "2" : "0"});
    EXPECT_EQ(job.exit_code, 0) << job.err;
    EXPECT_THAT(job.err, Not(HasSubstr("HANG")));
    EXPECT_THAT(job.err, Not(HasSubstr("Waiting")));
    EXPECT_THAT(job.err, Not(HasSubstr("slow")));
    EXPECT_FALSE(std::filesystem::exists(run_dir() + "/hang.json"));
    EXPECT_FALSE(std::filesystem::exists(run_dir() + "/slow.json"));
  }
}

// One rank comes 20 ms later to 50 steps of 500, sleeping in its code or in its data loader: it is named once, nobody else is, with by how much and in
// what, and so is the end. A sleep may last longer than asked, never shorter.
TEST_F(FaultInjection, TheSlowRankIsNamedWithByHowMuch) {
  const std::pair<const char*, const char*> faults[] = {{"slow", "computation or other code of its own"},
                                                        {"slow_loader", "data loading"}};
  int culprit = 0;
  for (const auto& [fault, cause] : faults) {
    for (const char* pattern : {"collectives", "all_to_all"}) {
      SCOPED_TRACE(str(fault, " of rank ", culprit, ", ", pattern));
      Subprocess::Options with = options();
      with.env["TRIREME_HANG_AFTER_S"] = "0.8";  // it looks for slow ranks as often
      std::filesystem::remove_all(run_dir());
      const Finished job = run_program(command({"--nproc-per-node", "3", kPatterns[0].program, pattern, fault,
                                                std::to_string(culprit), "20", "500", "0.02", "50"}),
                                       with);
      EXPECT_EQ(job.exit_code, 0) << job.err;
      EXPECT_THAT(job.err, HasSubstr(str("[launch] SLOW: rank ", culprit, " ("))) << job.err;
      EXPECT_THAT(job.err, HasSubstr(str("[launch] rank ", culprit, " ("))) << job.err;
      EXPECT_THAT(job.err, HasSubstr("is no longer slow"));
      EXPECT_THAT(job.err, Not(HasSubstr("HANG")));
      const nlohmann::json told = nlohmann::json::parse(read("run/slow.json"), nullptr, false);
      ASSERT_TRUE(told.is_object());
      ASSERT_EQ(told["slow"].size(), 2U) << told.dump(1);
      const nlohmann::json& slow = told["slow"][0];
      EXPECT_EQ(slow["kind"], "slow");
      EXPECT_EQ(slow["rank"], culprit);
      EXPECT_EQ(slow["cause"], cause);
      EXPECT_EQ(slow["first_step"], 20);
      EXPECT_EQ(slow["last_step"], 39);
      // The others may be late to be so late themselves, on a busy machine.
      EXPECT_GT(slow["late_ms"], 15);
      EXPECT_GT(slow[fault == faults[0].first ? "compute_ms" : "data_ms"], 15);
      EXPECT_GT(slow["step_ms"], slow["late_ms"]);
      EXPECT_EQ(told["slow"][1]["kind"], "over");
      EXPECT_EQ(told["slow"][1]["rank"], culprit);
      for (const int rank : {0, 1, 2}) {
        EXPECT_THAT(read(str("run/logs/rank", rank, ".err")), HasSubstr(str("[launch] SLOW: rank ", culprit)));
      }
      // The traces that the job leaves tell the same.
      const Finished diagnosed = run_program({trireme_binary(), "diagnose", run_dir()}, options());
      EXPECT_THAT(diagnosed.out, AllOf(HasSubstr(str("rank ", culprit, " (")), HasSubstr(" was slow: it came"),
                                       HasSubstr(cause), HasSubstr("; later it")))
          << diagnosed.err;
      culprit = (culprit + 1) % 3;
    }
  }
}

TEST_F(FaultInjection, RanksThatAreSlowByTurnsAreNotNamed) {
  Subprocess::Options with = options();
  with.env["TRIREME_HANG_AFTER_S"] = "0.8";
  const Finished job = run_program(
      command({"--nproc-per-node", "3", kPatterns[0].program, "collectives", "by_turns", "-1", "0", "150", "0.01"}),
      with);
  EXPECT_EQ(job.exit_code, 0) << job.err;
  EXPECT_THAT(job.err, Not(HasSubstr("slow")));
}

TEST_F(FaultInjection, SlowRanksAreNotWatchedForWithZeroAndAWrongValueIsRefused) {
  Subprocess::Options with = options();
  with.env["TRIREME_SLOW_AFTER_STEPS"] = "0";
  const Finished off = run_program(
      command({"--nproc-per-node", "2", kPatterns[0].program, "collectives", "slow", "1", "5", "60", "0.01", "40"}),
      with);
  EXPECT_EQ(off.exit_code, 0) << off.err;
  EXPECT_THAT(off.err, Not(HasSubstr("slow")));
  with.env["TRIREME_SLOW_AFTER_STEPS"] = "few";
  const Finished wrong = run_program(command({"true"}), with);
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("TRIREME_SLOW_AFTER_STEPS is 'few'; 0 (no watch) to 1000000 steps are required."));
}

// A rank that does not come to init(), or whose group stays incomplete, is named like any other: in the words of what it does instead.
TEST_F(FaultInjection, ARankThatDoesNotComeToInitIsNamed) {
  const std::pair<const char*, const char*> faults[] = {
      {"loader", "has not come to trireme::init(): it sleeps (clock_nanosleep) in load_batch"},
      {"spin", "has not come to trireme::init(): it computes in spin"},
      {"stop", "is stopped (SIGSTOP)"},
      {"late", "has not come to trireme::init(): it sleeps (clock_nanosleep) in evaluate"}};
  int culprit = 0;
  for (const Pattern* pattern : {&kPatterns[0], &kPatterns[std::size(kPatterns) - 1]}) {
    for (const auto& [fault, words] : faults) {
      SCOPED_TRACE(str(fault, " of rank ", culprit, ", ", pattern->name));
      std::filesystem::remove_all(run_dir());
      Subprocess::Options with = options();
      with.env["TRIREME_HANG_AFTER_S"] = "0.2";
      Subprocess job(command({"--nproc-per-node", "3", "--grace", "0.1", pattern->program, pattern->name, fault,
                              std::to_string(culprit), "0", "4"}),
                     with);
      const bool late = std::string_view(fault) == "late";  // and the job ends at once
      ASSERT_TRUE(job.await_output(late ? "[launch] group 'world' has been made, after "
                                        : str("[launch]   rank ", culprit, " (pid ")))
          << job.err();
      const double named_s = now_s();
      if (!late) job.kill(SIGTERM);
      (void)job.wait();
      const size_t at = job.out().find("fault ");
      ASSERT_NE(at, std::string::npos) << job.out();
      EXPECT_LT(named_s - 1e-9 * std::stod(job.out().substr(at + 6)), kLimit_s);
      EXPECT_THAT(job.err(), HasSubstr("[launch] HANG: group 'world', which is being made: rank"));
      EXPECT_THAT(job.err(), HasSubstr(words));
      const nlohmann::json hangs = nlohmann::json::parse(read("run/hang.json"), nullptr, false);
      ASSERT_TRUE(hangs.is_object());
      for (const nlohmann::json& hang : hangs["hangs"]) {
        if (hang["kind"] == "over") continue;
        ASSERT_EQ(hang["culprits"].size(), 1U) << hang.dump(1);
        EXPECT_EQ(hang["culprits"][0]["rank"], culprit);
      }
      const Finished diagnosed = run_program({trireme_binary(), "diagnose", run_dir()}, options());
      EXPECT_THAT(diagnosed.out, HasSubstr(str("rank ", culprit, " ", late ? "has not come" : words))) << diagnosed.err;
      culprit = (culprit + 1) % 3;
    }
  }
}

// The launcher itself waits for a rank that is stopped when the others have ended; nobody else does.
TEST_F(FaultInjection, ARankThatIsStoppedAfterItsLastCallIsNamed) {
  for (const int culprit : {0, 2}) {
    std::filesystem::remove_all(run_dir());
    Subprocess::Options with = options();
    with.env["TRIREME_HANG_AFTER_S"] = "0.2";
    Subprocess job(command({"--nproc-per-node", "3", kPatterns[0].program, kPatterns[0].name, "stop",
                            std::to_string(culprit), "99", "4"}),
                   with);
    ASSERT_TRUE(job.await_output("[launch] HANG: the end of the job: the launcher has waited ")) << job.err();
    ASSERT_TRUE(job.await_output(" lets it go on.")) << job.err();
    const std::string pid = job.err().substr(job.err().find("kill -CONT ") + 11);
    EXPECT_THAT(job.err(), HasSubstr(str("[launch]   rank ", culprit, " (pid ")));
    const Finished diagnosed = run_program({trireme_binary(), "diagnose", run_dir()}, options());
    EXPECT_THAT(diagnosed.out, HasSubstr(str("rank ", culprit, " is stopped (SIGSTOP"))) << diagnosed.err;
    EXPECT_THAT(diagnosed.out, HasSubstr("the end of the job")) << diagnosed.err;
    ::kill(std::stoi(pid), SIGCONT);
    EXPECT_EQ(job.wait(), 0) << job.err();
  }
}

// Its folder is read while it is written: calls under way, seen of each rank at another moment, are no fault.
TEST_F(FaultInjection, TheFolderOfAHealthyJobThatRunsHasNoFault) {
  Steps steps(run_dir() + ".steps");
  Subprocess::Options with = options();
  with.env["FAULT_RANK_STEPS"] = steps.path();
  Subprocess job(
      command({"--nproc-per-node", "3", kPatterns[0].program, kPatterns[0].name, "by_turns", "-1", "0", "300", "0.01"}),
      with);
  ASSERT_TRUE(steps.await(1)) << job.err();
  for (int i = 0; i < 12; ++i) {
    const Finished diagnosed = run_program({trireme_binary(), "diagnose", run_dir()}, options());
    EXPECT_EQ(diagnosed.exit_code, 0) << diagnosed.out;
  }
  EXPECT_EQ(job.wait(), 0) << job.err();
}

TEST_F(FaultInjection, TwoStoppedRanksAreBothNamed) {
  Subprocess::Options with = options();
  with.env["TRIREME_HANG_AFTER_S"] = "0.2";
  Subprocess job(command({"--nproc-per-node", "4", "--grace", "0.1", kPatterns[0].program, kPatterns[0].name, "stop",
                          "1", "5", "100000"}),
                 with);
  ASSERT_TRUE(job.await_output(" lets it go on.")) << job.err();
  const nlohmann::json first = nlohmann::json::parse(read("run/hang.json"), nullptr, false);
  ASSERT_EQ(first["hangs"][0]["culprits"].size(), 1U);
  // Rank 3 waits in a call, and is stopped there too.
  const auto trace = profile::read_collective_trace(run_dir() + "/trace/rank3.trace");
  ASSERT_TRUE(trace.ok()) << trace.reason();
  ASSERT_EQ(::kill(trace.value().pid, SIGSTOP), 0);
  ASSERT_TRUE(job.await_output(str("[launch]   rank 3 (pid ", trace.value().pid, ") is stopped"))) << job.err();
  job.kill(SIGTERM);
  (void)job.wait();
  const nlohmann::json all = nlohmann::json::parse(read("run/hang.json"), nullptr, false);
  const nlohmann::json& last = all["hangs"].back();
  ASSERT_EQ(last["culprits"].size(), 2U) << last.dump(1);
  EXPECT_EQ(last["culprits"][0]["rank"], 1);
  EXPECT_EQ(last["culprits"][1]["rank"], 3);
}

// A launcher that was stopped itself has seen no time pass: who was late meanwhile is late only by what it has seen.
TEST_F(FaultInjection, NobodyIsNamedForTimeInWhichTheLauncherWasStopped) {
  using std::chrono::milliseconds;
  // The launcher looks each second, and counts at most two for the time between two looks.
  constexpr milliseconds kOneLook{1200};
  constexpr milliseconds kLongerThanTheLimit{6500};
  Steps steps(run_dir() + ".steps");
  Subprocess::Options with = options();
  with.env["TRIREME_HANG_AFTER_S"] = "6";
  with.env["FAULT_RANK_STEPS"] = steps.path();
  Subprocess job(
      command({"--nproc-per-node", "2", kPatterns[0].program, kPatterns[0].name, "slow", "1", "1", "40", "0.02", "40"}),
      with);
  ASSERT_TRUE(steps.await(1)) << job.err();
  const auto trace = profile::read_collective_trace(run_dir() + "/trace/rank1.trace");
  ASSERT_TRUE(trace.ok()) << trace.reason();
  ASSERT_EQ(::kill(trace.value().pid, SIGSTOP), 0);
  EXPECT_FALSE(job.await_output("HANG", 1, kOneLook)) << job.err();
  job.kill(SIGSTOP);
  EXPECT_FALSE(job.await_output("HANG", 1, kLongerThanTheLimit)) << job.err();
  job.kill(SIGCONT);
  EXPECT_FALSE(job.await_output("HANG", 1, kOneLook)) << job.err();
  ::kill(trace.value().pid, SIGCONT);
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(job.err(), Not(HasSubstr("HANG")));
}

#ifdef TRIREME_DDP_FAULT_RANK
// A rank that is alone in no_sync() for a whole step: while the others wait for it, the launcher says where it is; when it comes with its next
// step, the ranks say that they are out of step.
TEST_F(FaultInjection, ARankThatIsAloneInNoSyncIsNamedWithIt) {
  for (const int culprit : {0, 1}) {
    std::filesystem::remove_all(run_dir());
    Subprocess::Options with = options();
    with.env["TRIREME_HANG_AFTER_S"] = "0.2";
    Subprocess job(command({"--nproc-per-node", "2", "--grace", "0.1", TRIREME_DDP_FAULT_RANK, "ddp", "no_sync",
                            std::to_string(culprit), "4", "8", "1.5"}),
                   with);
    ASSERT_TRUE(job.await_output("; it is in no_sync(), where backward takes part in no all_reduce, for "))
        << job.err();
    const double named_s = now_s();
    (void)job.wait();
    EXPECT_LT(named_s - 1e-9 * std::stod(job.out().substr(job.out().find("fault ") + 6)), kLimit_s);
    EXPECT_THAT(job.err(), HasSubstr(str("[launch]   rank ", culprit, " (pid ")));
    EXPECT_THAT(job.err(), HasSubstr(str("the ranks are out of step: rank ", 1 - culprit, " in step 4, rank ", culprit,
                                         " in step 5")));
    EXPECT_THAT(job.err(), HasSubstr("perhaps alone in no_sync()"));
    const Finished diagnosed = run_program({trireme_binary(), "diagnose", run_dir()}, options());
    EXPECT_THAT(diagnosed.out, HasSubstr("no_sync()")) << diagnosed.err;
  }
}
#endif

// What a rank that waits for another one prints is in every rank's log too; and the report is there while the rank is stopped.
TEST_F(FaultInjection, EveryRanksLogHasTheHang) {
  const Trial trial = {.fault = &kFaults[4], .pattern = &kPatterns[0], .num_ranks = 3, .culprit = 0, .step = 5};
  const auto job = start_faulty(trial);
  ASSERT_TRUE(job->await_output("is stopped (SIGSTOP)")) << job->err();
  EXPECT_THAT(read("run/reports/rank0.txt"), HasSubstr("train("));
  job->kill(SIGTERM);
  (void)job->wait();
  for (const int rank : {0, 1, 2}) {
    EXPECT_THAT(read(str("run/logs/rank", rank, ".err")), HasSubstr("[launch] HANG: group 'world' call 17"));
  }
}

TEST_F(FaultInjection, ZeroTurnsTheWatchOffAndAWrongValueIsRefused) {
  Subprocess::Options with = options();
  with.env["TRIREME_HANG_AFTER_S"] = "0";
  const Finished off = run_program(
      command({"--nproc-per-node", "2", kPatterns[0].program, kPatterns[0].name, "late", "1", "2", "3"}), with);
  EXPECT_EQ(off.exit_code, 0) << off.err;
  EXPECT_THAT(off.err, Not(HasSubstr("HANG")));
  with.env["TRIREME_HANG_AFTER_S"] = "soon";
  const Finished wrong = run_program(command({"true"}), with);
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("TRIREME_HANG_AFTER_S is 'soon'; 0 (no watch) to 1000000 seconds are required."));
}

}  // namespace
}  // namespace trireme::testing
