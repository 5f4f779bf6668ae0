// Errors that say what is wrong to who knows the text: one row each. Texts of CUDA, PyTorch, NCCL, Gloo, Open MPI, UCX, the C library and the
// dynamic linker, as their sources and public reports print them.
#include <algorithm>
#include <array>

#include "base/str.h"
#include "diagnose/excerpt.h"
#include "diagnose/job/log_line.h"
#include "diagnose/nccl_log.h"
#include "diagnose/scan.h"

namespace trireme::diagnose {
namespace {

struct KnownError {
  std::string_view word;  ///< what the line must have
  std::string_view also;  ///< and this
  const char* code;
  double confidence;
  const char* cause;
  const char* advice;
  /// A value that is told behind the cause: what follows this marker, until one of these letters.
  std::string_view value_after = {};
  std::string_view value_until = {};
};

constexpr const char* kAsynchronous =
    "The stack that is printed is that of a later call. Run with CUDA_LAUNCH_BLOCKING=1, and under compute-sanitizer; "
    "look for Xid 13 or 31 in the kernel log. If only one GPU shows it, test that GPU (dcgmi diag -r 3).";
constexpr const char* kLockedMemory =
    "Mostly the limit of locked memory: 'ulimit -l' must say unlimited in the job (limits.conf; Slurm's "
    "PropagateResourceLimits; docker run --ulimit memlock=-1). For GPU memory the module nvidia_peermem must be "
    "loaded.";
constexpr const char* kPeerAccess =
    "The GPUs cannot read each other's memory (P2P): other PCIe roots, ACS or IOMMU on, a virtual machine, or GPUs "
    "without it. See 'nvidia-smi topo -p2p r'. NCCL goes another way with NCCL_P2P_DISABLE=1; where shared host memory "
    "fails (NCCL 2.24 and later): NCCL_CUMEM_HOST_ENABLE=0.";
constexpr const char* kLibraryMemory =
    "A library of CUDA needs memory beside PyTorch's allocator and found none: leave some hundred MiB free "
    "(torch.cuda.set_per_process_memory_fraction, a smaller batch).";
constexpr const char* kHostMemory =
    "See 'free -g', limits (ulimit -v, the cgroup's memory.max) and what each rank of this host holds; fewer "
    "data-loader "
    "workers, less pinned or offloaded memory.";
constexpr const char* kGlooPeer =
    "That rank ended or failed first: find its log. If none did, a firewall between the hosts closes connections.";

constexpr std::array kRows = {
    // ---- CUDA
    KnownError{"Assertion `", "block: [", "cuda.device_assert", 0.93, "a check inside a CUDA kernel failed",
               "Mostly an index out of range: a label or token that is negative or not below the number of classes, "
               "rows or tokens. The same batch on the CPU names the line; or CUDA_LAUNCH_BLOCKING=1.",
               "Assertion `", "`"},
    KnownError{"device-side assert triggered", "", "cuda.device_assert", 0.9, "a check inside a CUDA kernel failed",
               "Mostly an index out of range: a label or token that is negative or not below the number of classes, "
               "rows or tokens. The same batch on the CPU names the line; or CUDA_LAUNCH_BLOCKING=1."},
    KnownError{"illegal memory access was", "", "cuda.illegal_access", 0.9,
               "a CUDA kernel touched memory that is not its own (illegal memory access)", kAsynchronous},
    KnownError{"misaligned address", "CUDA", "cuda.illegal_access", 0.85, "a CUDA kernel used a misaligned address",
               kAsynchronous},
    KnownError{"unspecified launch failure", "", "cuda.launch_failure", 0.85, "a CUDA kernel failed while it ran",
               kAsynchronous},
    KnownError{"uncorrectable ECC error", "", "cuda.ecc", 0.95, "a GPU's memory has an error that ECC cannot correct",
               "Which GPU: the kernel log (Xid 48, 94, 95), nvidia-smi -q -d ECC,ROW_REMAPPER. Stop its jobs and reset "
               "it (nvidia-smi -r -i <GPU>); if it comes back, replace it."},
    KnownError{
        "invalid device ordinal", "", "cuda.no_such_device", 0.9, "a rank asked for a GPU that is not there",
        "More ranks on a host than GPUs, the global rank used in place of the local one, or CUDA_VISIBLE_DEVICES "
        "shows fewer: set_device(LOCAL_RANK)."},
    KnownError{
        "No CUDA GPUs are available", "", "cuda.no_device", 0.9, "the program sees no GPU",
        "See 'nvidia-smi -L' and CUDA_VISIBLE_DEVICES in the job; Slurm: --gres=gpu:N or --gpus-per-node; Docker: "
        "--gpus all."},
    KnownError{"no kernel image is available", "", "cuda.no_kernel_image", 0.95,
               "the program has no code for this GPU's architecture",
               "PyTorch or an extension was built for other GPUs: compare torch.cuda.get_arch_list() with the GPU's "
               "compute capability (nvidia-smi --query-gpu=compute_cap --format=csv); install a build for it."},
    KnownError{"system not yet initialized", "", "cuda.fabric_manager", 0.93,
               "the GPUs wait for the NVSwitch fabric to be set up (CUDA error 802)",
               "Hosts with NVSwitch need the fabric manager of exactly the driver's version: systemctl status "
               "nvidia-fabricmanager; systemctl enable --now nvidia-fabricmanager."},
    KnownError{"unsupported display driver", "cuda driver combination", "cuda.driver_mismatch", 0.93,
               "the NVIDIA driver's kernel module and its libraries are of two versions (CUDA error 803)",
               "The driver was updated under a running kernel, or a container brings its own libcuda.so: reboot, or "
               "remove that one."},
    KnownError{"forward compatibility was attempted", "", "cuda.compat_libraries", 0.93,
               "the container's CUDA compatibility libraries do not fit this GPU (CUDA error 804)",
               "They are for data centre GPUs only: take /usr/local/cuda/compat out of LD_LIBRARY_PATH, or update the "
               "host's driver."},
    KnownError{"driver on your system is too old", "", "cuda.driver_too_old", 0.95,
               "the NVIDIA driver is too old for this build of PyTorch",
               "Update the driver, or install a build for an older CUDA. 'nvidia-smi' says which CUDA it can do.",
               "found version ", ")"},
    KnownError{"CUDA driver version is insufficient", "", "cuda.driver_too_old", 0.95,
               "the NVIDIA driver is too old for this build's CUDA",
               "Update the driver, or install a build for an older CUDA. 'nvidia-smi' says which CUDA it can do."},
    KnownError{
        "devices are busy or unavailable", "", "cuda.busy", 0.9, "the GPU is held by another process",
        "Exclusive compute mode, or a MIG slice that is not yours: nvidia-smi -q -d COMPUTE; nvidia-smi -i <GPU> "
        "-c DEFAULT; leftovers of an earlier job: nvidia-smi."},
    KnownError{"CUBLAS_STATUS_ALLOC_FAILED", "", "memory.library", 0.85, "cuBLAS found no memory on the GPU",
               kLibraryMemory},
    KnownError{"CUBLAS_STATUS_NOT_INITIALIZED", "", "memory.library", 0.6, "cuBLAS could not start", kLibraryMemory},
    KnownError{"CUDNN_STATUS_ALLOC_FAILED", "", "memory.library", 0.85, "cuDNN found no memory on the GPU",
               kLibraryMemory},
    KnownError{"CUDNN_STATUS_NOT_INITIALIZED", "", "memory.library", 0.6, "cuDNN could not start", kLibraryMemory},
    KnownError{"peer access is not supported", "", "cuda.peer_access", 0.9,
               "two GPUs cannot reach each other's memory, and were asked to", kPeerAccess},
    KnownError{"failed to open CUDA IPC handle", "", "cuda.peer_access", 0.7, "NCCL could not map a peer GPU's memory",
               kPeerAccess},
    KnownError{"peer mapping resources exhausted", "", "cuda.peer_mappings", 0.93,
               "one process maps more peer GPUs than the hardware allows (eight without NVSwitch)",
               "Start one process for each GPU, or use at most eight; NCCL_P2P_LEVEL=PHB (or NCCL_P2P_DISABLE=1) maps "
               "fewer."},
    // ---- NCCL
    KnownError{"Call to ibv_modify_qp", "imed out", "nccl.ib_connect", 0.88,
               "InfiniBand or RoCE: two adapters could not be joined (ibv_modify_qp timed out)",
               "The addresses were exchanged over TCP, but these two adapters do not reach each other: separate rails "
               "(NCCL_CROSS_NIC=0), a wrong GID (NCCL_IB_GID_INDEX; show_gids), a VLAN, or no route for RoCE. Test the "
               "pair with ib_write_bw; name the good ones: NCCL_IB_HCA=mlx5_0,mlx5_1.",
               "on dev ", ", "},
    KnownError{
        "Call to ibv_modify_qp", "unreachable", "nccl.ib_connect", 0.88,
        "InfiniBand or RoCE: no route from one adapter to the other (ibv_modify_qp)",
        "RoCE needs an IP address and a route on each adapter, and the GID of RoCE v2 with IPv4: show_gids, then "
        "NCCL_IB_GID_INDEX. Or name adapters of one network: NCCL_IB_HCA=mlx5_0,mlx5_1."},
    KnownError{"Call to ibv_modify_qp", "No such device", "nccl.ib_connect", 0.88,
               "InfiniBand or RoCE: the GID that NCCL uses is not there (ibv_modify_qp)",
               "In a container the adapter's interface is missing (host network needed), or NCCL_IB_GID_INDEX names an "
               "empty entry: show_gids."},
    KnownError{"Call to ibv_modify_qp", "", "nccl.ib_connect", 0.8,
               "InfiniBand or RoCE: a connection between two adapters could not be set up (ibv_modify_qp)",
               "Unlike MTU, GID or link layer at the two ends: ibv_devinfo on both; NCCL_IB_GID_INDEX, NCCL_IB_HCA. "
               "NCCL_IB_DISABLE=1 goes over TCP instead, to tell whether that is it."},
    KnownError{"Call to ibv_reg_mr", "failed", "nccl.memory_registration", 0.88,
               "a network adapter could not register memory (ibv_reg_mr)", kLockedMemory},
    KnownError{"Call to ibv_create_", "annot allocate memory", "nccl.memory_registration", 0.88,
               "a network adapter could not get locked memory", kLockedMemory},
    KnownError{
        "NET/IB : Unable to open device", "", "nccl.ib_open", 0.85, "NCCL sees a network adapter and may not open it",
        "In a container: --device=/dev/infiniband and --cap-add=IPC_LOCK; else permissions of /dev/infiniband/*.",
        "open device ", " "},
    KnownError{
        "port error", "NET/IB", "nccl.ib_port_error", 0.92, "a network port went down while the job ran",
        "Cable, transceiver or switch port: ibstat, 'trireme doctor', the kernel log (mlx5). NCCL_IB_TIMEOUT and "
        "NCCL_IB_RETRY_CNT ride out short breaks.",
        "NET/IB : ", " "},
    KnownError{
        "mismatch in rank count from procs", "", "nccl.bootstrap", 0.93,
        "ranks came to one NCCL communicator with unlike world sizes",
        "Two jobs share a master address and port, or hosts were started with unlike --nnodes or --nproc-per-node."},
    KnownError{"checked in twice", "", "nccl.bootstrap", 0.93, "two processes came with the same rank",
               "Two jobs share a master address and port, or two hosts were started with the same --node-rank."},
    KnownError{"Mismatched NCCL version", "", "nccl.version_mismatch", 0.95, "ranks use unlike versions of NCCL",
               "Compare 'NCCL version' in each log: another environment or container on one host."},
    KnownError{"Failed to find CUDA library libcuda", "", "cuda.no_driver_library", 0.85,
               "NCCL cannot find the driver's library libcuda.so",
               "In a container: docker run --gpus all; under WSL: LD_LIBRARY_PATH=/usr/lib/wsl/lib; else install the "
               "driver."},
    KnownError{
        "NCCL error in: ", "", "nccl.error", 0.3, "NCCL failed",
        "Run with NCCL_DEBUG=INFO; the first NCCL WARN line, or what follows 'Last error:', says what went wrong.",
        ", ", "(,"},
    // ---- Gloo
    KnownError{"Connection closed by peer [", "", "gloo.peer_gone", 0.4, "Gloo lost the connection to another rank",
               kGlooPeer, "by peer [", "]"},
    KnownError{"Connection reset by peer", "gloo", "gloo.peer_gone", 0.4, "Gloo lost the connection to another rank",
               kGlooPeer, "error [", "]"},
    KnownError{"Broken pipe", "gloo", "gloo.peer_gone", 0.4, "Gloo lost the connection to another rank", kGlooPeer},
    KnownError{
        "Timed out waiting", "gloo", "gloo.timeout", 0.6,
        "a rank waited in a call of Gloo until its time-out: another did not come",
        "Gloo does not say which: look for the rank whose log has no such line, take stacks (py-spy dump), or put "
        "torch.distributed.monitored_barrier() before that call, which names it."},
    KnownError{
        "connectFullMesh failed", "", "gloo.connect", 0.8, "Gloo's ranks could not connect to each other",
        "Each needs an address that the others reach: GLOO_SOCKET_IFNAME=eth0 (the one that joins the hosts), no "
        "firewall between them."},
    KnownError{"Unable to find address for", "", "gloo.no_interface", 0.95,
               "Gloo was told to use an interface that this host does not have, or that has no address",
               "Compare GLOO_SOCKET_IFNAME with 'ip -br addr' on that host.", "address for: ", " "},
    KnownError{"Unable to resolve hostname to a (local) address", "", "gloo.hostname", 0.93,
               "this host's own name does not resolve to an address of its own",
               "See 'getent hosts $(hostname)': put the name into /etc/hosts, or set GLOO_SOCKET_IFNAME."},
    // ---- c10d and DDP
    KnownError{
        "RendezvousConnectionError", "", "rendezvous.no_answer", 0.8, "the rendezvous store could not be reached",
        "The address of --rdzv-endpoint must be that of a host where torchrun runs, reachable from the others, and "
        "the port free there and open in the firewall."},
    KnownError{"RendezvousTimeoutError", "", "rendezvous.no_answer", 0.8,
               "not all hosts came to the rendezvous in time",
               "Start the same --nnodes, --rdzv-id and --rdzv-endpoint on every host; a host that starts later needs "
               "--rdzv-conf join_timeout=SECONDS."},
    KnownError{
        "appears not to match", "param", "ddp.model_differs", 0.9, "the model is not the same on all ranks",
        "Ranks built unlike models (a branch on the rank, another seed or file), or one froze other parameters."},
    KnownError{"No backend type associated with device type", "", "c10d.no_backend", 0.93,
               "a tensor lies on a device for which the group has no backend",
               "init_process_group(\"cpu:gloo,cuda:nccl\"), or move the tensor to the GPU first.", "device type ", " "},
    // ---- MPI and UCX
    KnownError{
        "not enough slots available", "", "mpi.slots", 0.95, "mpirun was asked for more ranks than it may start",
        "Give slots in the hostfile (host slots=8) or ask the batch system for more tasks; --map-by :OVERSUBSCRIBE "
        "(--oversubscribe) starts more than there are cores."},
    KnownError{"unable to reliably start", "", "mpi.daemon", 0.85, "mpirun could not start its daemon on a host",
               "ssh to it must work without a password, and MPI be found there: PATH and LD_LIBRARY_PATH in a "
               "non-interactive shell; mpirun --prefix."},
    KnownError{"lost communication with a remote daemon", "", "mpi.daemon", 0.85, "mpirun lost a host",
               "The host died, or its network did: see its kernel log."},
    KnownError{"] Signal: ", "", "rank.crashed", 0.8, "a process crashed",
               "A crash in native code: the lines below it are its stack; the kernel log names the library.",
               "Signal: ", "("},
    KnownError{
        "Transport retry count exceeded", "", "ucx.unreachable", 0.9,
        "UCX: a peer did not answer over InfiniBand or RoCE",
        "The two adapters do not reach each other, or a port went down: ibstat on both, ib_write_bw between them; "
        "UCX_NET_DEVICES=mlx5_0:1 names the good one.",
        "exceeded on ", " "},
    // ---- the host
    KnownError{"Too many open files", "", "host.open_files", 0.9, "a process may not open more files",
               "Raise the limit: ulimit -n 65535 (limits.conf). Data loaders hold one descriptor for each tensor: "
               "torch.multiprocessing.set_sharing_strategy('file_system')."},
    KnownError{
        "Disk quota exceeded", "", "host.quota", 0.93, "a disk quota is used up",
        "See 'quota -s' or 'lfs quota' for the file system of the path in that line (checkpoints, caches in HOME)."},
    KnownError{"Stale file handle", "", "host.stale_file", 0.85,
               "a file on a network file system vanished under the job",
               "It was replaced or removed on the server, or the server restarted: mount again, start again."},
    KnownError{"Read-only file system", "", "host.read_only", 0.85, "a file system may only be read",
               "Mounted so (containers), or the kernel made it so after an error of the disk: see the kernel log."},
    KnownError{"Errno 5] Input/output error", "", "host.io_error", 0.85, "a disk or network file system failed",
               "See the kernel log of that host (I/O error, nfs, lustre)."},
    KnownError{"while loading shared libraries", "", "program.library_missing", 0.95,
               "the program cannot start: a shared library is missing",
               "ldd PROGRAM on that host; LD_LIBRARY_PATH must reach the ranks too (mpirun -x LD_LIBRARY_PATH).",
               "shared libraries: ", ":"},
    KnownError{"version `GLIBC", "not found", "program.old_host", 0.95,
               "the program was built on a newer system than it runs on",
               "Build it on the oldest host, or in a container that all use.", "version `", "'"},
    KnownError{"allocate memory in static TLS block", "", "program.static_tls", 0.9,
               "a library was loaded too late for its thread-local memory",
               "Load it first: export LD_PRELOAD=/path/of/that/library (mostly libgomp.so)."},
    KnownError{"Thread creation failed", "", "host.threads", 0.9, "a process may not start more threads",
               "Limits of threads: ulimit -u, the cgroup's pids.max (docker run --pids-limit=-1); and "
               "OMP_NUM_THREADS=1 for each rank."},
    KnownError{"can't start new thread", "", "host.threads", 0.9, "a process may not start more threads",
               "Limits of threads: ulimit -u, the cgroup's pids.max (docker run --pids-limit=-1); and "
               "OMP_NUM_THREADS=1 for each rank."},
    KnownError{"emporary failure in name resolution", "", "host.name_resolution", 0.85,
               "a host's name cannot be resolved",
               "getent hosts NAME on that host: DNS, /etc/hosts; or give addresses in place of names (MASTER_ADDR)."},
    KnownError{"ame or service not known", "", "host.name_resolution", 0.85, "a host's name cannot be resolved",
               "getent hosts NAME on that host: DNS, /etc/hosts; or give addresses in place of names (MASTER_ADDR)."},
    KnownError{"Host key verification failed", "", "host.ssh", 0.9, "ssh to a host fails: its key is not known",
               "ssh-keyscan HOST >> ~/.ssh/known_hosts, or connect once by hand."},
    KnownError{"Permission denied (publickey", "", "host.ssh", 0.9, "ssh to a host fails: no key is accepted",
               "ssh-copy-id HOST; the launcher cannot type a password."},
    KnownError{"std::bad_alloc", "", "memory.host", 0.8, "the host's memory is full, or a size is nonsense",
               kHostMemory},
    KnownError{"Unable to allocate", "array with shape", "memory.host", 0.9, "the host's memory is full", kHostMemory,
               "Unable to allocate ", "\n"},
    KnownError{"Errno 12] Cannot allocate memory", "", "memory.host", 0.85, "the host's memory is full", kHostMemory},
    KnownError{
        "OOMKilled", "", "host.oom_killed", 0.93, "Kubernetes killed a container for its memory",
        "Raise resources.limits.memory of the pod, or hold less of the host's memory: fewer data-loader workers, "
        "smaller prefetch. A larger /dev/shm (emptyDir, medium: Memory) counts towards that limit."},
    KnownError{
        "node running low on memory", "", "host.oom_killed", 0.9, "Ray killed a task because the host's memory ran out",
        "Fewer workers on that host, fewer objects in its store; RAY_memory_usage_threshold only moves the limit."},
    KnownError{
        "RESOURCE_EXHAUSTED: Out of memory", "", "memory.full", 0.85, "a device is out of memory",
        "A smaller batch, recompute, or more devices; XLA_PYTHON_CLIENT_MEM_FRACTION where others share the card.",
        "trying to allocate ", "."},
    KnownError{"Fatal Python error: ", "", "rank.crashed", 0.85, "a Python process crashed in native code",
               "The stack below it says where; an extension that was built for another PyTorch is a frequent cause.",
               "Fatal Python error: ", "\n"},
    KnownError{"Segmentation fault (core dumped)", "", "rank.crashed", 0.8, "a process crashed: SIGSEGV",
               "gdb PROGRAM core, then bt; or run it under 'trireme run', which keeps the stack."},
    KnownError{"Bus error (core dumped)", "", "rank.crashed", 0.85, "a process crashed: SIGBUS",
               "Often a full /dev/shm (df -h /dev/shm) or a mapped file that was cut short."},
    KnownError{"Illegal instruction", "core dumped", "rank.crashed", 0.85, "a process crashed: SIGILL",
               "The program was built for another CPU (-march=native on a newer one). Build it on, or for, this one."},
    KnownError{"cannot open shared object file", "ImportError", "program.library_missing", 0.93,
               "a Python module cannot be loaded: a shared library is missing",
               "Of CUDA mostly, of another version than is installed: pip list | grep -i nvidia; ldd of that module.",
               "ImportError: ", ":"},
    KnownError{
        "undefined symbol: ", "", "program.symbol_missing", 0.93, "a module was built for another version of a library",
        "An extension built for another PyTorch (c10, at, torch in the name), or two versions of a library of CUDA: "
        "build it again for the one that is installed.",
        "undefined symbol: ", " \n"},
    // ---- values
    KnownError{
        "returned nan values in its", "", "values.nan", 0.9, "a gradient became NaN",
        "The operation that made it is named; look at its input in forward: a division by 0, log or sqrt of 0, a "
        "mask of -inf over a whole row, f16 without a loss scale.",
        "Function '", "'"},
    KnownError{
        "oss is nan", "", "values.nan", 0.7, "the loss became NaN",
        "Lower the learning rate or clip gradients; find the operation: torch.autograd.set_detect_anomaly(True), or "
        "Trireme's check_finite."},
};

bool holds(const KnownError& row, std::string_view text) {
  return has(text, row.word) && (row.also.empty() || has(text, row.also));
}

void take(const LogLine& line, Story& story) {
  const auto* row =
      std::find_if(kRows.begin(), kRows.end(), [&](const KnownError& one) { return holds(one, line.text); });
  if (row == kRows.end()) return;
  const auto nccl = parse_nccl_line(line.text);
  if (nccl && nccl->level != "WARN") return;
  Finding finding = told_by(line, row->code, Severity::kError, row->confidence);
  finding.cause = row->cause;
  if (!row->value_after.empty()) {
    const std::string_view rest = after(line.text, row->value_after).value_or("");
    const std::string value = excerpt(trimmed(until(rest, row->value_until)), 160);
    if (!value.empty()) finding.cause += ": " + value;
  }
  finding.advice = row->advice;
  if (nccl) finding.host = excerpt(nccl->host, 100);
  story.add(std::move(finding));
}

}  // namespace

std::vector<LogRule> known_error_rules() {
  std::vector<LogRule> rules;
  for (const KnownError& row : kRows) {
    const bool there =
        std::any_of(rules.begin(), rules.end(), [&row](const LogRule& rule) { return rule.word == row.word; });
    if (!there) rules.push_back({row.word, &take});
  }
  return rules;
}

}  // namespace trireme::diagnose
