// What the watches of Trireme say while a job runs: the launcher's for hangs and slow ranks, the ranks' own for their steps and memory.
#include <algorithm>

#include "base/str.h"
#include "diagnose/excerpt.h"
#include "diagnose/job/log_line.h"
#include "diagnose/scan.h"

namespace trireme::diagnose {
namespace {

ToldHang* last_of(std::string_view file, Story& story) {
  const auto last = std::find_if(story.hangs.rbegin(), story.hangs.rend(),
                                 [file](const ToldHang& one) { return one.evidence.file == file; });
  return last == story.hangs.rend() ? nullptr : &*last;
}

// "[launch] HANG: group 'world' call 17, all_reduce sum f32[1000], step 5: ranks 0, 2 have waited 3.1 s for rank 1. The last one ..."
void hang(const LogLine& line, Story& story) {
  const auto body = after(line.text, "[launch] HANG: ");
  if (!body) return;
  const size_t end = std::min({body->find(": rank "), body->find(": ranks "), body->find(": the launcher ")});
  if (end == std::string_view::npos) return;
  ToldHang told;
  told.where = excerpt(body->substr(0, end), 300);
  const std::string_view rest = body->substr(end + 2);
  told.waiting = ranks_in(rest);
  told.late = ranks_in(after(rest, " s for ").value_or(""));
  told.evidence = line.evidence();
  Story::keep(story.hangs, std::move(told));
}

// "[launch]   rank 1 (pid 632) is in its own code: it sleeps (clock_nanosleep) in load_batch, called by train. All its threads: ..."
void culprit(const LogLine& line, Story& story) {
  ToldHang* hang = last_of(line.file, story);
  const auto body = after(line.text, "[launch]   rank ");
  if (hang == nullptr || !body) return;
  const auto rank = leading_number<int>(*body);
  const auto doing = after(*body, ") ");
  if (!rank || !doing || !has(*body, " (pid ")) return;
  std::string_view words = doing->substr(0, std::min(doing->find(". All its threads"), doing->size()));
  if (words.ends_with('.')) words.remove_suffix(1);
  Story::keep(hang->culprits, ToldHang::Culprit{*rank, leading_number(after(*body, " (pid ").value_or("")).value_or(0),
                                                excerpt(words, 300)});
}

// "[launch]   ranks 0, 1 wait for each other: none of them can go on."
void circle(const LogLine& line, Story& story) {
  ToldHang* hang = last_of(line.file, story);
  if (hang != nullptr) hang->circle = ranks_in(after(line.text, "[launch]   rank").value_or(""));
}

// "[launch] call 17 of group 'world' goes on, after 7.3 s.", "[launch] group 'world' has been made, after 7.3 s."
void goes_on(const LogLine& line, Story& story) {
  const auto call = after(line.text, "[launch] call ");
  const auto group =
      call ? between(*call, " of group '", "' goes on") : between(line.text, "[launch] group '", "' has been made");
  if (!group) return;
  const std::string where =
      call ? str("group '", excerpt(*group, 100), "' call ", leading_number(*call).value_or(0), ",")
           : str("group '", excerpt(*group, 100), "', which");
  for (ToldHang& hang : story.hangs) {
    if (hang.evidence.file == line.file && hang.where.starts_with(where)) hang.over = true;
  }
}

// "[launch] Why: rank 1 is out of step in call 18 of group 'world': ...", "[launch] Why: rank 2 left in good order without ..."
void why(const LogLine& line, Story& story) {
  const auto body = after(line.text, "[launch] Why: ");
  if (!body) return;
  const bool left = has(*body, " left in good order without ");
  const size_t end =
      left ? body->find(" left ") : std::min(body->find(" is out of step"), body->find(" are out of step"));
  if (end == std::string_view::npos) return;
  Finding finding = told_by(line, left ? "calls.missing" : "calls.mismatch", Severity::kError, 0.97);
  finding.ranks = ranks_in(body->substr(0, end));
  finding.cause = excerpt(*body, 600);
  finding.advice =
      "All ranks must make the same calls in the same order, with the same shapes and dtypes. Look for a branch on the "
      "rank or on its data before that call.";
  story.add(std::move(finding));
}

// "[launch] SLOW: rank 2 (node17) is slow: it came 38 ms later than the others in each of the last 20 steps (...), 35 ms of it in data loading."
void slow(const LogLine& line, Story& story) {
  const auto body = after(line.text, "[launch] SLOW: rank ");
  if (!body) return;
  const auto rank = leading_number<int>(*body);
  if (!rank) return;
  Finding finding = told_by(line, "rank.slow", Severity::kWarning, 0.75);
  finding.ranks = {*rank};
  finding.cause = str("rank ", excerpt(body->substr(0, std::min(body->find(". More: "), body->size())), 400));
  finding.advice = "'trireme trace report' on the run folder shows each step; docs/howto/slow.md goes on from here.";
  story.add(std::move(finding));
}

// "[comm] rank 0: group 'world' call 18, all_reduce avg f32[10] (bucket 0): the ranks are out of step: rank 0 in step 5, rank 1 in step 6; ..."
void steps(const LogLine& line, Story& story) {
  const auto parts = between(line.text, ": the ranks are out of step: ", "; in the call before");
  if (!parts || !has(line.text, "[comm]")) return;
  Finding finding;
  finding.code = "calls.steps";
  finding.severity = Severity::kError;
  finding.confidence = 0.9;
  finding.cause =
      str("the ranks are out of step: ", excerpt(*parts, 200),
          has(line.text, "Gradients of different steps") ? "; gradients of different steps were averaged" : "");
  finding.advice =
      "A rank has made a step with other calls than the others, perhaps all of it in no_sync(). All ranks must leave "
      "no_sync() for the same backward, and make the same calls in every step.";
  add_evidence(finding, line.evidence());
  story.add(std::move(finding));
}

// "memory grows by 737.3 KB per step since step 2000 (6.6 MB by step 2010), allocated at F (prog+0x52ab4) through G; probably ... File and line: addr2line ..."
void leak(const LogLine& line, Story& story) {
  const auto body = after(line.text, "[memory] ");
  const auto site = between(line.text, ", allocated at ", ";");
  if (!body || !site || !body->starts_with("memory grows by ")) return;
  Finding finding = told_by(line, "memory.leak", Severity::kWarning, 0.85);
  finding.cause = excerpt(body->substr(0, std::min(body->find(". File and line: "), body->size())), 500);
  finding.advice = str("File and line: ", excerpt(after(*body, "File and line: ").value_or(""), 300),
                       ". docs/howto/leak.md goes on from here.");
  // It is told again when it has doubled: the newest is the one to show.
  for (Finding& known : story.findings) {
    if (known.code != finding.code || known.ranks != finding.ranks || !has(known.cause, excerpt(*site, 500))) continue;
    known = std::move(finding);
    return;
  }
  story.add(std::move(finding));
}

// "[memory.step] rank 3/8: out of memory: 1.5 GiB were asked for by an operator of module '2' in forward, 347.9 MiB of 3.8 GiB were left (RLIMIT_AS)."
void out_of_memory(const LogLine& line, Story& story) {
  const auto body = after(line.text, "[memory.step] rank ");
  if (!body) return;
  const auto words = after(*body, ": ");
  const auto rank = leading_number<int>(*body);
  if (!words || !rank || !words->starts_with("out of memory")) return;
  Finding finding = told_by(line, "memory.step", Severity::kError, 0.97);
  finding.ranks = {*rank};
  finding.cause = str("rank ", *rank, ": ", excerpt(*words, 400));
  story.add(std::move(finding));
}

// The lines below it: "  held at that moment: ...", "  1. half the batch, ...: saves about 2.3 GiB (enough)".
void out_of_memory_details(const LogLine& line, Story& story) {
  if (story.findings.empty()) return;
  Finding& finding = story.findings.back();
  const bool follows = finding.code == "memory.step" && finding.evidence.front().file == line.file &&
                       line.number - finding.evidence.front().line < 12;
  if (!follows) return;
  std::string_view text = trimmed(line.text);
  if (const size_t held = text.find("held "); held != std::string_view::npos) {
    finding.cause += str(" It ", excerpt(text.substr(held), 300), ".");
    return;
  }
  if (text.size() < 4 || text[0] < '1' || text[0] > '9' || text.substr(1, 2) != ". ") return;
  finding.advice += str(finding.advice.empty() ? "Each of these would save: " : "; ", excerpt(text.substr(3), 200));
}

}  // namespace

std::vector<LogRule> watch_rules() {
  return {{"[launch] HANG: ", &hang},
          {"[launch]   rank", &culprit},
          {" wait for each other: none", &circle},
          {"' goes on, after ", &goes_on},
          {"' has been made, after ", &goes_on},
          {"[launch] Why: ", &why},
          {"[launch] SLOW: ", &slow},
          {"the ranks are out of step: ", &steps},
          {"memory grows by ", &leak},
          {"[memory.step] ", &out_of_memory},
          {"held at that moment: ", &out_of_memory_details},
          {"held when most was held: ", &out_of_memory_details},
          {": saves about ", &out_of_memory_details}};
}

}  // namespace trireme::diagnose
