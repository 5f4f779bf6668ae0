// Oracle: by construction. Each text is what the named program prints for a fault that is known; the answer is that fault.
#include "diagnose/job_fixture.h"

namespace trireme::diagnose {
namespace {

using testing::HasSubstr;

std::string timeout(int rank, int seq, const std::string& op = "ALLREDUCE", const std::string& numel = "1000") {
  return str("[rank", rank, "]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank ", rank,
             "] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=", seq, ", OpType=", op,
             ", NumelIn=", numel, ", NumelOut=", numel,
             ", Timeout(ms)=600000) ran for 600020 milliseconds before timing out.\n");
}

TEST(JobLogs, NothingFoundIsSaid) {
  const Report report = diagnosed({{"train.log", "step 1 loss 0.5\nstep 2 loss 0.4\nAll done, no errors\n"}});
  EXPECT_TRUE(report.findings.empty()) << text_of(report);
}

TEST(JobLogs, WatchdogsBlameNobodyThatWaits) {  // H03, from logs alone
  const std::string log = timeout(0, 42) + timeout(1, 42) + timeout(2, 42);
  const Report unknown = diagnosed({{"a.log", log}});
  expect_first(unknown, "calls.timeout", {},
               {"ranks 0, 1, 2 wait in all_reduce", "call 42", "the culprit is not among them"});
  EXPECT_THAT(unknown.findings[0].advice, HasSubstr("--world-size"));
  expect_first(diagnosed({{"a.log", log}}, 4), "calls.timeout", {3},
               {"ranks 0, 1, 2 wait", "rank 3 is not among them: suspect"});
  expect_first(diagnosed({{"a.log", log}}, 3), "calls.stalled", {}, {"all 3 ranks wait"});
}

TEST(JobLogs, WhoAnswersTheDumpSignalAndIsBehindIsNamed) {
  const std::string log = timeout(0, 11) +
                          "[rank0]:[E101 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank 0] Exception "
                          "(either an error or timeout) detected by "
                          "watchdog at work: 11, last enqueued NCCL work: 11, last completed NCCL work: 10.\n"
                          "[rank9]:[E101 ProcessGroupNCCL.cpp:1484] [PG ID 0 PG GUID 0(default_pg) Rank 9] Received a "
                          "dump signal due to a collective timeout from "
                          " rank 0 and we will try our best to dump the debug info. Last enqueued NCCL work: 10, last "
                          "completed NCCL work: 10.\n";
  expect_first(diagnosed({{"a.log", log}}), "calls.timeout", {9},
               {"rank 0 waits in all_reduce", "rank 9 has not issued it"});
}

TEST(JobLogs, GroupsWithCallsOfOneNumberAreToldApart) {
  const auto wait = [](int rank, int in_group, const char* group) {
    return str(
        "[rank", rank, "]:[E218 04:54:22.864 ProcessGroupNCCL.cpp:616] [Rank ", in_group,
        "] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=57, OpType=ALLREDUCE, NumelIn=32, "
        "NumelOut=32, Timeout(ms)=600000) ran for 600045 milliseconds before timing out.\n[rank",
        rank, "]:[E218 04:54:22.865 ProcessGroupNCCL.cpp:1795] [PG ID 11 PG GUID ", group, " Rank ", in_group,
        "] Exception (either an error or timeout) detected by watchdog at work: 57, last enqueued NCCL work: 60, "
        "last completed NCCL work: 56.\n");
  };
  const Report report = diagnosed({{"a.log", wait(13, 1, "119") + wait(15, 1, "112")}});
  ASSERT_EQ(report.findings.size(), 2U) << text_of(report);
  EXPECT_THAT(text_of(report), HasSubstr("rank 13 waits in all_reduce of 32 elements, call 57 of group '119'"));
  EXPECT_THAT(text_of(report), HasSubstr("rank 15 waits in all_reduce of 32 elements, call 57 of group '112'"));
}

TEST(JobLogs, UnlikeCallsUnderOneNumber) {
  expect_first(diagnosed({{"a.log", timeout(0, 7) + timeout(1, 7, "BROADCAST") + timeout(2, 7)}}), "calls.mismatch",
               {1}, {"call 7 is not the same on all ranks"});
  expect_first(diagnosed({{"a.log", timeout(0, 7) + timeout(1, 7, "ALLREDUCE", "999")}}), "calls.mismatch", {0, 1},
               {"999 elements", "1000 elements"});
}

TEST(JobLogs, OldTextsOfTheWatchdog) {  // 1.13 and 2.3
  const std::string log =
      "[E ProcessGroupNCCL.cpp:828] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, "
      "OpType=ALLREDUCE, TensorShape=[2, 3], "
      "Timeout(ms)=1800000) ran for 1804406 milliseconds before timing out.\n"
      "[rank2]:[E ProcessGroupNCCL.cpp:1537] [PG 0 Rank 2] Timeout at NCCL work: 9, last enqueued NCCL work: 9, last "
      "completed NCCL work: 76280750235782912.\n";
  expect_first(diagnosed({{"a.log", log}}), "calls.timeout", {}, {"rank 1 waits in all_reduce of [2, 3], call 9"});
}

TEST(JobLogs, MismatchTextShowsBothSides) {  // H09
  const auto clash = [](const char* a, const char* b) {
    return str(
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: "
        "CollectiveFingerPrint(SequenceNumber=5, ",
        a, "), but Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=5, ", b,
        ").Collectives differ in the following aspects: ...\n");
  };
  const std::string shape23 =
      "OpType=ALLREDUCE, TensorShape=[2, 3], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float)";
  expect_first(
      diagnosed({{"a.log", clash(shape23.c_str(), "OpType=ALLREDUCE, TensorShape=[3, 2], TensorDtypes=Float")}}),
      "calls.mismatch", {0, 1},
      {"rank 1 called ALLREDUCE Float[2, 3] #5", "rank 0 called ALLREDUCE Float[3, 2] #5", "the shapes differ"});
  expect_first(diagnosed({{"a.log", clash(shape23.c_str(), "OpType=REDUCE, TensorShape=[2, 3], TensorDtypes=Float")}}),
               "calls.mismatch", {0, 1}, {"the operations differ"});
  expect_first(
      diagnosed({{"a.log", clash(shape23.c_str(), "OpType=ALLREDUCE, TensorShape=[2, 3], TensorDtypes=Double")}}),
      "calls.mismatch", {0, 1}, {"the dtypes differ"});
}

TEST(JobLogs, OurOwnErrors) {
  const std::string clash =
      "[comm.all_reduce] group 'dp' call 17: rank 0 called all_reduce sum f32[1024] in step 3, rank 3 called "
      "all_reduce sum f32[1000] in step 3; the shapes "
      "differ. All ranks must make the same calls in the same order. Last common call: 16.\n";
  expect_first(diagnosed({{"logs/rank0.err", clash}, {"logs/rank3.err", clash}}), "calls.mismatch", {0, 3},
               {"group 'dp' call 17", "rank 0 called all_reduce sum f32[1024]",
                "rank 3 called all_reduce sum f32[1000]", "the shapes differ"});
  expect_first(diagnosed({{"rank0.err",
                           "[comm.all_reduce] rank 0: group 'world' call 8 (all_reduce sum f32[4]): nothing for 3 s; "
                           "still waiting for ranks 2, 3. "
                           "Find out what they do instead, or raise the group's timeout.\n"}}),
               "calls.not_entered", {2, 3},
               {"ranks 2, 3 did not come to group 'world' call 8 (all_reduce sum f32[4])"});
  expect_first(diagnosed({{"rank0.err",
                           "[comm.all_to_all] group 'world' call 4: rank 0 sends 12 bytes to rank 1, which expects 4 "
                           "(all_to_all f32[6]). Input splits of "
                           "the sender and output splits of the receiver must agree.\n"}}),
               "calls.splits", {0, 1}, {"rank 0 sends 12 bytes to rank 1, which expects 4"});
}

TEST(JobLogs, DesyncReportAndMonitoredBarrier) {
  expect_first(diagnosed({{"a.log",
                           "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n"
                           "\t   - [3] finished collective #5, but didn't join collective #6 (count from 1)\n"}}),
               "calls.not_entered", {3}, {"collective #6"});
  expect_first(diagnosed({{"a.log", "RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 30000 ms\n"}}),
               "calls.not_entered", {1}, {"the monitored barrier"});
}

constexpr const char* kTorchrun =
    R"(E0110 05:44:28.100 4000 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 1 (pid: 4121) of binary: /usr/bin/python
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-01-15_05:44:30
  host      : node-01
  rank      : 2 (local_rank: 2)
  exitcode  : 1 (pid: 4122)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-15_05:44:28
  host      : node-01
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 4121)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 4121
============================================================
)";

