#include "diagnose/job/job_log.h"

#include <map>

#include "diagnose/job/flight_recorder.h"
#include "diagnose/job/keyword_set.h"
#include "diagnose/job/last_words.h"
#include "diagnose/job/log_line.h"
#include "diagnose/job/torchrun_report.h"
#include "diagnose/nccl_log.h"
#include "diagnose/scan.h"

namespace trireme::diagnose {
namespace {

/// The rank whose own log this is, by the names that `trireme run` and torchrun give: logs/rank3.err, .../attempt_0/3/stderr.log.
std::optional<int> rank_of_log(std::string_view file) {
  const size_t slash = file.rfind('/');
  const std::string_view name = file.substr(slash + 1);
  if (name.starts_with("rank") && (name.ends_with(".err") || name.ends_with(".out"))) {
    const std::string_view digits = name.substr(4, name.size() - 8);
    return all_digits(digits) && digits.size() < 8 ? leading_number<int>(digits) : std::nullopt;
  }
  if ((name == "stderr.log" || name == "stdout.log") && slash != std::string_view::npos) {
    const std::string_view folder = file.substr(0, slash);
    const std::string_view digits = folder.substr(folder.rfind('/') + 1);
    return all_digits(digits) && digits.size() < 8 ? leading_number<int>(digits) : std::nullopt;
  }
  return std::nullopt;
}

class JobLogReader final : public LineReader {
 public:
  explicit JobLogReader(Story& story)
      : story_(story), rules_(all_rules()), words_(keyword_set()), last_words_(story), torchrun_(story) {}

  [[nodiscard]] const char* kind() const override { return "job log"; }

  void begin_file(const std::string& file) override {
    file_ = file;
    file_rank_ = rank_of_log(file);
    seen_ = false;
    last_words_.begin_file();
    torchrun_.begin_file();
  }

  [[nodiscard]] std::vector<std::string_view> keywords() const override { return all_words(rules_); }
  [[nodiscard]] bool wants_next() const override { return last_words_.is_open() || torchrun_.is_open(); }

  void line(const Line& line) override {
    const KeywordSet::Found found = words_.find(line.text);
    const bool any = KeywordSet::any(found);
    if (!any && !last_words_.is_open() && !torchrun_.is_open()) [[likely]]
      return;
    LogLine one{line.text, file_, line.number, rank_in_front(line.text)};
    if (!one.rank) one.rank = c10d_rank(line.text);
    if (!one.rank) one.rank = file_rank_;
    if (torchrun_.is_open()) torchrun_.line(one);
    if (last_words_.is_open()) last_words_.line(one);
    if (!any) return;
    seen_ = true;
    if (one.rank) story_.ranks_seen.insert(*one.rank);
    size_t index = 0;
    for (; index < rules_.size(); ++index) {
      if (KeywordSet::has(found, index)) rules_[index].take(one, story_);
    }
    for (const std::string_view opening : LastWordsReader::openings()) {
      if (KeywordSet::has(found, index++)) last_words_.open(one, opening);
    }
    if (KeywordSet::has(found, index)) torchrun_.open(one);
  }

  [[nodiscard]] bool end_file() override {
    last_words_.end_file();
    return seen_;
  }

  /// reason() does it, when all files of the job are there.
  void finish(Report& /*report*/) override {}

 private:
  static std::vector<LogRule> all_rules() {
    std::vector<LogRule> all;
    for (auto* rules : {&c10d_rules, &own_rules, &watch_rules, &launcher_rules, &slurm_rules, &memory_rules,
                        &nccl_rules, &known_error_rules}) {
      for (const LogRule& rule : rules()) all.push_back(rule);
    }
    return all;
  }
  static std::vector<std::string_view> all_words(const std::vector<LogRule>& rules) {
    std::vector<std::string_view> words;
    for (const LogRule& rule : rules) words.push_back(rule.word);
    for (const std::string_view opening : LastWordsReader::openings()) words.push_back(opening);
    words.push_back(TorchrunReport::kOpening);
    return words;
  }

  /// The same for all readers, and some milliseconds of work.
  static const KeywordSet& keyword_set() {
    static const KeywordSet words(all_words(all_rules()));
    return words;
  }

  Story& story_;
  std::vector<LogRule> rules_;
  const KeywordSet& words_;
  LastWordsReader last_words_;
  TorchrunReport torchrun_;
  std::string file_;
  std::optional<int> file_rank_;
  bool seen_ = false;
};

}  // namespace

std::unique_ptr<LineReader> make_job_log_reader(Story& story) { return std::make_unique<JobLogReader>(story); }

}  // namespace trireme::diagnose
