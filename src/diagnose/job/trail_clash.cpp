#include <algorithm>
#include <set>

#include "base/str.h"
#include "diagnose/job/compare_trails.h"

namespace trireme::diagnose {
namespace {

std::string shapes_key(const std::vector<std::vector<int64_t>>& shapes) {
  std::string key;
  for (const auto& shape : shapes) key += str("[", join(shape, ","), "]");
  return key;
}

/// What ranks must agree on. Sizes that may differ by rank are left out: parts of all_to_all, what is scattered or gathered, the own part of
/// an all_gather or reduce_scatter of lists.
struct Agreed {
  std::string kind;
  std::string dtypes;
  std::string shape;
  std::string root;
  std::string reduce;
  std::string label;

  explicit Agreed(const Signature& call)
      : kind(call.kind), dtypes(call.dtypes), root(str(call.root)), reduce(call.reduce), label(call.label) {
    const bool by_list = call.inputs.size() != 1 || call.outputs.size() > 1;
    if (call.kind == "all_to_all" || call.kind == "scatter" || call.kind == "gather") return;
    if (call.kind == "all_gather" && by_list) {
      shape = shapes_key(call.outputs);
    } else if (call.kind == "reduce_scatter" && by_list) {
      shape = shapes_key(call.inputs);
    } else {
      shape = shapes_key(call.inputs) + ">" + shapes_key(call.outputs);
    }
  }
  [[nodiscard]] std::string key() const {
    return str(kind, "|", dtypes, "|", shape, "|", root, "|", reduce, "|", label);
  }
  /// What differs first, in the order of a reader's interest.
  [[nodiscard]] const char* difference(const Agreed& other) const {
    if (kind != other.kind) return "operation";
    if (dtypes != other.dtypes) return "dtype";
    if (shape != other.shape) return "shape";
    if (root != other.root) return "root";
    if (reduce != other.reduce) return "reduction";
    return "label";
  }
};

std::string key_at(const TrailBook& book, const GroupTrail& row, int64_t number) {
  const Call* call = row.find(number);
  return call == nullptr ? std::string{} : Agreed(book.at(*call)).key();
}

/// What usually follows the last calls before `number`, by the common history; empty when that never happened before.
std::string expected_at(const TrailBook& book, const GroupTrail& row, int64_t number) {
  constexpr int64_t kContext = 3;
  for (int64_t context = kContext; context >= 1; --context) {
    if (number - context < row.first()) continue;
    size_t looked = 0;  // numbers of a damaged file may be far apart
    for (int64_t at = number - 1; at - context >= row.first() && looked < row.calls.size(); --at, ++looked) {
      bool same = true;
      for (int64_t back = 1; back <= context && same; ++back) {
        same = key_at(book, row, at - back) == key_at(book, row, number - back);
      }
      if (same) return key_at(book, row, at);
    }
  }
  return {};
}

struct Relation {
  std::string code;
  std::string words;  ///< "left out the call", "made one call more"
  std::string meaning;
};

/// How `odd` came to call something else than `right` at `number`.
Relation relation(const TrailBook& book, const GroupTrail& odd, const GroupTrail& right, int64_t number) {
  const std::string odd_now = key_at(book, odd, number);
  const std::string right_now = key_at(book, right, number);
  const std::string odd_next = key_at(book, odd, number + 1);
  const std::string right_next = key_at(book, right, number + 1);
  const auto words = [&](const Call* call) { return book.at(*call).text(); };
  const Call* odd_call = odd.find(number);
  const Call* right_call = right.find(number);
  if (!odd_next.empty() && odd_now == right_next && odd_next == right_now) {
    return {"calls.order",
            str("made two calls in the other order: ", words(odd_call), ", then ", words(odd.find(number + 1))),
            "All ranks must make the same calls in the same order. Look for a loop over a set or a dict, or a branch "
            "on the rank."};
  }
  // Blocked ranks have issued nothing more; then the history of the calls stands in for what comes next.
  const auto follows_in_history = [&](const GroupTrail& row, const std::string& first, const std::string& second) {
    for (const Call& call : row.calls) {
      if (call.number >= number) break;
      if (key_at(book, row, call.number) == first && key_at(book, row, call.number + 1) == second) return true;
    }
    return false;
  };
  const std::string right_after = key_at(book, right, number + 2);
  const bool goes_on_so = odd_next.empty() || right_after.empty() || odd_next == right_after;
  const bool left_out =
      right_next.empty() ? follows_in_history(right, right_now, odd_now) : odd_now == right_next && goes_on_so;
  if (left_out) {
    return {"calls.missing", str("left out ", words(right_call), " and went on with ", words(odd_call)),
            "That rank has skipped a call: a branch that it did not take (its data, its rank, an early 'continue'), or "
            "a module that was not "
            "used there."};
  }
  if (!odd_next.empty() && odd_next == right_now) {
    return {
        "calls.extra",
        str("made a call that the others did not make: ", words(odd_call), "; they called ", words(right_call)),
        "Look for a collective inside a branch that only this rank takes (logging, evaluation, saving on one rank)."};
  }
  const char* what = Agreed(book.at(*odd_call)).difference(Agreed(book.at(*right_call)));
  const bool operation = std::string_view(what) == "operation";
  return {str("calls.", what),
          str("called ", words(odd_call), " where the others called ", words(right_call), "; the ", what, "s differ"),
          operation ? "All ranks must make the same calls in the same order. What follows was not recorded: it may be "
                      "one call too many (a "
                      "collective in a branch that only this rank takes), one left out, or another operation."
                    : "All ranks must pass the same: print shape, dtype and arguments of that call on each rank. "
                      "Uneven batches at the end of "
                      "an epoch, and tensors that were made in another dtype on one rank, are the usual causes."};
}

}  // namespace

std::optional<Finding> find_clash(const TrailBook& book, const GroupRows& group, int64_t* number) {
  int64_t low = 0;
  int64_t high = INT64_MAX;
  std::vector<int> ranks;
  for (const auto& [rank, row] : group.rows) {
    if (row->calls.empty()) continue;
    ranks.push_back(rank);
    low = std::max(low, row->calls.front().number);
    high = std::min(high, row->calls.back().number);
  }
  if (ranks.size() < 2) return std::nullopt;
  // A thousand ranks record the same few signatures: what they agree on is worked out once for each.
  std::map<std::string, uint32_t> classes;
  std::vector<uint32_t> class_of;
  for (const Signature& signature : book.signatures) {
    class_of.push_back(
        classes.try_emplace(Agreed(signature).key(), static_cast<uint32_t>(classes.size())).first->second);
  }
  // The numbers of one rank, not all between: those of a damaged file may be far apart.
  for (const Call& call : group.rows.at(ranks.front())->calls) {
    const int64_t at = call.number;
    if (at < low || at > high) continue;
    const bool all_alike = std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
      const Call* other = group.rows.at(rank)->find(at);
      return other == nullptr || class_of[other->signature] == class_of[call.signature];
    });
    if (all_alike) continue;
    std::map<std::string, std::vector<int>> by_key;
    for (const int rank : ranks) {
      const std::string key = key_at(book, *group.rows.at(rank), at);
      if (!key.empty()) by_key[key].push_back(rank);
    }
    *number = at;
    // Most ranks are right; where it is a tie, those that went on as they did before.
    const std::string expected = expected_at(book, *group.rows.at(ranks.front()), at);
    auto right = by_key.begin();
    bool tie = false;
    for (auto one = by_key.begin(); one != by_key.end(); ++one) {
      if (one->second.size() > right->second.size()) right = one;
    }
    for (const auto& [key, members] : by_key) tie |= key != right->first && members.size() == right->second.size();
    const bool told_by_history = tie && by_key.count(expected) > 0;
    if (told_by_history) right = by_key.find(expected);
    std::vector<int> odd;
    for (const auto& [key, members] : by_key) {
      if (key != right->first) odd.insert(odd.end(), members.begin(), members.end());
    }
    std::sort(odd.begin(), odd.end());
    const GroupTrail& right_row = *group.rows.at(right->second.front());
    const Relation how = relation(book, *group.rows.at(odd.front()), right_row, at);
    Finding finding;
    finding.code = how.code;
    finding.severity = Severity::kError;
    finding.confidence = tie && !told_by_history ? 0.6 : tie ? 0.8 : 0.95;
    const Call& odd_call = *group.rows.at(odd.front())->find(at);
    const std::string step = odd_call.step == 0 ? "" : str(" in step ", odd_call.step);
    if (tie && !told_by_history) {
      finding.ranks = odd;
      finding.ranks.insert(finding.ranks.end(), right->second.begin(), right->second.end());
      std::sort(finding.ranks.begin(), finding.ranks.end());
      finding.cause =
          str("group '", group.name, "' call ", at, step, ": ", rank_list(odd), " called ", book.at(odd_call).text(),
              ", ", rank_list(right->second), " called ", book.at(*right_row.find(at)).text(),
              "; as many on either side, so which is wrong cannot be told. Last common call: ", at - 1);
    } else {
      finding.ranks = odd;
      finding.cause = str("group '", group.name, "' call ", at, step, ": ", rank_list(odd), " ", how.words,
                          ". Last common call: ", at - 1);
    }
    finding.advice = how.meaning;
    add_evidence(finding, evidence_of(book, odd.front(), odd_call));
    add_evidence(finding, evidence_of(book, right->second.front(), *right_row.find(at)));
    return finding;
  }
  return std::nullopt;
}

}  // namespace trireme::diagnose