TEST(JobLogs, OomKillerExplainsTheOthersTimeouts) {
  const std::string kernel =
      "[Thu Oct 10 03:06:53 2026] Out of memory: Killed process 4121 (python) total-vm:900000kB, anon-rss:800000kB, "
      "file-rss:0kB\n";
  const Report report = diagnosed({{"job.log", timeout(0, 3) + timeout(2, 3) + kTorchrun}, {"dmesg.txt", kernel}}, 3);
  expect_first(report, "host.oom_killed", {1},
               {"rank 1 on node-01 (pid 4121) was killed by the kernel because memory ran out"});
  std::string files;
  for (const Evidence& evidence : report.findings[0].evidence)
    files += evidence.file.substr(evidence.file.rfind('/') + 1) + str(":", evidence.line, " ");
  EXPECT_THAT(files, HasSubstr("dmesg.txt:1 "));
  EXPECT_THAT(files, HasSubstr("job.log:1 ")) << "the time-outs are evidence for the same cause: " << files;
  for (const Finding& finding : report.findings) EXPECT_NE(finding.code, "calls.timeout") << text_of(report);
}

TEST(JobLogs, KilledWithoutAKernelLog) {
  expect_first(diagnosed({{"job.log", kTorchrun}}), "rank.killed", {1}, {"SIGKILL"});
}

