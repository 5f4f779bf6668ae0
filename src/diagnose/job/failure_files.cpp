#include "diagnose/job/failure_files.h"

#include "base/str.h"
#include "diagnose/excerpt.h"
#include "diagnose/job/log_line.h"
#include "diagnose/scan.h"

namespace trireme::diagnose {
namespace {

using pickle::Kind;
using pickle::Value;

std::string text(const Value& dict, std::string_view key, size_t most = 300) {
  const Value* value = dict.find(key);
  return value == nullptr ? std::string{} : excerpt(value->str(), most);
}

int64_t integer(const Value& dict, std::string_view key, int64_t otherwise) {
  const Value* value = dict.find(key);
  return value == nullptr ? otherwise : value->int_or(otherwise);
}

RankEnd end_of(const Value& told, const Value& report, const std::string& file) {
  RankEnd end;
  const int64_t rank = integer(told, "rank", -1);
  if (rank >= 0 && rank < (int64_t{1} << 24)) end.rank = static_cast<int>(rank);
  end.pid = integer(told, "pid", 0);
  end.host = text(report, "host");
  const std::string signal = text(told, "signal");
  if (!signal.empty()) {
    end.signal = signal_of(signal);
  } else {
    end.exit_code = static_cast<int>(integer(told, "exit_code", 0));
  }
  const Value* by = told.find("by_launcher");
  end.by_launcher = by != nullptr && by->int_or(0) != 0;
  end.hint = text(told, "hint");
  end.log = text(told, "log");
  end.evidence = {file, 0,
                  str("rank ", rank, " ", signal.empty() ? str("exit code ", end.exit_code.value_or(0)) : signal)};
  return end;
}

/// "rank3.error.json", ".../attempt_0/3/error.json".
std::optional<int> rank_of_error_file(std::string_view file) {
  const size_t slash = file.rfind('/');
  const std::string_view name = file.substr(slash + 1);
  if (name.starts_with("rank")) return leading_number<int>(name.substr(4));
  if (slash == std::string_view::npos) return std::nullopt;
  const std::string_view folder = file.substr(0, slash);
  const std::string_view digits = folder.substr(folder.rfind('/') + 1);
  return all_digits(digits) && digits.size() < 8 ? leading_number<int>(digits) : std::nullopt;
}

/// The last file and line that a Python call stack names.
std::string innermost(std::string_view stack) {
  std::string where;
  for (auto rest = after(stack, "File \""); rest; rest = after(*rest, "File \"")) {
    const std::string_view name = until(*rest, "\"");
    const auto line = leading_number(after(*rest, "\", line ").value_or(""));
    if (line && !has(name, "/site-packages/")) where = str(excerpt(name, 200), ":", *line);
  }
  return where;
}

std::vector<int> ranks_of(const Value& dict, std::string_view key) {
  std::vector<int> ranks;
  const Value* list = dict.find(key);
  if (list == nullptr || !list->is_sequence()) return ranks;
  for (const Value* one : list->items) {
    const int64_t rank = one->int_or(-1);
    if (rank >= 0 && rank < (int64_t{1} << 24)) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

/// One entry of hang.json. Ranks that are busy are no hang.
void add_hang(const Value& told, const std::string& file, Story& story) {
  if (!told.is(Kind::kDict)) return;
  ToldHang hang;
  const int64_t call = integer(told, "call", 0);
  const int64_t step = integer(told, "step", 0);
  const std::string kind = text(told, "kind");
  if (kind == "over") {
    const std::string where =
        str("group '", text(told, "group", 100), "'", call == 0 ? std::string(", which") : str(" call ", call, ","));
    for (ToldHang& earlier : story.hangs) {
      if (earlier.evidence.file == file && earlier.where.starts_with(where)) earlier.over = true;
    }
  }
  if (kind != "hang") return;
  hang.where = str("group '", text(told, "group", 100), "'",
                   call == 0 ? std::string(", which is being made") : str(" call ", call, ", ", text(told, "what")),
                   step > 0 ? str(", step ", step) : "");
  if (text(told, "what") == "the end") hang.where = "the end of the job";
  hang.waiting = ranks_of(told, "waiting");
  hang.late = ranks_of(told, "late");
  hang.circle = ranks_of(told, "circle");
  hang.evidence = {file, 0, hang.where};
  const Value* culprits = told.find("culprits");
  if (culprits != nullptr && culprits->is_sequence()) {
    for (const Value* one : culprits->items) {
      const int64_t rank = integer(*one, "rank", -1);
      if (rank < 0 || rank >= (int64_t{1} << 24)) continue;
      Story::keep(hang.culprits,
                  ToldHang::Culprit{static_cast<int>(rank), integer(*one, "pid", 0), text(*one, "words")});
    }
  }
  Story::keep(story.hangs, std::move(hang));
}

}  // namespace

bool is_failure_file(std::string_view head) {
  if (has(head, "\"ends\"") && has(head, "\"num_ranks\"")) return true;
  if (has(head, "\"hangs\"") && has(head, "\"waited_s\"")) return true;
  return has(head, "\"message\"") &&
         (has(head, "\"py_callstack\"") || has(head, "\"errorTraits\"") || has(head, "\"extraInfo\""));
}

std::string add_failure_file(const Value& root, const std::string& file, Story& story) {
  if (const Value* hangs = root.find("hangs"); hangs != nullptr && hangs->is_sequence()) {
    for (const Value* told : hangs->items) add_hang(*told, file, story);
    return {};
  }
  if (const Value* ends = root.find("ends"); ends != nullptr && ends->is_sequence()) {
    story.tell_world_size(integer(root, "num_ranks", 0));
    const Value* first = root.find("first");
    const int64_t first_rank = first == nullptr ? -1 : integer(*first, "rank", -1);
    for (const Value* told : ends->items) {
      RankEnd end = end_of(*told, root, file);
      if (first != nullptr && integer(*told, "rank", -2) == first_rank &&
          integer(*told, "pid", -2) == integer(*first, "pid", -1)) {
        end = end_of(*first, root, file);
        end.first = true;
      }
      if (end.signal != 0 || end.exit_code.value_or(0) != 0) Story::keep(story.ends, std::move(end));
    }
    return {};
  }
  const Value* message = root.find("message");
  if (message == nullptr) return "JSON of a kind that is not known";
  LastWords words;
  words.rank = rank_of_error_file(file);
  if (message->is(Kind::kDict)) {
    words.text = text(*message, "message", 600);
    if (const Value* extra = message->find("extraInfo")) {
      if (const Value* stack = extra->find("py_callstack")) words.where = innermost(stack->str());
    }
  } else {
    words.text = excerpt(message->str(), 600);
  }
  words.evidence = {file, 0, words.text};
  if (words.rank) story.ranks_seen.insert(*words.rank);
  if (!words.text.empty() && words.text != "<NONE>") Story::keep(story.last_words, std::move(words));
  return {};
}

}  // namespace trireme::diagnose
