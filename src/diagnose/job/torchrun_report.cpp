#include "diagnose/job/torchrun_report.h"

#include "diagnose/excerpt.h"
#include "diagnose/scan.h"

namespace trireme::diagnose {

void TorchrunReport::open(const LogLine& line) {
  if (trimmed(line.text.substr(line.text.find(kOpening))) != kOpening) return;
  open_ = true;
  root_ = false;
  has_rank_ = false;
  since_ = line.number;
  end_ = {};
}

void TorchrunReport::put() {
  if (has_rank_) {
    end_.first = root_;
    Story::keep(story_.ends, end_);
  }
  has_rank_ = false;
  end_ = {};
}

void TorchrunReport::line(const LogLine& line) {
  constexpr int64_t kLongest = 4000;
  if (line.number - since_ > kLongest) open_ = false;
  const std::string_view text = line.text;
  const auto value = [&text](std::string_view key) -> std::optional<std::string_view> {
    const auto rest = after(text, key);
    if (!rest) return std::nullopt;
    const auto colon = after(*rest, ": ");
    return colon ? std::optional(trimmed(*colon)) : std::nullopt;
  };
  if (has(text, "Root Cause (first observed failure)")) {
    put();
    root_ = true;
  } else if (has(text, "======")) {
    put();
    open_ = false;
  } else if (const auto host = value("  host  ")) {
    put();
    end_.host = excerpt(*host, 100);
  } else if (const auto rank = value("  rank  ")) {
    end_.rank = leading_number<int>(*rank);
    has_rank_ = end_.rank.has_value();
    end_.evidence = line.evidence();
  } else if (const auto code = value("  exitcode")) {
    const int number = leading_number<int>(*code).value_or(1);
    if (number < 0) {
      end_.signal = -number;
    } else {
      end_.exit_code = number;
    }
    if (const auto pid = after(*code, "(pid: ")) end_.pid = leading_number<int64_t>(*pid).value_or(0);
    end_.evidence = line.evidence();
  } else if (const auto file = value("  error_file")) {
    if (*file != "<N/A>") end_.log = excerpt(*file, 300);
  }
}

}  // namespace trireme::diagnose