TEST(JobLogs, OurLauncherReport) {  // L03, L09
  const std::string console =
      "05:31:07.402 I [launch] job 0f3ab6f1c2aa: 4 ranks, logs in runs/x/logs, store 127.0.0.1:34981\n"
      "[launch] FAILED, 1 of 4 ranks. First, 14:02:11: rank 1 on node0, pid 4121, exit code 3, after 312 s; see "
      "runs/x/logs/rank1.err.\n"
      "[launch] Then, after rank 1: ranks 0, 2 exit code 5; rank 3 ended by the launcher (SIGTERM).\n";
  const Report plain = diagnosed({{"console.txt", console}});
  expect_first(plain, "rank.failed", {1}, {"rank 1 on node0 (pid 4121) ended with exit code 3"});
  EXPECT_EQ(plain.findings.size(), 1U) << text_of(plain);
  // With the rank's own log the words are told.
  const std::string trace =
      "Traceback (most recent call last):\n  File \"train.py\", line 41, in step\n    loss = f(x)\nValueError: bad "
      "batch\n";
  const std::string lost =
      "[comm.all_reduce] rank 0: group 'world' call 3 (all_reduce sum f32[4]): rank 1 died. The group cannot be used "
      "any more; see the "
      "launcher's report and that rank's log for the cause.\n";
  const Report told = diagnosed({{"console.txt", console}, {"logs/rank0.err", lost}, {"logs/rank1.err", trace}});
  expect_first(told, "rank.failed", {1}, {"failed: ValueError: bad batch (train.py:41)"});
  EXPECT_EQ(told.findings.size(), 1U) << text_of(told);
}

