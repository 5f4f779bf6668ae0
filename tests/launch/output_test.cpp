// Oracle: the bytes that the ranks write. Log files must equal them; the console must show them in whole lines.
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <sstream>
#include <thread>

#include "launch/job_fixture.h"

namespace trireme::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class OutputTest : public JobTest {};

TEST_F(OutputTest, LinesStayWholeAndLogsStayExact) {
  std::ofstream(folder_ + "/writer.py") << R"(
import os, sys
rank = int(os.environ["RANK"])
out = sys.stdout.buffer
for i in range(2000):
    out.write(b"rank %d says " % rank)      # in pieces, flushed in between
    if i % 100 == 0: out.flush()
    out.write(b"%d\n" % i)
out.write(b"x" * 200000 + b"\n")            # longer than a line may be
out.write(b"nul \0 and \xff\n\n")
out.write(b"no line end")
out.flush()
)";
  const Finished job = run({"--nproc-per-node", "3", "writer.py"});
  ASSERT_EQ(job.exit_code, 0) << job.err;
  std::map<int, std::string> shown;
  std::istringstream lines(job.out);
  for (std::string line; std::getline(lines, line);) {
    ASSERT_EQ(line.substr(0, 5), "[rank") << line.substr(0, 80);
    ASSERT_EQ(line.substr(6, 3), "]: ");
    shown[line[5] - '0'] += line.substr(9) + "\n";
  }
  for (int rank = 0; rank < 3; ++rank) {
    std::string want;
    for (int i = 0; i < 2000; ++i) want += "rank " + std::to_string(rank) + " says " + std::to_string(i) + "\n";
    const std::string tail = std::string("nul \0 and \xff\n\n", 13) + "no line end";
    const std::string piece = std::string(65536, 'x') + "\n";
    // Not EXPECT_EQ: the texts are too long to be shown.
    EXPECT_TRUE(read("run/logs/rank" + std::to_string(rank) + ".out") == want + std::string(200000, 'x') + "\n" + tail);
    EXPECT_TRUE(shown[rank] ==
                want + piece + piece + piece + std::string(200000 - 3 * 65536, 'x') + "\n" + tail + "\n");
  }
}

TEST_F(OutputTest, AnotherJobInTheFolderKeepsTheRecordsOfTheFirst) {
  EXPECT_EQ(run({"sh", "-c", "printf first; echo '{}' > $TORCHELASTIC_ERROR_FILE; exit 3"}).exit_code, 3);
  const std::string report = read("run/failure.json");
  EXPECT_EQ(run({"sh", "-c", "echo second"}).exit_code, 0);
  EXPECT_THAT(
      read("run/logs/rank0.out"),
      ::testing::MatchesRegex("first\n--- [0-9]+-[0-9]+-[0-9]+ [0-9:]+ job [0-9a-f]+, attempt 1 ---\nsecond\n"));
  EXPECT_EQ(read("run/logs/rank0.err"), "");
  // What says how a job failed is of this job, or under another name.
  EXPECT_EQ(read("run/failure.json"), "");
  EXPECT_EQ(read("run/failure.json.old"), report);
  EXPECT_EQ(read("run/logs/rank0.error.json"), "");
  EXPECT_EQ(read("run/logs/rank0.error.json.old"), "{}\n");
}

TEST_F(OutputTest, ALinkInPlaceOfALogIsRefusedAndItsTargetLeftAlone) {
  std::filesystem::create_directories(run_dir() + "/logs");
  std::ofstream(folder_ + "/precious") << "precious";
  std::filesystem::create_symlink(folder_ + "/precious", run_dir() + "/logs/rank0.out");
  const Finished job = run({"sh", "-c", "echo ran"});
  EXPECT_EQ(job.exit_code, 1);
  EXPECT_THAT(job.err, HasSubstr("run/logs/rank0.out is a link; remove it."));
  EXPECT_EQ(read("precious"), "precious");
}

