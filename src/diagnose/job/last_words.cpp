#include "diagnose/job/last_words.h"

#include "base/str.h"
#include "diagnose/excerpt.h"
#include "diagnose/nccl_log.h"
#include "diagnose/scan.h"

namespace trireme::diagnose {
namespace {

constexpr std::string_view kTraceback = "Traceback (most recent call last)";
constexpr std::string_view kTerminate = "terminate called after throwing an instance of";
constexpr std::array<std::string_view, 2> kOpenings = {kTraceback, kTerminate};

/// Without what launchers put in front: "[rank1]: ", "[1,1]<stderr>:", "3: ".
std::string_view own_text(std::string_view text) {
  for (int layers = 0; layers < 3 && rank_in_front(text); ++layers) {
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos) break;
    text.remove_prefix(colon + 1);
    if (text.starts_with(' ')) text.remove_prefix(1);
  }
  return text;
}

/// "RuntimeError: ...", "torch.OutOfMemoryError: ...", "KeyboardInterrupt": a dotted name of which the last part is capitalised.
bool is_exception(std::string_view text) {
  const std::string_view name = until(text, ": ");
  if (name.empty() || name.size() > 100) return false;
  const std::string_view last = name.substr(name.rfind('.') + 1);
  if (last.empty() || last[0] < 'A' || last[0] > 'Z') return false;
  return name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._") ==
         std::string_view::npos;
}

}  // namespace

std::span<const std::string_view> LastWordsReader::openings() { return kOpenings; }

void LastWordsReader::open(const LogLine& line, std::string_view opening) {
  constexpr size_t kMostOpen = 4096;
  if (open_.size() >= kMostOpen) return;
  if (opening == kTerminate) {
    open_[line.rank.value_or(-1)] = {line.number, "C++"};
    return;
  }
  open_[line.rank.value_or(-1)] = {line.number, {}};
}

void LastWordsReader::line(const LogLine& line) {
  auto at = open_.find(line.rank.value_or(-1));
  if (at == open_.end() || line.number == at->second.since) return;
  constexpr int64_t kLongest = 3000;  // lines; other ranks' may lie in between
  if (line.number - at->second.since > kLongest) {
    open_.erase(at);
    return;
  }
  const std::string_view text = own_text(line.text);
  Traceback& traceback = at->second;
  if (traceback.where == "C++") {
    const auto what = after(text, "what():");
    if (!what) return;
    Story::keep(story_.last_words, LastWords{line.rank, excerpt(trimmed(*what)), {}, line.evidence()});
    open_.erase(at);
    return;
  }
  if (text.starts_with("  ") || text.starts_with('\t') || text.empty()) {
    // `  File "train.py", line 41, in step`
    const auto file = between(text, "File \"", "\"");
    const auto number = after(text, ", line ");
    if (file && number && !has(*file, "/site-packages/")) {
      traceback.where = str(excerpt(*file, 200), ":", leading_number<int64_t>(*number).value_or(0));
    }
    return;
  }
  if (!is_exception(text)) return;
  Story::keep(story_.last_words, LastWords{line.rank, excerpt(text), traceback.where, line.evidence()});
  open_.erase(at);
}

}  // namespace trireme::diagnose