TEST(JobLogs, FailureJsonAndErrorFile) {
  const std::string failure =
      R"({"schema": 1, "command": ["./train"], "job_id": "93a5ea417ef1", "host": "node0", "num_ranks": 2, "restarts": 0, "exit_code": 137,
    "first": {"rank": 1, "pid": 4121, "signal": "SIGKILL", "hint": "kernel log: out of memory", "log": "logs/rank1.err", "by_launcher": false},
    "ends": [{"rank": 1, "pid": 4121, "signal": "SIGKILL", "by_launcher": false}, {"rank": 0, "pid": 4120, "exit_code": 5, "by_launcher": false}]})";
  const Report report = diagnosed({{"failure.json", failure}});
  expect_first(report, "host.oom_killed", {1}, {"rank 1 on node0 (pid 4121) was killed by the kernel"});
  EXPECT_EQ(report.findings.size(), 1U) << text_of(report);
  const std::string error =
      R"({"message": {"message": "RuntimeError: boom", "extraInfo": {"py_callstack": "Traceback\n  File \"model.py\", line 7, in f\n", "timestamp": "1"}}})";
  expect_first(diagnosed({{"logs/rank2.error.json", error}}), "rank.error", {2}, {"RuntimeError: boom (model.py:7)"});
}

TEST(JobLogs, AllRanksWithOneErrorAreOneFinding) {
  Files files;
  for (int rank = 0; rank < 4; ++rank) {
    files.emplace_back(str("logs/rank", rank, ".err"),
                       "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    import "
                       "foo\nModuleNotFoundError: No module named 'foo'\n");
  }
  const Report report = diagnosed(files);
  expect_first(report, "rank.error", {0, 1, 2, 3}, {"ranks 0 to 3 failed: ModuleNotFoundError: No module named 'foo'"});
  EXPECT_EQ(report.findings.size(), 1U) << text_of(report);
}

TEST(JobLogs, MixedRanksInOneFileAreKeptApart) {
  const std::string log =
      "[rank0]: Traceback (most recent call last):\n[rank1]: Traceback (most recent call last):\n[rank0]:   File "
      "\"a.py\", line 1, in x\n"
      "[rank1]:   File \"b.py\", line 2, in y\n[rank1]: KeyError: 'k'\n[rank0]: torch.distributed.DistNetworkError: "
      "recvValue failed on SocketImpl\n";
  const Report report = diagnosed({{"a.log", log}});
  expect_first(report, "rank.error", {1}, {"rank 1 failed: KeyError: 'k' (b.py:2)"});
  EXPECT_EQ(report.findings.size(), 1U) << text_of(report);
}

TEST(JobLogs, AnEarlierAttemptIsForgotten) {
  const Report report =
      diagnosed({{"logs/rank0.err",
                  "Traceback (most recent call last):\n  File \"a.py\", line 1, in x\nValueError: old\n"
                  "--- 2026-11-30 13:00:00 job 0f3ab6f1c2aa, attempt 1 ---\nstep 1\n"}});
  EXPECT_TRUE(report.findings.empty()) << text_of(report);
}

TEST(JobLogs, Slurm) {
  expect_first(
      diagnosed({{"s.out",
                  "slurmstepd: error: *** JOB 4711 ON node-01 CANCELLED AT 2026-11-30T12:00:00 DUE TO TIME LIMIT ***\n"
                  "srun: error: node-01: tasks 0-3: Terminated\n"}}),
      "slurm.time_limit", {}, {"job 4711", "time limit"});
  const Report node = diagnosed({{"s.out",
                                  "srun: error: Node failure on node-[03-04]\n"
                                  "slurmstepd: error: *** JOB 4711 ON node-01 CANCELLED AT 2026-11-30T12:00:00 DUE TO "
                                  "NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n"}});
  expect_first(node, "slurm.node_failure", {}, {"failed"});
  EXPECT_NE(find(node, "slurm.node_failure", "node-03"), nullptr) << text_of(node);
  EXPECT_NE(find(node, "slurm.node_failure", "node-04"), nullptr);
  expect_first(diagnosed({{"s.out",
                           "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have "
                           "been OOM Killed.\n"
                           "srun: error: node-02: task 5: Out Of Memory\n"}}),
               "host.oom_killed", {5}, {"rank 5 on node-02", "by Slurm"});
  expect_first(diagnosed({{"s.out",
                           "slurmstepd: error: Detected 1 oom-kill event(s) in step 4711.batch cgroup. Some of your "
                           "processes may have been killed\n"}}),
               "host.oom_killed", {}, {"Slurm killed a task"});
  expect_first(diagnosed({{"s.out", "srun: error: node-[01-02]: tasks 0,2-3: Exited with exit code 9\n"}}),
               "rank.failed", {0}, {"exit code 9"});
}

