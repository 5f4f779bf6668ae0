// What Trireme itself writes: the errors of src/comm and src/rendezvous, the launcher's report (docs/errors.md has the forms).
#include <algorithm>

#include "base/str.h"
#include "diagnose/excerpt.h"
#include "diagnose/job/log_line.h"
#include "diagnose/scan.h"

namespace trireme::diagnose {
namespace {

constexpr size_t kLongest = 400;

/// "group 'world' call 17".
std::string where_of(std::string_view text) {
  const auto group = between(text, "group '", "'");
  const auto call = leading_number(after(text, "' call ").value_or(""));
  std::string out = group ? str("group '", excerpt(*group, 100), "'") : std::string{};
  if (call) out += str(out.empty() ? "" : " ", "call ", *call);
  return out;
}

// "[comm.all_reduce] group 'dp' call 17: rank 0 called all_reduce sum f32[4], rank 3 called all_reduce sum f32[5]; the shapes differ. ..."
void clash(const LogLine& line, Story& story) {
  const auto body = after(line.text, ": rank ");
  if (!body || !has(line.text, "[comm.")) return;
  const auto first = between(*body, " called ", ", rank ");
  const auto rest = after(*body, ", rank ");
  const auto second = rest ? between(*rest, " called ", ";") : std::nullopt;
  if (!first || !second) return;
  CallClash told;
  told.first_rank = leading_number<int>(*body).value_or(-1);
  told.second_rank = leading_number<int>(*rest).value_or(-1);
  told.first_call = excerpt(*first, 200);
  told.second_call = excerpt(*second, 200);
  told.difference = excerpt(trimmed(until(after(*rest, ";").value_or(""), ".")), 100);
  told.where = where_of(line.text);
  told.evidence = line.evidence();
  constexpr size_t kCompared = 100;  // ranks repeat the same text
  if (story.clashes.size() > kCompared) return;
  for (const CallClash& known : story.clashes) {
    if (known.where == told.where && known.first_call == told.first_call && known.second_call == told.second_call)
      return;
  }
  Story::keep(story.clashes, std::move(told));
}

// "...: nothing for 3 s; still waiting for ranks 3, 5. Find out what they do instead, ..."
void late(const LogLine& line, Story& story) {
  const auto ranks = after(line.text, "waiting for rank");
  if (!ranks || !has(line.text, "[comm")) return;
  Absence absence{ranks_in(*ranks), where_of(line.text), line.evidence(), 0.9};
  if (const auto call = between(line.text, "(", "): nothing for")) absence.what += str(" (", excerpt(*call, 200), ")");
  if (!absence.ranks.empty()) Story::keep(story.absent, std::move(absence));
}

// "[comm.all_to_all] group 'world' call 4: rank 0 sends 12 bytes to rank 1, which expects 4 (...)"
void splits(const LogLine& line, Story& story) {
  if (!has(line.text, "[comm.all_to_all]")) return;
  const auto from = after(line.text, ": rank ");
  const auto to = from ? after(*from, " to rank ") : std::nullopt;
  if (!to) return;
  Finding finding = told_by(line, "calls.splits", Severity::kError, 0.97);
  finding.ranks = {leading_number<int>(*from).value_or(0), leading_number<int>(*to).value_or(0)};
  std::sort(finding.ranks.begin(), finding.ranks.end());
  finding.cause = str(where_of(line.text), ": rank ", excerpt(until(*from, "("), kLongest));
  finding.advice =
      "The input splits of the sender and the output splits of the receiver must agree: exchange the counts before the "
      "data.";
  story.add(std::move(finding));
}

// "rank 2 died." and "rank 2 has left the group" in the words of those that noticed.
void lost(const LogLine& line, Story& story) {
  if (!has(line.text, "[comm")) return;
  const bool left = has(line.text, "has left the group");
  const std::string_view before = line.text.substr(0, line.text.find(left ? " has left the group" : " died."));
  const size_t at = before.rfind("rank ");
  const auto rank = at == std::string_view::npos ? std::nullopt : leading_number<int>(before.substr(at + 5));
  if (!rank) return;
  Absence absence{{*rank},
                  str(where_of(line.text), left ? ": it has left the group" : ": it died"),
                  line.evidence(),
                  left ? 0.9 : 0.6};
  Story::keep(story.absent, std::move(absence));
}

// "[launch] FAILED, 1 of 4 ranks. First, 14:02:11: rank 1 on node0, pid 4121, SIGKILL (kernel log: out of memory), after 312 s; see ..."
void failed(const LogLine& line, Story& story) {
  const auto report = after(line.text, "[launch] FAILED, ");
  if (!report) return;
  if (const auto of = after(*report, " of ")) story.tell_world_size(leading_number(*of).value_or(0));
  const auto first = after(*report, ": rank ");
  if (!first) return;
  RankEnd end;
  end.rank = leading_number<int>(*first);
  end.host = excerpt(between(*first, " on ", ", pid ").value_or(""), 100);
  const auto pid = after(*first, ", pid ");
  end.pid = leading_number(pid.value_or("")).value_or(0);
  const std::string_view how = trimmed(after(pid.value_or(""), ",").value_or(""));
  if (how.starts_with("exit code ")) end.exit_code = leading_number<int>(how.substr(10));
  if (how.starts_with("SIG") || how.starts_with("signal ")) end.signal = signal_of(until(how, " ,"));
  if (const auto hint = between(how, " (", "), after")) end.hint = excerpt(*hint, 200);
  if (const auto log = after(how, "; see ")) end.log = excerpt(trimmed(*log), 300);
  if (end.log.ends_with('.')) end.log.pop_back();
  end.first = true;
  end.evidence = line.evidence();
  Story::keep(story.ends, std::move(end));
}

// "[launch] Then, after rank 1: ranks 0, 2 exit code 5; rank 3 ended by the launcher (SIGTERM)."
void then(const LogLine& line, Story& story) {
  std::string_view rest = after(line.text, "[launch] Then, after rank ").value_or("");
  rest = after(rest, ": ").value_or("");
  for (int parts = 0; parts < 64 && !rest.empty(); ++parts) {
    const std::string_view part = until(rest, ";");
    for (const int rank : ranks_in(part)) {
      RankEnd end;
      end.rank = rank;
      if (const auto code = after(part, "exit code ")) end.exit_code = leading_number<int>(*code);
      const size_t signal = part.find("SIG");
      if (signal != std::string_view::npos) end.signal = signal_of(until(part.substr(signal), ").; "));
      end.by_launcher = has(part, "ended by the launcher");
      end.evidence = line.evidence();
      Story::keep(story.ends, std::move(end));
    }
    rest = rest.substr(std::min(rest.size(), part.size() + 1));
  }
}

// "--- 2026-11-30 13:00:00 job 0f3ab6f1c2aa, attempt 1 ---": what this rank's log says before belongs to an earlier attempt or job.
void attempt(const LogLine& line, Story& story) {
  if (line.text.starts_with("--- ") && line.text.ends_with(" ---")) story.forget(line.file);
}

// "[launch] job 0f3ab6f1c2aa: 2 ranks, logs in ..."
void job(const LogLine& line, Story& story) {
  const auto rest = after(line.text, "[launch] job ");
  if (rest) story.tell_world_size(leading_number(after(*rest, ": ").value_or("")).value_or(0));
}

}  // namespace

std::vector<int> ranks_in(std::string_view text) {
  std::vector<int> ranks;
  text = trimmed(text);
  if (text.starts_with("rank")) text.remove_prefix(4);
  if (text.starts_with("s ")) text.remove_prefix(1);
  constexpr size_t kMost = 1U << 16;
  while (ranks.size() < kMost) {
    const auto rank = leading_number<int>(text);
    if (!rank) break;
    ranks.push_back(*rank);
    const size_t digit = text.find_first_of("0123456789");
    text.remove_prefix(std::min(text.find_first_not_of("0123456789", digit), text.size()));
    if (!text.starts_with(", ") && !text.starts_with(" and ")) break;
    text.remove_prefix(text.find(' ') + 1);
    if (text.starts_with("and ")) text.remove_prefix(4);
  }
  return ranks;
}

std::vector<LogRule> own_rules() {
  return {{" called ", &clash},
          {"waiting for rank", &late},
          {", which expects ", &splits},
          {" has left the group", &lost},
          {" died. The group cannot be used", &lost},
          {"[launch] FAILED", &failed},
          {"[launch] Then, after", &then},
          {", attempt ", &attempt},
          {"[launch] job ", &job}};
}

}  // namespace trireme::diagnose
