// What c10d writes (PyTorch 1.13 to 2.13): ProcessGroupNCCL's watchdog, the desync report, the checks of TORCH_DISTRIBUTED_DEBUG=DETAIL, Gloo,
// the store. Texts from torch/csrc/distributed/c10d.
#include "base/str.h"
#include "diagnose/excerpt.h"
#include "diagnose/job/flight_recorder.h"
#include "diagnose/job/log_line.h"
#include "diagnose/scan.h"

namespace trireme::diagnose {
namespace {

std::vector<int> ranks_in(std::string_view list) {
  std::vector<int> ranks;
  constexpr size_t kMost = 1U << 16;
  while (ranks.size() < kMost) {
    const size_t digit = list.find_first_of("0123456789");
    if (digit == std::string_view::npos) break;
    list.remove_prefix(digit);
    size_t digits = 0;
    while (digits < list.size() && list[digits] >= '0' && list[digits] <= '9') ++digits;
    if (const auto rank = leading_number<int>(list.substr(0, digits)); rank && digits < 8) ranks.push_back(*rank);
    list.remove_prefix(digits);
  }
  return ranks;
}

/// "default_pg" of "[PG ID 0 PG GUID 0(default_pg) Rank 1]", "0" of "[PG 0 Rank 2]".
std::string group_in(std::string_view text) {
  const auto guid = after(text, "PG GUID ");
  if (guid) {
    const auto name = between(until(*guid, " ]"), "(", ")");
    return excerpt(name ? *name : until(*guid, " ]("), 100);
  }
  if (const auto group = after(text, "[PG ")) return excerpt(until(*group, " ]"), 100);
  return {};
}

// "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=808, OpType=ALLREDUCE, NumelIn=9801523, NumelOut=9801523,
// Timeout(ms)=600000) ran for 600020 milliseconds before timing out."; 1.13 has TensorShape=[2, 3] in place of the counts, or neither.
void timeout(const LogLine& line, Story& story) {
  const auto work = after(line.text, "Watchdog caught collective operation timeout: ");
  if (!work || !line.rank) return;
  Waiting waiting;
  waiting.rank = c10d_rank(line.text).value_or(*line.rank);
  waiting.group = group_in(line.text);
  waiting.call = leading_number(after(*work, "SeqNum=").value_or("")).value_or(-1);
  if (waiting.call < 0) return;
  waiting.op = kind_of_op(until(after(*work, "OpType=").value_or(""), ",) "));
  if (const auto count = leading_number(after(*work, "NumelIn=").value_or("")))
    waiting.size = str(*count, *count == 1 ? " element" : " elements");
  if (const auto shape = between(*work, "TensorShape=[", "]")) waiting.size = str("[", excerpt(*shape, 100), "]");
  waiting.timeout_ms = leading_number(after(*work, "Timeout(ms)=").value_or("")).value_or(0);
  waiting.evidence = line.evidence();
  story.add_waiting(std::move(waiting));
}

// "... last enqueued NCCL work: 811, last completed NCCL work: 807." of the rank that timed out, and of each that answers its call for a dump;
// 2.6 and later: "PG status: last enqueued work: 547, last completed work: -1".
void progress(const LogLine& line, Story& story) {
  if (!line.rank) return;
  const auto number = [&line](std::string_view a, std::string_view b) {
    auto rest = after(line.text, a);
    if (!rest) rest = after(line.text, b);
    return rest ? leading_number(*rest) : std::nullopt;
  };
  auto enqueued = number("ast enqueued NCCL work: ", "ast enqueued work: ");
  auto completed = number("ast completed NCCL work: ", "ast completed work: ");
  // 2.3 prints memory that was never written.
  if (enqueued && completed && *completed > *enqueued) completed.reset();
  if (!enqueued) return;
  Progress told;
  told.rank = c10d_rank(line.text).value_or(*line.rank);
  told.group = group_in(line.text);
  told.enqueued = enqueued;
  told.completed = completed;
  told.timed_out =
      !has(line.text, "Received a dump signal due to a collective timeout from") || has(line.text, "this local rank");
  told.evidence = line.evidence();
  story.add_progress(std::move(told));
}

// "Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=7, OpType=ALLREDUCE,
// TensorShape=[2, 3], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(...)), but Rank 0 is running collective: ...Collectives differ in the
// following aspects: ..."
std::string fingerprint(std::string_view text, std::string_view* number, std::string_view* op, std::string_view* shape,
                        std::string_view* dtype) {
  *number = until(after(text, "SequenceNumber=").value_or(""), ",)O");
  *op = until(after(text, "OpType=").value_or(""), ",)");
  *shape = between(text, "TensorShape=[", "]").value_or("");
  *dtype = until(after(text, "TensorDtypes=").value_or(""), ",)");
  std::string out = excerpt(*op, 60);
  if (!dtype->empty() || !shape->empty()) out += str(" ", excerpt(*dtype, 40), "[", excerpt(*shape, 100), "]");
  if (!number->empty()) out += str(" #", excerpt(*number, 20));
  return out;
}

void mismatch(const LogLine& line, Story& story) {
  const auto first = after(line.text, "collectives on ranks. Rank ");
  const auto second = first ? after(*first, "but Rank ") : std::nullopt;
  if (!second) return;
  CallClash clash;
  clash.first_rank = leading_number<int>(*first).value_or(-1);
  clash.second_rank = leading_number<int>(*second).value_or(-1);
  std::string_view number[2];
  std::string_view op[2];
  std::string_view shape[2];
  std::string_view dtype[2];
  clash.first_call = fingerprint(first->substr(0, static_cast<size_t>(second->data() - first->data())), &number[0],
                                 &op[0], &shape[0], &dtype[0]);
  clash.second_call = fingerprint(*second, &number[1], &op[1], &shape[1], &dtype[1]);
  clash.difference = op[0] != op[1]         ? "the operations differ"
                     : dtype[0] != dtype[1] ? "the dtypes differ"
                     : shape[0] != shape[1] ? "the shapes differ"
                     : number[0] != number[1]
                         ? "the sequence numbers differ: one rank has made more calls than the other"
                         : "they differ in what is not shown";
  clash.evidence = line.evidence();
  Story::keep(story.clashes, std::move(clash));
}

// TORCH_NCCL_DESYNC_DEBUG=1: "- [3] joined but didn't finish collective #5 (count from 1)", "[0, 1] finished collective #5, but didn't join
// collective #6", "ranks [2] are the lagging ranks that caused this timeout. They never joined any collectives"
void desync(const LogLine& line, Story& story) {
  Absence absence;
  absence.evidence = line.evidence();
  if (const auto ranks = between(line.text, "ranks [", "] are the lagging ranks")) {
    absence.ranks = ranks_in(*ranks);
    absence.what = "any collective";
  } else if (const auto late = after(line.text, "but didn't join collective #")) {
    absence.ranks = ranks_in(between(line.text, "[", "] finished").value_or(""));
    absence.what = str("collective #", leading_number(*late).value_or(0));
  }
  if (!absence.ranks.empty()) Story::keep(story.absent, std::move(absence));
}

// "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 30000 ms", "Ranks 1, 2 failed to pass monitoredBarrier"
void barrier(const LogLine& line, Story& story) {
  std::string_view before = line.text.substr(0, line.text.find(" failed to pass monitoredBarrier"));
  size_t at = before.rfind("Ranks ");
  if (at == std::string_view::npos) at = before.rfind("Rank ");
  if (at == std::string_view::npos) return;
  Absence absence{ranks_in(before.substr(at)), "the monitored barrier", line.evidence(), 0.9};
  if (!absence.ranks.empty()) Story::keep(story.absent, std::move(absence));
}

void gloo_size(const LogLine& line, Story& story) {
  Finding finding;
  finding.code = "gloo.size_mismatch";
  finding.severity = Severity::kError;
  finding.confidence = 0.85;
  const std::string sizes = excerpt(until(after(line.text, "op.nbytes. ").value_or(""), "\n"), 60);
  finding.cause =
      str("two ranks met in one collective with unlike sizes", sizes.empty() ? "" : str(" (bytes: ", sizes, ")"));
  finding.advice =
      "Gloo does not compare calls: ranks called different operations or shapes. Run again with "
      "TORCH_DISTRIBUTED_DEBUG=DETAIL, which "
      "names both calls.";
  if (line.rank) finding.ranks = {};
  add_evidence(finding, line.evidence());
  story.add(std::move(finding));
}

void store_timeout(const LogLine& line, Story& story) {
  Finding finding = told_by(line, "rendezvous.no_answer", Severity::kError, 0.8);
  const auto where = between(line.text, "trying to connect to (", ")");
  finding.cause = where ? str("the store at ", excerpt(*where, 100), " did not answer")
                        : std::string("the rendezvous did not complete: not all came");
  if (const auto joined = between(line.text, "waiting for clients. ", " clients joined"))
    finding.cause = str("only ", excerpt(*joined, 40), " ranks came to the rendezvous");
  finding.advice =
      "The first host is not there, another port or address is meant, or a firewall is between. MASTER_ADDR must be an "
      "address of the host "
      "of rank 0 that the others reach, MASTER_PORT the same on all, and the number of nodes that of those that really "
      "start.";
  story.add(std::move(finding));
}

void port_in_use(const LogLine& line, Story& story) {
  // Also what a web server in the job may say: only with the store's or Trireme's words beside it.
  if (!has(line.text, "errno: 98") && !has(line.text, "EADDRINUSE") && !has(line.text, "socket.cpp") &&
      !has(line.text, "cannot listen"))
    return;
  Finding finding;
  finding.code = "rendezvous.port_in_use";
  finding.severity = Severity::kError;
  finding.confidence = 0.85;
  std::string port = excerpt(until(after(line.text, "port: ").value_or(""), ",). "), 10);
  if (port.empty()) port = excerpt(until(after(line.text, "[::]:").value_or(""), " ,)"), 10);
  finding.cause =
      str("the rendezvous port", port.empty() ? "" : " " + port, " is in use by another job or a leftover process");
  finding.advice = str(
      "See who holds it: ss -ltnp", port.empty() ? "" : " 'sport = :" + port + "'",
      ". A job on one host needs no fixed port: 'trireme run' lets the kernel choose; torchrun --standalone does too.");
  add_evidence(finding, line.evidence());
  story.add(std::move(finding));
}

void watchdog_stuck(const LogLine& line, Story& story) {
  Finding finding = told_by(line, "c10d.watchdog_stuck", Severity::kError, 0.7);
  finding.cause = "the NCCL watchdog itself got stuck: a CUDA or NCCL call hangs in that process";
  finding.advice =
      "Usually another thread holds the GIL inside a CUDA call, the driver or file system stalls, or an NCCL abort "
      "hangs. Take stacks (py-spy "
      "dump --native), look at the kernel log for Xid; TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC only hides it.";
  story.add(std::move(finding));
}

// "Parameter indices which did not receive grad for rank 1: 2 3", or with names under TORCH_DISTRIBUTED_DEBUG=INFO.
void unused_parameters(const LogLine& line, Story& story) {
  const auto rest = after(line.text, "which did not receive grad for rank ");
  if (!rest) return;
  Finding finding = told_by(line, "ddp.unused_parameters", Severity::kError, 0.9);
  if (const auto rank = leading_number<int>(*rest)) finding.ranks = {*rank};
  const std::string names = excerpt(trimmed(after(*rest, ":").value_or("")), 300);
  // Names, where TORCH_DISTRIBUTED_DEBUG asks for them, are followed by the indices of the same.
  const bool indices = has(line.text, "Parameter indices");
  for (const Finding& known : story.findings) {
    if (indices && known.code == finding.code && known.ranks == finding.ranks &&
        known.evidence.front().file == line.file && known.evidence.back().line + 3 >= line.number &&
        !has(known.evidence.back().text, "Parameter indices"))
      return;
  }
  finding.cause = str("parameters got no gradient in the step before", names.empty() ? "" : ": " + names);
  finding.advice =
      "A part of the model was not used in the loss. Pass find_unused_parameters=True, or use all of it on every rank; "
      "TORCH_DISTRIBUTED_DEBUG=INFO prints names in place of indices.";
  story.add(std::move(finding));
}

void ready_twice(const LogLine& line, Story& story) {
  Finding finding = told_by(line, "ddp.ready_twice", Severity::kError, 0.9);
  finding.cause = "a parameter's gradient was made twice in one backward";
  finding.advice =
      "Usually re-entrant activation checkpointing, or one layer used twice under it: use_reentrant=False, or "
      "static_graph=True; or the module is "
      "called outside of its wrapper's forward.";
  story.add(std::move(finding));
}

}  // namespace

std::optional<int> c10d_rank(std::string_view text) {
  // "[rank13]:[E218 ...] [Rank 1]": of the job first (2.2 and later), then of the group.
  if (const size_t end = text.find("]:["); end != std::string_view::npos) {
    const size_t open = text.substr(0, end).rfind("[rank");
    const std::string_view digits =
        open == std::string_view::npos ? std::string_view{} : text.substr(open + 5, end - open - 5);
    if (all_digits(digits) && digits.size() <= 7) return leading_number<int>(digits);
  }
  // "Rank 12]" inside brackets; "[Rank 0]: Rank 1 failed" is rank 0 speaking.
  for (size_t at = text.find("Rank "); at != std::string_view::npos; at = text.find("Rank ", at + 5)) {
    const std::string_view digits = until(text.substr(at + 5), "]");
    if (!all_digits(digits) || digits.size() > 7 || at + 5 + digits.size() >= text.size()) continue;
    const size_t open = text.rfind('[', at);
    if (open == std::string_view::npos || text.substr(open, at - open).find(']') != std::string_view::npos) continue;
    return leading_number<int>(digits);
  }
  return std::nullopt;
}

std::vector<LogRule> c10d_rules() {
  return {{"Watchdog caught collective operation timeout", &timeout},
          {"ast enqueued", &progress},
          {"Detected mismatch between collectives on ranks", &mismatch},
          {"but didn't join collective #", &desync},
          {"are the lagging ranks that caused", &desync},
          {"failed to pass monitoredBarrier", &barrier},
          {"op.preamble.length <= op.nbytes", &gloo_size},
          {"socket has timed out after", &store_timeout},
          {"seconds waiting for clients", &store_timeout},
          {"ddress already in use", &port_in_use},
          {"without making progress in monitoring enqueued collectives", &watchdog_stuck},
          {"which did not receive grad for rank", &unused_parameters},
          {"Expected to mark a variable ready only once", &ready_twice}};
}

}  // namespace trireme::diagnose
