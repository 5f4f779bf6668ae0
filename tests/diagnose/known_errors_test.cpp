// Oracle: by construction. Each text is what the named program prints for a fault that is known; the answer is that fault.
#include "diagnose/job_fixture.h"

namespace trireme::diagnose {
namespace {

using testing::HasSubstr;

struct Told {
  const char* text;
  const char* code;
  std::vector<int> ranks;
  const char* words;
};

class KnownErrors : public testing::TestWithParam<Told> {};

TEST_P(KnownErrors, AreTheOnlyFinding) {
  const Report report = diagnosed({{"a.log", str("step 1\n", GetParam().text, "\n")}});
  expect_first(report, GetParam().code, GetParam().ranks, {GetParam().words});
  EXPECT_EQ(report.findings.size(), 1U) << text_of(report);
}

INSTANTIATE_TEST_SUITE_P(
    Cuda, KnownErrors,
    testing::Values(
        Told{"/aten/src/ATen/native/cuda/Indexing.cu:1236: indexSelectSmallIndex: block: [12,0,0], thread: [35,0,0] "
             "Assertion `srcIndex < srcSelectDimSize` failed.\n"
             "/aten/src/ATen/native/cuda/Indexing.cu:1236: indexSelectSmallIndex: block: [12,0,0], thread: [36,0,0] "
             "Assertion `srcIndex < srcSelectDimSize` failed.\n"
             "RuntimeError: CUDA error: device-side assert triggered",
             "cuda.device_assert",
             {},
             "a check inside a CUDA kernel failed: srcIndex < srcSelectDimSize"},
        Told{"[rank4]: RuntimeError: CUDA error: invalid device ordinal", "cuda.no_such_device", {4}, "not there"},
        Told{"RuntimeError: CUDA error: no kernel image is available for execution on the device",
             "cuda.no_kernel_image",
             {},
             "architecture"},
        Told{"UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet "
             "initialized (Triggered internally at ../c10/cuda/CUDAFunctions.cpp:109.)",
             "cuda.fabric_manager",
             {},
             "802"},
        Told{"RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update",
             "cuda.driver_too_old",
             {},
             ": 11040"},
        Told{"RuntimeError: CUDA error: uncorrectable ECC error encountered", "cuda.ecc", {}, "ECC"},
        Told{"RuntimeError: No CUDA GPUs are available", "cuda.no_device", {}, "sees no GPU"},
        Told{"[rank2]: RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
             "memory.library",
             {2},
             "cuBLAS"},
        Told{"RuntimeError: CUDA error: an illegal memory access was encountered",
             "cuda.illegal_access",
             {},
             "not its own"}));

INSTANTIATE_TEST_SUITE_P(
    Nccl, KnownErrors,
    testing::Values(
        Told{
            "[2026-03-13 22:26:02] host-01:1234:1240 [5] ibvwrap.c:262 NCCL WARN Call to ibv_modify_qp failed with 110 "
            "Connection timed out, on dev mlx5_4:1, curr state INIT, next state RTR, local GID index 3",
            "nccl.ib_connect",
            {},
            "timed out): mlx5_4:1"},
        Told{"n1:40:60 [0] ibvwrap.c:160 NCCL WARN Call to ibv_modify_qp failed with error Connection timed out",
             "nccl.ib_connect",
             {},
             "timed out"},
        Told{
            "n1:40:60 [0] misc/ibvwrap.cc:187 NCCL WARN Call to ibv_modify_qp failed with error Network is unreachable",
            "nccl.ib_connect",
            {},
            "no route"},
        Told{"n1:40:60 [0] misc/ibvwrap.cc:187 NCCL WARN Call to ibv_modify_qp failed with error No such device",
             "nccl.ib_connect",
             {},
             "GID"},
        Told{"[2025-09-09 23:51:24] 9b40:774:854 [0] transport/shm.cc:590 NCCL WARN Cuda failure 217 'peer access is "
             "not "
             "supported between these two devices'",
             "cuda.peer_access",
             {},
             "each other's memory"},
        Told{"(pid=909608) z-pc:909608:910337 [0] transport/p2p.cc:238 NCCL WARN failed to open CUDA IPC handle : 217 "
             "peer access is not supported between these two devices",
             "cuda.peer_access",
             {},
             "each other's memory"},
        Told{"[2025-06-20 02:14:03] u:33207:33207 [0] allocator.cc:79 NCCL WARN Cuda failure 711 'peer mapping "
             "resources "
             "exhausted'",
             "cuda.peer_mappings",
             {},
             "more peer GPUs"},
        Told{"[3] include/shm.h:48 NCCL WARN Error while creating shared memory segment nccl-shm-recv-1462-1-2-3 (size "
             "9637888)",
             "nccl.shared_memory",
             {},
             "/dev/shm"},
        Told{"n1:2143:2561 [1] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device",
             "nccl.shared_memory",
             {},
             "/dev/shm"},
        Told{"[2026-04-22 21:34:20] n1:202016:202235 [0] misc/shmutils.cc:132 NCCL WARN Error while creating shared "
             "memory segment /dev/shm/nccl-WU88OE (size 9637888), error: No space left on device (28)",
             "nccl.shared_memory",
             {},
             "/dev/shm"},
        Told{"n1:1:2 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_3:1 Got async event : port error",
             "nccl.ib_port_error",
             {},
             ": mlx5_3:1"},
        Told{"n1:1:2 [0] bootstrap.cc:110 NCCL WARN Bootstrap Root : mismatch in rank count from procs 4 : 2",
             "nccl.bootstrap",
             {},
             "world sizes"},
        Told{"n1:1:2 [0] misc/socket.cc:400 NCCL WARN Call to socket failed : Too many open files",
             "host.open_files",
             {},
             "open more files"},
        Told{"n1:1:2 [0] some/new.cc:12 NCCL WARN Something that nobody has seen before",
             "nccl.warning",
             {},
             "NCCL warns: Something that nobody has seen before"},
        // What c10d repeats of it, without NCCL's front.
        Told{"[rank5]: torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:1970, unhandled "
             "system "
             "error (run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5\n"
             "[rank5]: Last error:\n[rank5]: Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
             "nccl.memory_registration",
             {5},
             "could not register memory"},
        Told{"torch.distributed.DistBackendError: NCCL error in: ../NCCLUtils.hpp:268, invalid usage (run with "
             "NCCL_DEBUG=WARN for details), NCCL version 2.26.2\nLast error:\n"
             "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 19000",
             "nccl.duplicate_gpu",
             {0, 1},
             "bus id 19000"},
        Told{"[rank5]: torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:1970, internal error "
             "(run with NCCL_DEBUG=INFO for details)",
             "nccl.error",
             {5},
             "NCCL failed: internal error"}));

INSTANTIATE_TEST_SUITE_P(
    GlooAndC10d, KnownErrors,
    testing::Values(
        Told{"RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
             "[127.0.0.1]:10895",
             "gloo.peer_gone",
             {},
             ": 127.0.0.1"},
        Told{"[rank2]: RuntimeError: [../gloo/transport/tcp/pair.cc:589] Read error [192.168.70.92]:25266: Connection "
             "reset by peer",
             "gloo.peer_gone",
             {2},
             ": 192.168.70.92"},
        Told{"[rank0]: RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv "
             "operation to complete",
             "gloo.timeout",
             {0},
             "another did not come"},
        Told{
            "RuntimeError: [enforce fail at ../gloo/transport/tcp/device.cc:83] ifa != nullptr. Unable to find address "
            "for: eth0",
            "gloo.no_interface",
            {},
            ": eth0"},
        Told{"RuntimeError: [enforce fail at /gloo/transport/tcp/device.cc:208] rp != nullptr. Unable to resolve "
             "hostname to a (local) address",
             "gloo.hostname",
             {},
             "own name"},
        Told{"torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError", "rendezvous.no_answer", {}, "in time"},
        // The rank of the job stands in c10d's front, the rank of the group in the text.
        Told{"2025-02-18 12:54 [rank13]:[E218 04:54:22.864467604 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught "
             "collective operation timeout: WorkNCCL(SeqNum=216, OpType=ALLTOALL_BASE, NumelIn=1379328, "
             "NumelOut=1572864, Timeout(ms)=600000) ran for 600045 milliseconds before timing out.",
             "calls.timeout",
             {},
             "rank 13 waits in all_to_all"},
        // Calls that were issued behind the one that hangs time out as well.
        Told{"[E ProcessGroupNCCL.cpp:458] [Rank 0] Watchdog caught collective operation timeout: "
             "WorkNCCL(SeqNum=96120, "
             "OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 25624887 milliseconds before timing out.\n"
             "[E ProcessGroupNCCL.cpp:458] [Rank 0] Watchdog caught collective operation timeout: "
             "WorkNCCL(SeqNum=96117, "
             "OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 25625613 milliseconds before timing out.",
             "calls.timeout",
             {},
             "rank 0 waits in all_reduce, call 96117"},
        Told{"Parameters which did not receive grad for rank 3: enc.bias, enc.weight\n"
             "Parameter indices which did not receive grad for rank 3: 282 283",
             "ddp.unused_parameters",
             {3},
             "enc.bias, enc.weight"}));

INSTANTIATE_TEST_SUITE_P(
    HostsAndLaunchers, KnownErrors,
    testing::Values(
        Told{"There are not enough slots available in the system to satisfy the 8\nslots that were requested",
             "mpi.slots",
             {},
             "more ranks"},
        Told{"MPI_ABORT was invoked on rank 5 in communicator MPI_COMM_WORLD\nwith errorcode 1.",
             "rank.aborted",
             {5},
             "rank 5 called MPI_Abort"},
        Told{"[node7:12345] *** Process received signal ***\n[node7:12345] Signal: Segmentation fault (11)",
             "rank.crashed",
             {},
             "Segmentation fault"},
        Told{"[1700000000.123] [node1:4242 :0] ib_mlx5_log.c:177 UCX ERROR Transport retry count exceeded on "
             "mlx5_0:1/IB "
             "(synd 0x15 vend 0x81 hw_synd 0/0)",
             "ucx.unreachable",
             {},
             ": mlx5_0:1/IB"},
        Told{"[2023-04-21 11:20:33,460] [ERROR] [launch.py:434:sigkill_handler] ['/usr/bin/python', '-u', 'main.py', "
             "'--local_rank=7'] exits with return code = -9",
             "rank.killed",
             {},
             "local rank 7"},
        Told{"./train: error while loading shared libraries: libtorch_cpu.so: cannot open shared object file: No such "
             "file or directory",
             "program.library_missing",
             {},
             ": libtorch_cpu.so"},
        Told{"./train: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by ./train)",
             "program.old_host",
             {},
             ": GLIBCXX_3.4.32"},
        Told{"Last State: Terminated Reason: OOMKilled Exit Code: 137", "host.oom_killed", {}, "Kubernetes"},
        Told{"numpy.core._exceptions._ArrayMemoryError: Unable to allocate 37.3 GiB for an array with shape (100000, "
             "50000) and data type float64",
             "memory.host",
             {},
             "37.3 GiB"},
        Told{"Fatal Python error: Segmentation fault", "rank.crashed", {}, "Segmentation fault"},
        Told{"ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory",
             "program.library_missing",
             {},
             "libcudart.so.11.0"},
        Told{"ImportError: /site-packages/ext.so: undefined symbol: _ZN3c106detail14torchCheckFail",
             "program.symbol_missing",
             {},
             "_ZN3c106detail14torchCheckFail"},
        Told{"OSError: [Errno 24] Too many open files", "host.open_files", {}, "open more files"},
        Told{"slurmstepd: error: Detected 1 oom_kill event in StepId=113.0. Some of the step tasks have been OOM "
             "Killed.\n"
             "srun: error: n6156: task 0: Out Of Memory\nsrun: Terminating job step 113.0\n"
             "slurmstepd: error: *** STEP 113.0 ON n6156 CANCELLED AT 2021-10-27T19:35:36 ***",
             "host.oom_killed",
             {0},
             "rank 0 on n6156 was killed by Slurm because memory ran out"},
        Told{"srun: error: n18: task 289: Bus error\nslurmstepd: error: *** STEP 34.0 ON n04 CANCELLED AT "
             "2021-10-27T20:22:22 ***",
             "rank.crashed",
             {289},
             "SIGBUS"}));

TEST(KnownErrorsOfRanks, TheRankKeepsItsPlaceAndGetsTheAdvice) {
  const Report report = diagnosed({{"a.log",
                                    "[rank1]: Traceback (most recent call last):\n"
                                    "[rank1]:   File \"/w/train.py\", line 51, in step\n"
                                    "[rank1]:     loss.backward()\n"
                                    "[rank1]: RuntimeError: CUDA error: device-side assert triggered\n"}});
  expect_first(report, "cuda.device_assert", {1}, {"rank 1 failed: RuntimeError: CUDA error", "/w/train.py:51"});
  EXPECT_THAT(report.findings[0].advice, HasSubstr("index out of range"));
  EXPECT_EQ(report.findings.size(), 1U) << text_of(report);
}

TEST(KnownErrorsOfRanks, WhatNcclOnlyInformsOfIsNoError) {
  const Report report = diagnosed({{"a.log",
                                    "n1:40:60 [0] NCCL INFO Call to connect returned Connection refused, retrying\n"
                                    "n1:40:60 [0] NCCL INFO NET/IB : port error counter 0\n"
                                    "[rank0]:[W1119 14:22:01.123 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process "
                                    "group has NOT been destroyed before we destruct ProcessGroupNCCL.\n"
                                    "epoch 3 loss 1.2\n"}});
  EXPECT_TRUE(report.findings.empty()) << text_of(report);
}

}  // namespace
}  // namespace trireme::diagnose