TEST(JobLogs, TasksOfADamagedLineAreBounded) {
  const Report report = diagnosed({{"slurm.out",
                                    "srun: error: n1: tasks 2147483647,0-2147483647: Exited with exit code 1\n"
                                    "srun: error: n[0-4294967295]: task 5: Killed\n"}});
  for (const Finding& finding : report.findings) EXPECT_LE(finding.ranks.size(), size_t{1} << 17);
}

TEST(JobLogs, MpirunAndPrefixes) {
  expect_first(diagnosed({{"m.out",
                           "mpirun noticed that process rank 1 with PID 4121 on node node-01 exited on signal 11 "
                           "(Segmentation fault).\n"}}),
               "rank.crashed", {1}, {"rank 1 on node-01 (pid 4121) was ended by SIGSEGV"});
}

TEST(JobLogs, DdpErrorsNameRankAndParameters) {  // D01
  expect_first(diagnosed({{"a.log",
                           "[rank1]: RuntimeError: Expected to have finished reduction in the prior iteration before "
                           "starting a new one. ...\n"
                           "[rank1]: Parameters which did not receive grad for rank 1: head.bias, head.weight\n"}}),
               "ddp.unused_parameters", {1}, {"head.bias, head.weight"});
}

TEST(JobLogs, RendezvousAndPorts) {  // L01
  expect_first(diagnosed({{"a.log",
                           "[W socket.cpp:697] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - "
                           "Address already in use).\n"}}),
               "rendezvous.port_in_use", {}, {"29500"});
  expect_first(diagnosed({{"a.log",
                           "[E socket.cpp:922] [c10d] The client socket has timed out after 600000ms while trying to "
                           "connect to (172.17.0.9, 46229).\n"}}),
               "rendezvous.no_answer", {}, {"172.17.0.9, 46229"});
  EXPECT_TRUE(diagnosed({{"a.log", "OSError: [Errno 48] flask: Address already in use\n"}}).findings.empty());
}

TEST(JobLogs, NcclFailures) {  // X07, H15
  const Report twice = diagnosed({{"n.log",
                                   "[1,3]<stdout>:node-01:29881:30401 [0] NCCL INFO init.cc:903 -> 5\n"
                                   "[1,3]<stdout>:node-01:29880:30398 [0] init.cc:497 NCCL WARN Duplicate GPU detected "
                                   ": rank 3 and rank 1 both on CUDA device 2000\n"
                                   "[1,1]<stdout>:node-01:29878:30419 [0] init.cc:497 NCCL WARN Duplicate GPU detected "
                                   ": rank 1 and rank 2 both on CUDA device 2000\n"}});
  expect_first(twice, "nccl.duplicate_gpu", {1, 2, 3}, {"2000"});
  const Report unreachable = diagnosed({{"n.log",
                                         "node-02:1:2 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion "
                                         "from peer 192.0.2.5<33092> with error 12, opcode 0, "
                                         "len 0, vendor err 129 (Recv)\n"}});
  expect_first(unreachable, "nccl.ib_unreachable", {}, {"192.0.2.5", "error 12", "retry count exceeded"});
  expect_first(
      diagnosed(
          {{"n.log",
            "h:1:2 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-abc to 9637892 bytes\n"}}),
      "nccl.shared_memory", {}, {"/dev/shm"});
  expect_first(diagnosed({{"n.log", "h:1:2 [0] bootstrap.cc:41 NCCL WARN Bootstrap : no socket interface found\n"}}),
               "nccl.no_interface", {}, {"no network interface"});
  expect_first(
      diagnosed(
          {{"n.log", "h:1:2 [0] bootstrap.cc:77 NCCL WARN Message truncated : received 2048 bytes instead of 256\n"}}),
      "nccl.message_truncated", {}, {"2048"});
}