TEST_F(OutputTest, ClosedStandardStreamsAreNoPlaceForAnythingElse) {
  std::vector<std::string> words{"sh", "-c", "exec \"$@\" <&- >&- 2>&-", "sh"};
  const std::vector<std::string> job =
      command({"--nproc-per-node", "2", "sh", "-c", "echo out; echo err >&2; readlink /proc/self/fd/0"});
  words.insert(words.end(), job.begin(), job.end());
  EXPECT_EQ(run_program(words, options()).exit_code, 0);
  for (const char* rank : {"0", "1"}) {
    EXPECT_EQ(read(std::string("run/logs/rank") + rank + ".out"), "out\n/dev/null\n");
    EXPECT_EQ(read(std::string("run/logs/rank") + rank + ".err"), "err\n");
  }
}

TEST_F(OutputTest, RedirectsAndFilterChooseWhatIsShown) {
  const std::vector<std::string> program{"sh", "-c", "echo out; echo err >&2"};
  const auto with = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"--nproc-per-node", "2"});
    flags.insert(flags.end(), program.begin(), program.end());
    return run(flags);
  };
  const Finished redirected = with({"-r", "0:1,1:2"});
  EXPECT_THAT(redirected.out, AllOf(Not(HasSubstr("[rank0]")), HasSubstr("[rank1]: out")));
  EXPECT_THAT(redirected.err, AllOf(HasSubstr("[rank0]: err"), Not(HasSubstr("[rank1]"))));
  EXPECT_EQ(read("run/logs/rank0.out"), "out\n");
  EXPECT_EQ(read("run/logs/rank1.err"), "err\n");
  EXPECT_THAT(with({"--redirects=3", "--tee=3"}).out, AllOf(HasSubstr("[rank0]: out"), HasSubstr("[rank1]: out")));
  const Finished filtered = with({"--local-ranks-filter", "1"});
  EXPECT_EQ(filtered.out, "[rank1]: out\n");
}

TEST_F(OutputTest, SlowReaderOfStdoutDoesNotHideADeath) {
  Subprocess::Options no_reader = options();
  no_reader.read_stdout = false;
  Subprocess job(command({"--nproc-per-node", "2", "--report-grace", "0", "sh", "-c",
                          "if [ $RANK = 0 ]; then exec yes; fi; read line < /proc/self/fd/0; sleep 0.2; exit 4"}),
                 no_reader);
  EXPECT_TRUE(job.await_output("exit code 4")) << job.err();
  job.kill(SIGKILL);
  EXPECT_EQ(tag_.await_none(), 0);
}

// The job is over, its report is in the file, but the console's text is not taken: a signal ends the launcher all the same.
TEST_F(OutputTest, ASignalEndsALauncherWhoseReaderHasStopped) {
  Subprocess::Options no_reader = options();
  no_reader.read_stdout = false;
  Subprocess job(command({"sh", "-c", "seq 100000; exit 6"}), no_reader);
  ASSERT_TRUE(job.await_output("exit code 6")) << job.err();
  const auto until = std::chrono::steady_clock::now() + test::kPatience;
  while (!failure().is_object()) {
    ASSERT_LT(std::chrono::steady_clock::now(), until) << "the report waits for the reader too";
    std::this_thread::yield();
  }
  job.kill(SIGTERM);
  EXPECT_EQ(job.wait(), 6);
}

