#include <algorithm>

#include "base/str.h"
#include "diagnose/job/compare_trails.h"

namespace trireme::diagnose {
namespace {

int64_t elements(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t dim : shape) {
    constexpr int64_t kMost = int64_t{1} << 50;
    if (dim < 0 || (dim > 0 && product > kMost / dim)) return -1;
    product *= dim;
  }
  return product;
}

/// Elements to (or from) each peer; empty where the record does not tell.
std::vector<int64_t> parts(const std::vector<int64_t>& splits, const std::vector<std::vector<int64_t>>& shapes,
                           size_t ranks) {
  if (splits.size() == ranks) return splits;
  if (shapes.size() != ranks || ranks < 2) return {};
  std::vector<int64_t> out;
  for (const auto& shape : shapes) out.push_back(elements(shape));
  return out;
}

int64_t total(const std::vector<std::vector<int64_t>>& shapes) {
  int64_t sum = 0;
  for (const auto& shape : shapes) {
    const int64_t count = elements(shape);
    if (count < 0) return -1;
    sum += count;
  }
  return sum;
}

/// One all_to_all that all members have entered.
std::optional<Finding> check_all_to_all(const TrailBook& book, const GroupRows& group, int64_t number) {
  const size_t size = group.members.size();
  std::vector<const Call*> calls;
  for (const int rank : group.members) {
    const auto row = group.rows.find(rank);
    calls.push_back(row == group.rows.end() ? nullptr : row->second->find(number));
    if (calls.back() != nullptr && book.at(*calls.back()).kind != "all_to_all") return std::nullopt;
  }
  Finding finding;
  finding.severity = Severity::kError;
  finding.confidence = 0.95;
  std::vector<std::vector<int64_t>> sends(size);
  std::vector<std::vector<int64_t>> receives(size);
  for (size_t i = 0; i < size; ++i) {
    if (calls[i] == nullptr) continue;
    const Signature& call = book.at(*calls[i]);
    sends[i] = parts(call.in_splits, call.inputs, size);
    receives[i] = parts(call.out_splits, call.outputs, size);
  }
  std::string pairs;
  size_t wrong = 0;
  for (size_t from = 0; from < size; ++from) {
    for (size_t to = 0; to < size; ++to) {
      if (sends[from].empty() || receives[to].empty() || sends[from][to] == receives[to][from]) continue;
      constexpr size_t kShown = 4;
      if (++wrong > kShown) continue;
      pairs += str(pairs.empty() ? "" : "; ", "rank ", group.members[from], " sends ", sends[from][to], " to rank ",
                   group.members[to], ", rank ", group.members[to], " expects ", receives[to][from], " from it");
      for (const size_t i : {from, to}) {
        const int rank = group.members[i];
        if (std::find(finding.ranks.begin(), finding.ranks.end(), rank) != finding.ranks.end()) continue;
        finding.ranks.push_back(rank);
        add_evidence(finding, evidence_of(book, rank, *calls[i]));
      }
    }
  }
  if (wrong > 0) {
    finding.code = "calls.splits";
    finding.cause = str("group '", group.name, "' call ", number, ": the parts of an all_to_all do not fit: ", pairs,
                        wrong > 4 ? str("; and ", wrong - 4, " pairs more") : "", " (elements)");
    finding.advice =
        "The input splits of the sender and the output splits of the receiver must agree: exchange the counts "
        "(all_to_all of the "
        "splits) before the data, from the same routing decision.";
    std::sort(finding.ranks.begin(), finding.ranks.end());
    return finding;
  }
  // Without splits only the sums can be compared, and only when all ranks are there.
  int64_t in = 0;
  int64_t out = 0;
  for (const Call* call : calls) {
    if (call == nullptr || book.at(*call).outputs.empty()) return std::nullopt;
    const int64_t sent = total(book.at(*call).inputs);
    const int64_t expected = total(book.at(*call).outputs);
    if (sent < 0 || expected < 0) return std::nullopt;
    in += sent;
    out += expected;
  }
  if (in == out) return std::nullopt;
  finding.code = "calls.splits";
  finding.confidence = 0.85;
  finding.cause = str("group '", group.name, "' call ", number, ": all ranks together send ", in,
                      " elements into an all_to_all and expect ", out, "; which pair is wrong is not recorded");
  finding.advice =
      "The recorder keeps the splits of each pair since PyTorch's format 2.11; print input_split_sizes and "
      "output_split_sizes of "
      "that call on each rank.";
  for (size_t i = 0; i < size; ++i) add_evidence(finding, evidence_of(book, group.members[i], *calls[i]));
  return finding;
}

/// The messages from one rank to another, in the order in which each side issued them.
struct Pair {
  std::vector<const Call*> sends;
  std::vector<const Call*> receives;
};
using Pairs = std::map<std::pair<int, int>, Pair>;

Pairs pairs_of(const TrailBook& book, const GroupRows& group) {
  Pairs pairs;
  for (const auto& [rank, row] : group.rows) {
    for (const Call& call : row->point_to_point) {
      const Signature& one = book.at(call);
      const int peer = book.global_rank(group.key, one.root);
      if (one.kind == "send") pairs[{rank, peer}].sends.push_back(&call);
      if (one.kind == "recv") pairs[{peer, rank}].receives.push_back(&call);
    }
  }
  return pairs;
}

int64_t sent_elements(const Signature& call) { return total(call.inputs.empty() ? call.outputs : call.inputs); }
int64_t received_elements(const Signature& call) { return total(call.outputs.empty() ? call.inputs : call.outputs); }

/// The k-th send of a pair meets the k-th receive. Rings that have dropped calls are not compared.
void check_pair(const TrailBook& book, int from, int to, const Pair& pair, std::vector<Finding>& findings) {
  const auto& [sends, receives] = pair;
  const auto starts_at_first = [](const std::vector<const Call*>& calls) {
    return calls.empty() || calls.front()->number <= 1;
  };
  if (!starts_at_first(sends) || !starts_at_first(receives)) return;
  for (size_t i = 0; i < std::min(sends.size(), receives.size()); ++i) {
    const Signature& sent = book.at(*sends[i]);
    const Signature& received = book.at(*receives[i]);
    const bool sizes = sent_elements(sent) != received_elements(received);
    const bool dtypes = !sent.dtypes.empty() && !received.dtypes.empty() && sent.dtypes != received.dtypes;
    if (!sizes && !dtypes) continue;
    Finding finding;
    finding.code = "calls.send_recv";
    finding.severity = Severity::kError;
    finding.confidence = 0.9;
    finding.ranks = {from, to};
    std::sort(finding.ranks.begin(), finding.ranks.end());
    finding.cause =
        str("rank ", from, " sends ", sent.text(), ", rank ", to, " receives ", received.text(), " (message ", i + 1,
            " of this pair); the ", sizes ? "numbers of elements" : "dtypes", " differ");
    finding.advice =
        "Sends and receives of a pair are matched in order. Compare the order and the shapes of both sides.";
    add_evidence(finding, evidence_of(book, from, *sends[i]));
    add_evidence(finding, evidence_of(book, to, *receives[i]));
    findings.push_back(std::move(finding));
    return;
  }
}

}  // namespace

std::vector<Finding> find_pair_faults(const TrailBook& book, const GroupRows& group) {
  std::vector<Finding> findings;
  std::map<int64_t, int> all_to_alls;
  for (const auto& [rank, row] : group.rows) {
    for (const Call& call : row->calls) {
      if (book.at(call).kind == "all_to_all") ++all_to_alls[call.number];
    }
  }
  constexpr size_t kMostRanks = 512;  // the square of it is looked at
  if (group.members.size() > kMostRanks) all_to_alls.clear();
  for (const auto& [number, count] : all_to_alls) {
    if (count < 2) continue;
    if (auto fault = check_all_to_all(book, group, number)) {
      findings.push_back(std::move(*fault));
      break;
    }
  }
  for (const auto& [ends, pair] : pairs_of(book, group)) check_pair(book, ends.first, ends.second, pair, findings);
  return findings;
}

}  // namespace trireme::diagnose