// The launcher's own words while the job ran, as they stand in every rank's log, are the first thing to show.
const std::string kHang =
    "[launch] HANG: group 'world' call 17, all_reduce sum f32[1000] (bucket 0), step 5: ranks 0, 2 have waited 3.1 s "
    "for "
    "rank 1. The last one that all finished is 16, broadcast f32[16] from 0.\n"
    "[launch]   rank 1 (pid 632) is in its own code: it waits for a mutex (pthread_mutex_lock) in update_statistics, "
    "called by train, main. All its threads: runs/x/reports/rank1.txt.\n";

TEST(JobLogs, AHangThatTheLauncherTold) {
  const Report report = diagnosed({{"logs/rank0.err", kHang}, {"logs/rank1.err", kHang}, {"logs/rank2.err", kHang}});
  expect_first(report, "rank.hangs", {1},
               {"rank 1 is in its own code: it waits for a mutex (pthread_mutex_lock) in update_statistics",
                "while ranks 0, 2 wait for it in group 'world' call 17"});
  EXPECT_EQ(report.findings.size(), 1U) << text_of(report);
  EXPECT_EQ(report.findings[0].severity, Severity::kError);
  EXPECT_EQ(report.findings[0].evidence.size(), 3U);

  const Report over = diagnosed({{"job.log", kHang + "[launch] call 17 of group 'world' goes on, after 7.3 s.\n"}});
  expect_first(over, "rank.hangs", {1}, {"later it went on"});
  EXPECT_FALSE(over.has_errors());

  const Report stopped =
      diagnosed({{"job.log",
                  "[launch] HANG: group 'world', which is being made: rank 0 has waited 3.0 s for rank 1.\n"
                  "[launch]   rank 1 (pid 77) is stopped (SIGSTOP); kill -CONT 77 lets it go on. \n"}});
  expect_first(stopped, "rank.stopped", {1}, {"rank 0 waits for it in group 'world', which is being made"});
  EXPECT_THAT(stopped.findings[0].advice, HasSubstr("kill -CONT 77"));

  const Report circle =
      diagnosed({{"job.log",
                  "[launch] HANG: group 'world' call 2, send f32[4] to 1: rank 0 has waited 3.0 s for rank 1. \n"
                  "[launch]   ranks 0, 1 wait for each other: none of them can go on.\n"}});
  expect_first(circle, "calls.deadlock", {0, 1}, {"ranks 0, 1 wait for each other in group 'world' call 2"});
}

TEST(JobLogs, HangJsonTellsTheSameAndWhatIsOver) {
  const std::string entry =
      R"({"kind": "hang", "group": "world", "call": 17, "what": "all_reduce sum f32[1000]", "step": 5, "waiting": [0, 2],)"
      R"( "late": [1], "waited_s": 3.1, "last_common_call": 16, "circle": [], "unix_ns": 1,)"
      R"( "culprits": [{"rank": 1, "pid": 632, "doing": "own code", "words": "is in its own code: it computes in spin"}]})";
  expect_first(
      diagnosed({{"hang.json", "{\"schema\": 1, \"hangs\": [\n" + entry + "\n]}\n"}}), "rank.hangs", {1},
      {"rank 1 is in its own code: it computes in spin, while ranks 0, 2 wait for it in group 'world' call 17, "
       "all_reduce sum f32[1000], step 5"});
  const std::string over = R"({"kind": "over", "unix_ns": 2, "group": "world", "call": 17, "waited_s": 7.3})";
  const Report report = diagnosed({{"hang.json", "{\"schema\": 1, \"hangs\": [\n" + entry + ",\n" + over + "\n]}\n"}});
  expect_first(report, "rank.hangs", {1}, {"later it went on"});
  EXPECT_FALSE(report.has_errors());
}

