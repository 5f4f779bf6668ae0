// What NCCL's WARN lines (2.8 to 2.30) say of failures. Its network and versions are told by nccl_network.cpp from the same lines.
#include <algorithm>

#include "base/str.h"
#include "diagnose/excerpt.h"
#include "diagnose/job/log_line.h"
#include "diagnose/nccl_log.h"
#include "diagnose/scan.h"

namespace trireme::diagnose {
namespace {

Finding make(const LogLine& line, const NcclLine& nccl, const char* code, double confidence, std::string cause,
             std::string advice) {
  Finding finding = told_by(line, code, Severity::kError, confidence);
  finding.cause = std::move(cause);
  finding.advice = std::move(advice);
  finding.host = excerpt(nccl.host, 100);
  return finding;
}

// "Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000": each rank tells it of itself and one other, so the ranks of all lines of a
// device are put together. An exception repeats it behind "Last error:", without NCCL's front.
void duplicate_gpu(const LogLine& line, Story& story) {
  const NcclLine nccl = parse_nccl_line(line.text).value_or(NcclLine{});
  const auto first = after(after(line.text, "Duplicate GPU detected").value_or(""), ": rank ");
  const auto second = first ? after(*first, "and rank ") : std::nullopt;
  const auto device = second ? after(*second, "CUDA device ") : std::nullopt;
  if (!device) return;
  const std::string name = excerpt(until(*device, " "), 40);
  Finding finding = make(line, nccl, "nccl.duplicate_gpu", 0.98, str("several ranks use one GPU (bus id ", name, ")"),
                         "Each rank needs its own: call set_device(local_rank) before anything touches CUDA, start no "
                         "more ranks on a host than it has GPUs, and "
                         "look at CUDA_VISIBLE_DEVICES (under mpirun and srun the local rank is "
                         "OMPI_COMM_WORLD_LOCAL_RANK, SLURM_LOCALID).");
  finding.ranks = {leading_number<int>(*first).value_or(0), leading_number<int>(*second).value_or(0)};
  std::sort(finding.ranks.begin(), finding.ranks.end());
  story.add(std::move(finding));
}

/// ibv_wc_status, libibverbs/verbs.h
const char* completion_word(int64_t error) {
  switch (error) {
    case 1:
      return "local length error";
    case 4:
      return "local protection error";
    case 5:
      return "work request flushed: the connection was in error already";
    case 9:
      return "remote invalid request";
    case 10:
      return "remote access error";
    case 11:
      return "remote operation error";
    case 12:
      return "retry count exceeded: the peer did not answer";
    case 13:
      return "receiver not ready: retries exceeded";
    default:
      return "see ibv_wc_status";
  }
}

// "NET/IB : Got completion from peer 192.0.2.5<33092> with error 12, opcode 0, len 0, vendor err 129 (Recv)"; 2.18 and later: "with status=12"
void completion(const LogLine& line, const NcclLine& nccl, Story& story) {
  auto error = after(nccl.text, "with error ");
  if (!error) error = after(nccl.text, "status=");
  const int64_t code = leading_number(error.value_or("")).value_or(0);
  const std::string peer = excerpt(until(after(nccl.text, "from peer ").value_or(""), "< "), 60);
  Finding finding = make(
      line, nccl, code == 12 ? "nccl.ib_unreachable" : "nccl.ib_completion", code == 5 ? 0.6 : 0.9,
      str("InfiniBand or RoCE transfer failed", peer.empty() ? "" : " with peer " + peer, ": error ", code, ", ",
          completion_word(code)),
      code == 12
          ? "The peer is reachable over TCP (else NCCL had not come so far), but not over this adapter: a port that is "
            "down or of another "
            "fabric, RoCE next to InfiniBand, a wrong GID (NCCL_IB_GID_INDEX), a full or broken cable. Test with "
            "ib_write_bw between the two "
            "hosts; name the good adapters: NCCL_IB_HCA=mlx5_0,mlx5_1; NCCL_IB_TIMEOUT=22 only helps a busy fabric."
          : "Look at the first such line: later ones follow from it. Check the ports' error counters (perfquery, "
            "'trireme doctor').");
  story.add(std::move(finding));
}

void connection(const LogLine& line, const NcclLine& nccl, Story& story) {
  const bool refused = has(nccl.text, "Connection refused");
  const bool route = has(nccl.text, "No route to host") || has(nccl.text, "Network is unreachable");
  const bool closed = has(nccl.text, "Connection closed by remote peer") || has(nccl.text, "Connection reset by peer");
  // A peer that went away is a consequence of its death, which is told elsewhere.
  Finding finding = make(
      line, nccl,
      closed  ? "nccl.peer_gone"
      : route ? "nccl.no_route"
              : "nccl.connect",
      closed ? 0.4 : 0.75,
      closed    ? str("NCCL lost the connection to another rank: ", excerpt(nccl.text, 160))
      : route   ? str("NCCL found no route to another host: ", excerpt(nccl.text, 160))
      : refused ? str("another rank did not listen any more: ", excerpt(nccl.text, 160))
                : str("NCCL could not connect: ", excerpt(nccl.text, 160)),
      closed || refused ? "That rank ended or failed first: find its log. If none did, a firewall between the hosts "
                          "closes connections."
                        : "NCCL chose an interface that the other host cannot reach (docker0, lo, a second network), "
                          "or a firewall blocks ports: "
                          "export NCCL_SOCKET_IFNAME=eth0, the one that joins the hosts; open the ports between them.");
  story.add(std::move(finding));
}

void shared_memory(const LogLine& line, const NcclLine& nccl, Story& story) {
  story.add(make(line, nccl, "nccl.shared_memory", 0.95,
                 "NCCL could not get shared memory: /dev/shm is too small or full",
                 "See 'df -h /dev/shm' and leftovers in it (ls /dev/shm/nccl-*). In a container: docker run "
                 "--shm-size=1g (or --ipc=host)."));
}

void truncated(const LogLine& line, const NcclLine& nccl, Story& story) {
  story.add(make(line, nccl, "nccl.message_truncated", 0.85,
                 str("ranks disagree on a message of NCCL: ", excerpt(nccl.text, 160)),
                 "Unlike versions of NCCL on the ranks, or ranks that called different collectives or sizes. Compare "
                 "'NCCL version' in each log, then the calls."));
}

void no_interface(const LogLine& line, const NcclLine& nccl, Story& story) {
  story.add(make(line, nccl, "nccl.no_interface", 0.95, "NCCL found no network interface that it may use",
                 "NCCL_SOCKET_IFNAME names one that this host does not have: compare with 'ip -br addr'."));
}

void cuda_failure(const LogLine& line, const NcclLine& nccl, Story& story) {
  const bool memory = has(nccl.text, "out of memory");
  story.add(make(line, nccl, memory ? "nccl.out_of_memory" : "nccl.cuda_failure", 0.8,
                 str("a CUDA call inside NCCL failed: ", excerpt(nccl.text, 160)),
                 memory ? "NCCL's own buffers did not fit beside the model: leave some hundred MiB free, or fewer "
                          "channels and smaller buffers "
                          "(NCCL_MAX_NCHANNELS, NCCL_BUFFSIZE)."
                        : "Often an earlier kernel failed: run with CUDA_LAUNCH_BLOCKING=1; look at the kernel log for "
                          "Xid; 'no kernel image' and 'driver version is "
                          "insufficient' mean that NCCL's build does not fit the driver."));
}

void plugin(const LogLine& line, const NcclLine& nccl, Story& story) {
  story.add(make(line, nccl, "nccl.no_network_plugin", 0.85, "NCCL could not start any network",
                 "Run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET and look at the lines before; NCCL_NET and "
                 "NCCL_NET_PLUGIN may name something that is not there."));
}

/// Told only when nothing else is found.
void unknown(const LogLine& line, const NcclLine& nccl, Story& story) {
  story.add(make(line, nccl, "nccl.warning", 0.2, str("NCCL warns: ", excerpt(nccl.text, 160)),
                 "Not in our table. Run with NCCL_DEBUG=INFO and look at the lines before the first warning."));
}

void take(const LogLine& line, Story& story) {
  const auto nccl = parse_nccl_line(line.text);
  if (!nccl || nccl->level != "WARN") return;
  if (has(nccl->text, "Got completion")) return completion(line, *nccl, story);
  if (has(nccl->text, "/dev/shm") || has(nccl->text, "shared memory segment") ||
      (has(nccl->text, "posix_fallocate") && has(nccl->text, "No space left")))
    return shared_memory(line, *nccl, story);
  if (has(nccl->text, "Message truncated")) return truncated(line, *nccl, story);
  if (has(nccl->text, "no socket interface found") || has(nccl->text, "No interface found"))
    return no_interface(line, *nccl, story);
  if (has(nccl->text, "Duplicate GPU detected")) return;  // has a rule of its own
  if (has(nccl->text, "peer access") || has(nccl->text, "peer mapping") || has(nccl->text, "ibv_"))
    return;  // known_errors.cpp
  if (has(nccl->text, "Cuda failure")) return cuda_failure(line, *nccl, story);
  if (has(nccl->text, "Failed to initialize any NET plugin")) return plugin(line, *nccl, story);
  if (has(nccl->text, "onnect") &&
      (has(nccl->text, "refused") || has(nccl->text, "No route") || has(nccl->text, "unreachable") ||
       has(nccl->text, "closed by remote peer") || has(nccl->text, "reset by peer") || has(nccl->text, "timed out"))) {
    return connection(line, *nccl, story);
  }
  unknown(line, *nccl, story);
}

void communicator(const LogLine& line, Story& story) {
  // "comm 0x5 rank 0 nranks 8 cudaDev 0 ... - Init START"
  const auto size = leading_number(after(line.text, " nranks ").value_or(""));
  if (size && has(line.text, "NCCL INFO") && *size > 1) story.tell_world_size(*size);
}

}  // namespace

std::vector<LogRule> nccl_rules() {
  return {{"NCCL WARN", &take}, {"Duplicate GPU detected", &duplicate_gpu}, {" nranks ", &communicator}};
}

}  // namespace trireme::diagnose
