// Oracle: closed form, from torchrun's own documentation of its flags; python_flags_test.py compares the names with the
// argparse parser of the installed torch.
#include "cli/run_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

launch::JobSpec spec(const std::vector<std::string>& args) { return parse_run_flags(args).spec; }

std::string complaint(const std::vector<std::string>& args) {
  try {
    (void)parse_run_flags(args);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(RunFlags, TakesBothSpellingsAndLeavesTheProgramsOwnFlagsAlone) {
  for (const char* flag : {"--nproc-per-node=3", "--nproc_per_node=3"}) {
    const launch::JobSpec job = spec({flag, "prog", "--nproc-per-node", "9", "--", "-x"});
    EXPECT_EQ(job.num_ranks, 3);
    EXPECT_THAT(job.command, ElementsAre("prog", "--nproc-per-node", "9", "--", "-x"));
  }
  EXPECT_EQ(spec({"--nproc_per_node", "4", "p"}).num_ranks, 4);
  EXPECT_THAT(spec({"--standalone", "--", "-odd-name", "a"}).command, ElementsAre("-odd-name", "a"));
}

TEST(RunFlags, DefaultsAreThoseOfTheHelp) {
  const launch::JobSpec job = spec({"prog"});
  EXPECT_EQ(job.num_ranks, 1);
  EXPECT_EQ(job.max_restarts, 0);
  EXPECT_EQ(job.grace.count(), 5000);
  EXPECT_EQ(job.report_grace.count(), 1500);
  EXPECT_EQ(job.master_addr, "127.0.0.1");
  EXPECT_EQ(job.master_port, 0);
  EXPECT_EQ(job.role, "default");
  EXPECT_THAT(job.forwarded_signals, ElementsAre(SIGINT, SIGTERM, SIGHUP, SIGQUIT));
}

TEST(RunFlags, RunsPythonAsTorchrunDoes) {
  const std::string script = TRIREME_SOURCE_DIR "/tests/cli/python_flags_test.py";
  setenv("PYTHON_EXEC", "/my/python", 1);
  EXPECT_THAT(spec({script, "a"}).command, ElementsAre("/my/python", "-u", script, "a"));
  EXPECT_THAT(spec({"-m", "pkg.module", "a"}).command, ElementsAre("/my/python", "-u", "-m", "pkg.module", "a"));
  EXPECT_THAT(spec({"--no-python", script}).command, ElementsAre(script));
  EXPECT_THAT(spec({"--run-path", "/dev/null"}).command, ElementsAre("/my/python", "-u", "/dev/null"));
  unsetenv("PYTHON_EXEC");
  EXPECT_THAT(complaint({"/no/such/script.py"}), HasSubstr("cannot read the Python script '/no/such/script.py'"));
}

TEST(RunFlags, ReadsStoreSignalsAndTimes) {
  EXPECT_EQ(spec({"--rdzv-endpoint", "localhost:29511", "p"}).master_port, 29511);
  EXPECT_EQ(spec({"--rdzv-endpoint", "[::1]:29511", "p"}).master_addr, "::1");
  EXPECT_EQ(spec({"--master-addr", "[::1]", "p"}).master_addr, "::1");
  EXPECT_EQ(spec({"--rdzv-endpoint", "::1", "p"}).master_addr, "::1");
  EXPECT_EQ(spec({"--rdzv-endpoint", "::1", "p"}).master_port, 0);
  EXPECT_EQ(spec({"--rdzv-endpoint=h:1", "--standalone", "p"}).master_port, 0) << "ignored, as torchrun does";
  EXPECT_EQ(spec({"--rdzv-id", "j", "p"}).run_id, "j");
  EXPECT_EQ(spec({"--shutdown-timeout", "7", "p"}).grace.count(), 7000);
  EXPECT_EQ(spec({"--shutdown-timeout", "7", "--grace", "0.5", "p"}).grace.count(), 500);
  EXPECT_THAT(spec({"--signals-to-handle", "SIGUSR1,TERM", "p"}).forwarded_signals, ElementsAre(SIGUSR1, SIGTERM));
  EXPECT_THAT(complaint({"--signals-to-handle", "SIGKILL", "p"}), HasSubstr("'SIGKILL' is no signal that can be"));
  EXPECT_THAT(complaint({"--signals-to-handle", ",", "p"}), HasSubstr("',' names no signal"));
}

TEST(RunFlags, TimesThatCannotBeHonouredAreRefused) {
  for (const char* flag : {"--grace", "--report-grace", "--shutdown-timeout"}) {
    for (const char* seconds : {"-3", "nan", "inf", "1e30", "1000001"}) {
      EXPECT_THAT(complaint({std::string(flag) + "=" + seconds, "p"}),
                  AllOf(HasSubstr(std::string(flag) + " ("), HasSubstr("0 to 1000000 seconds")))
          << flag << "=" << seconds;
    }
  }
  EXPECT_EQ(spec({"--grace=1000000", "--report-grace=0", "p"}).grace.count(), 1'000'000'000);
  EXPECT_EQ(spec({"--report-grace=0", "p"}).report_grace.count(), 0);
  setenv("TRIREME_GRACE", "-1", 1);
  EXPECT_THAT(complaint({"p"}), HasSubstr("TRIREME_GRACE) is -1"));
  unsetenv("TRIREME_GRACE");
}

TEST(RunFlags, EnvironmentSetsDefaultsFlagsWin) {
  setenv("PET_NPROC_PER_NODE", "6", 1);
  setenv("TRIREME_GRACE", "60", 1);
  EXPECT_EQ(spec({"p"}).num_ranks, 6);
  EXPECT_EQ(spec({"--nproc-per-node=2", "p"}).num_ranks, 2);
  EXPECT_EQ(spec({"p"}).grace.count(), 60'000);
  EXPECT_EQ(spec({"--grace=1", "p"}).grace.count(), 1000);
  unsetenv("PET_NPROC_PER_NODE");
  unsetenv("TRIREME_GRACE");
}

TEST(RunFlags, RefusesWhatIsMissingByName) {
  const std::vector<std::vector<std::string>> missing = {{"--nnodes", "2"},
                                                         {"--nnodes=1:2"},
                                                         {"--node-rank", "1"},
                                                         {"--rdzv-conf", "a=b"},
                                                         {"--rdzv-backend", "etcd"},
                                                         {"--local-addr", "h"},
                                                         {"--numa-binding", "node"},
                                                         {"--virtual-local-rank"},
                                                         {"--logs-specs", "x"},
                                                         {"--event-log-handler", "x"},
                                                         {"--start-method", "fork"},
                                                         {"--duplicate-stdout-filters", "a"},
                                                         {"--duplicate_stderr_filters", "a"}};
  for (std::vector<std::string> args : missing) {
    std::string name = args.front().substr(0, args.front().find('='));
    std::replace(name.begin(), name.end(), '_', '-');
    args.emplace_back("prog");
    EXPECT_THAT(complaint(args), AllOf(HasSubstr(name), HasSubstr("is not there yet"))) << args.front();
  }
  EXPECT_EQ(spec({"--nnodes=1:1", "--node-rank=0", "--event-log-handler=null", "--start-method=spawn", "p"}).num_ranks,
            1);
}

TEST(RunFlags, NamesTheNearestFlagAndWrongValues) {
  EXPECT_THAT(complaint({"--nproc-per-nod", "2", "p"}),
              HasSubstr("unknown flag '--nproc-per-nod'; did you mean '--nproc-per-node'?"));
  EXPECT_THAT(complaint({"--max_restart=1", "p"}), HasSubstr("did you mean '--max-restarts'?"));
  EXPECT_THAT(complaint({}), HasSubstr("no program was given"));
  EXPECT_THAT(complaint({"--nproc-per-node", "two", "p"}),
              HasSubstr("[cli.run] --nproc-per-node is 'two'; a number, cpu, gpu or auto is required."));
  EXPECT_THAT(complaint({"--nproc-per-node", "0", "p"}), HasSubstr("at least 1 rank"));
  EXPECT_EQ(complaint({"--max-restarts", "x", "p"}),
            "[cli.run] --max-restarts is 'x'; a whole number is required. 'trireme run --help' lists all flags.");
  EXPECT_THAT(complaint({"--grace", "x", "p"}), HasSubstr("[cli.run] --grace is 'x'; a number is required."));
  EXPECT_THAT(complaint({"--grace"}), HasSubstr("[cli.run] --grace has no value; a number is required."));
  EXPECT_THAT(complaint({"--role", "a", "--role", "b", "p"}), HasSubstr("--role was given 2 times (a, b); once is"));
  setenv("PET_MAX_RESTARTS", "many", 1);
  EXPECT_THAT(complaint({"p"}), HasSubstr("--max-restarts (environment PET_MAX_RESTARTS) is 'many'; a whole number"));
  unsetenv("PET_MAX_RESTARTS");
  EXPECT_THAT(complaint({"--redirects", "5", "p"}), HasSubstr("5 is none of 0, 1 (stdout), 2 (stderr), 3 (both)"));
  EXPECT_THAT(complaint({"--tee", "3:1", "p"}), HasSubstr("there is no rank 3"));
  EXPECT_THAT(complaint({"--local-ranks-filter", "1", "p"}), HasSubstr("there is no rank 1"));
  EXPECT_THAT(complaint({"--json", "p"}), HasSubstr("--json goes with --dry-run"));
}

TEST(RunFlags, HelpHasEveryFlag) {
  const std::string help = run_help();
  for (const std::string& name : run_flag_names()) EXPECT_THAT(help, HasSubstr(name));
  for (size_t start = 0; start < help.size();) {
    const size_t end = help.find('\n', start);
    EXPECT_LE(end - start, 120U) << help.substr(start, end - start);
    start = end + 1;
  }
}

}  // namespace
}  // namespace trireme::cli