TEST(JobLogs, WhatTheWatchesToldIsFoundFirst) {
  const std::string why =
      "[launch] Why: rank 1 is out of step in call 18 of group 'world': ranks 0, 2 called all_reduce sum f32[500] in "
      "step "
      "5; rank 1 called all_reduce sum f32[200] in step 5; the shapes differ. Told by rank 1's own past: in step 4 it "
      "called all_reduce sum f32[500] there.\n";
  expect_first(diagnosed({{"logs/rank0.err", why}, {"logs/rank1.err", why}}), "calls.mismatch", {1},
               {"rank 1 is out of step in call 18"});
  expect_first(
      diagnosed({{"job.log",
                  "[launch] Why: rank 2 left in good order without group 'world' call 9, barrier, which ranks 0, "
                  "1 were in. It made a call less than the others, or they one more.\n"}}),
      "calls.missing", {2}, {"rank 2 left in good order"});
  const std::string slow =
      "[launch] SLOW: rank 2 (node17) is slow: it came 38 ms later than the others in each of the last 20 steps (41 % "
      "of "
      "a step; steps 121 to 140), 35 ms of it in data loading. More: trireme trace report runs/x\n";
  const Report slowly = diagnosed({{"logs/rank0.err", slow}, {"logs/rank1.err", slow}});
  expect_first(slowly, "rank.slow", {2}, {"rank 2 (node17) is slow", "35 ms of it in data loading"});
  EXPECT_EQ(slowly.findings.size(), 1U) << text_of(slowly);
  expect_first(
      diagnosed(
          {{"job.log",
            "21:54:25.498 W [comm] rank 0: group 'world' call 18, all_reduce avg f32[10] (bucket 0): the ranks are "
            "out of step: rank 0 in step 5, rank 1 in step 6; in the call before they were in one. Gradients of "
            "different steps are averaged. A rank has made a step without this group's calls, perhaps alone in "
            "no_sync(): all ranks must leave no_sync() for the same backward.\n"}}),
      "calls.steps", {}, {"rank 0 in step 5, rank 1 in step 6", "gradients of different steps were averaged"});
}

TEST(JobLogs, OutOfMemoryAndLeaksInOurOwnWords) {
  const std::string text =
      "[memory.step] rank 3/8: out of memory: 1.5 GiB were asked for by an operator of module '2' in forward, 347.9 "
      "MiB "
      "of 3.8 GiB were left (RLIMIT_AS).\n"
      "  held at that moment: parameters 7.1 MiB, activations 3.1 GiB; in all 3.1 GiB\n"
      "  largest modules: 0 3.1 GiB, 2 12.0 MiB\n"
      "  1. half the batch, with gradients added up over two: saves about 2.3 GiB (enough)\n"
      "  2. activations in bfloat16 (autocast): saves about 2.3 GiB (enough)\n"
      "  The allocator's words: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate "
      "memory: "
      "you tried to allocate 1638400000 bytes. Error code 12 (Cannot allocate memory)\n";
  const Report report = diagnosed({{"logs/rank3.err", text}});
  expect_first(report, "memory.step", {3},
               {"1.5 GiB were asked for by an operator of module '2' in forward", "activations 3.1 GiB"});
  EXPECT_THAT(report.findings[0].advice,
              HasSubstr("half the batch, with gradients added up over two: saves about 2.3"));
  EXPECT_EQ(report.findings.size(), 1U) << text_of(report);
  ASSERT_EQ(report.facts.memory.size(), 1U);
  EXPECT_EQ(report.facts.memory[0].ask_bytes, 1638400000);

  const auto leak = [](const char* rate, int step) {
    return str(
        "21:54:25.498 W [memory] memory grows by ", rate, " per step since step 2000 (6.6 MB by step ", step,
        "), allocated at Loop::loss() (prog+0x52ab4) through at::_ops::linear::call; probably a loss or an output "
        "that is kept with its graph: keep loss.item<float>() or tensor.detach() instead. File and line: "
        "addr2line -Cfie build/prog 0x52ab4\n");
  };
  const Report leaks = diagnosed({{"logs/rank0.err", leak("737.3 KB", 2010) + leak("800.1 KB", 2030)}});
  expect_first(leaks, "memory.leak", {0}, {"memory grows by 800.1 KB per step", "Loop::loss()"});
  EXPECT_THAT(leaks.findings[0].advice, HasSubstr("addr2line -Cfie build/prog 0x52ab4"));
  EXPECT_EQ(leaks.findings.size(), 1U) << text_of(leaks);
}

}  // namespace
}  // namespace trireme::diagnose