// One signal, as `timeout` and batch systems send it, while the rank waits for the reader.
TEST_F(OutputTest, ASignalEndsAJobWhoseReaderHasStopped) {
  Subprocess::Options no_reader = options();
  no_reader.read_stdout = false;
  Subprocess job(command({"--grace", "0.1", "sh", "-c", "echo begin >&2; exec yes"}), no_reader);
  ASSERT_TRUE(job.await_output("begin")) << job.err();
  job.kill(SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  EXPECT_EQ(tag_.await_none(), 0);
}

TEST_F(OutputTest, LogThatReachesTheLimitOfFileSizesEndsNothing) {
  const Finished job =
      run_program({"bash", "-c",
                   "ulimit -f 8; exec '" + trireme_binary() +
                       "' run --run-dir run sh -c 'seq 100000; head -c 100000 /dev/zero > big; echo $?'"},
                  options());
  EXPECT_EQ(job.exit_code, 0) << job.err;
  EXPECT_THAT(job.out, HasSubstr("[rank0]: 100000\n"));
  EXPECT_THAT(job.out, HasSubstr("[rank0]: " + std::to_string(128 + SIGXFSZ) + "\n")) << "ranks get the signal as ever";
  EXPECT_THAT(job.err, HasSubstr("a log file cannot be written any more (File too large)"));
}

TEST_F(OutputTest, VariablesThatAreSetToNothingCountAsNotSet) {
  Subprocess::Options nothing = options();
  for (const char* name : {"OMP_NUM_THREADS", "TORCH_NCCL_ASYNC_ERROR_HANDLING"}) nothing.env[name] = "";
  const Finished job = run_program(command({"--nproc-per-node", "2", "env"}), nothing);
  EXPECT_THAT(job.out, HasSubstr("[rank1]: OMP_NUM_THREADS=1\n"));
  EXPECT_THAT(job.out, HasSubstr("[rank1]: TORCH_NCCL_ASYNC_ERROR_HANDLING=1\n"));
  EXPECT_THAT(job.err, HasSubstr("OMP_NUM_THREADS was not set"));
}

TEST_F(OutputTest, ReaderThatLeavesDoesNotEndTheJob) {
  const Finished job = run_program(
      {"bash", "-c",
       "set -o pipefail; '" + trireme_binary() + "' run --run-dir run sh -c 'seq 100000; exit 6' | head -1"},
      options());
  EXPECT_EQ(job.out, "[rank0]: 1\n");
  EXPECT_EQ(job.exit_code, 6);
  EXPECT_THAT(read("run/logs/rank0.out"), HasSubstr("\n100000\n"));
}

TEST_F(OutputTest, RankZeroGetsTheInputTheOthersNone) {
  const Finished job = run_program(
      {"bash", "-c",
       "echo hello | '" + trireme_binary() + "' run --run-dir run --nproc-per-node 2 sh -c 'echo got $(cat)'"},
      options());
  EXPECT_THAT(job.out, AllOf(HasSubstr("[rank0]: got hello\n"), HasSubstr("[rank1]: got\n")));
}

TEST_F(OutputTest, EnvironmentIsTorchruns) {
  const Finished job = run({"--nproc-per-node", "2", "--rdzv-id", "my-job", "--role", "trainer", "env"});
  for (const char* line :
       {"[rank1]: RANK=1\n", "[rank1]: LOCAL_RANK=1\n", "[rank1]: WORLD_SIZE=2\n", "[rank1]: LOCAL_WORLD_SIZE=2\n",
        "[rank1]: GROUP_RANK=0\n", "[rank1]: GROUP_WORLD_SIZE=1\n", "[rank1]: ROLE_NAME=trainer\n",
        "[rank1]: ROLE_RANK=1\n", "[rank1]: ROLE_WORLD_SIZE=2\n", "[rank1]: MASTER_ADDR=127.0.0.1\n",
        "[rank1]: TORCHELASTIC_RESTART_COUNT=0\n", "[rank1]: TORCHELASTIC_MAX_RESTARTS=0\n",
        "[rank1]: TORCHELASTIC_RUN_ID=my-job\n", "[rank1]: TORCHELASTIC_USE_AGENT_STORE=True\n",
        "[rank1]: OMP_NUM_THREADS=1\n", "[rank1]: MASTER_PORT="}) {
    EXPECT_THAT(job.out, HasSubstr(line));
  }
  EXPECT_THAT(job.out, HasSubstr("[rank1]: TRIREME_RUN_DIR=" + run_dir() + "\n"));
  EXPECT_THAT(job.out, HasSubstr("[rank1]: TORCHELASTIC_ERROR_FILE=" + run_dir() + "/logs/rank1.error.json\n"));
}

// Port in use (case L01): a job of one host needs no fixed port, so none can be taken.
TEST_F(OutputTest, FortyJobsWhileTheDefaultPortIsTaken) {
  const int holder = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(29500);
  const int one = 1;
  setsockopt(holder, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  // Held by somebody else just as well: what counts is that it is taken.
  if (bind(holder, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) listen(holder, 1);
  const std::vector<std::string> job{trireme_binary(), "run", "--standalone", "--nproc-per-node", "2",
                                     rank_program(),   "meet"};
  for (int round = 0; round < 20; ++round) {
    Subprocess first(job, options());
    Subprocess second(job, options());
    EXPECT_EQ(first.wait(), 0) << first.err();
    EXPECT_EQ(second.wait(), 0) << second.err();
  }
  close(holder);
}

}  // namespace
}  // namespace trireme::testing
