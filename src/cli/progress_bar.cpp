#include "cli/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace trireme::cli {
namespace {

constexpr int kBarWidth = 24;
constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::chrono::milliseconds kNewLine{10'000};

// \033[K clears what a longer line before left behind. Between \033[?7l and \033[?7h a terminal cuts a line that is too long for it; a line
// that is wrapped could not be redrawn.
constexpr const char* kBegin = "\r\033[K\033[?7l";
constexpr const char* kEnd = " \033[?7h";  // what is cut off ends up in the last column, the blank last

}  // namespace

bool stderr_is_shown_on_terminal() {
  if (isatty(STDERR_FILENO) == 1) return true;
  const char* told = std::getenv("TRIREME_TERMINAL");
  return told != nullptr && std::string_view(told) == "1";
}

ProgressBar::ProgressBar(int64_t done, bool terminal)
    : terminal_(terminal), start_(Clock::now()), last_draw_(start_ - kNewLine), first_done_(done) {}

void ProgressBar::update(int64_t done, int64_t total, const std::string& text) {
  total_ = total;
  text_ = text;
  if (done >= total || Clock::now() - last_draw_ >= (terminal_ ? kRedraw : kNewLine)) draw(done);
}

void ProgressBar::advance(int64_t done) {
  if (terminal_ && total_ > 0 && Clock::now() - last_draw_ >= kRedraw) draw(done);
}

void ProgressBar::draw(int64_t done) {
  last_draw_ = Clock::now();
  const double elapsed_s = std::chrono::duration<double>(last_draw_ - start_).count();
  const double share = total_ > 0 ? static_cast<double>(done) / static_cast<double>(total_) : 1.0;
  const double rate = elapsed_s > 0 ? static_cast<double>(done - first_done_) / elapsed_s : 0;
  const auto left_s = rate > 0 ? static_cast<int64_t>(static_cast<double>(total_ - done) / rate) : 0;
  std::string bar(kBarWidth, '.');
  std::fill_n(bar.begin(), std::clamp(static_cast<int>(share * kBarWidth), 0, kBarWidth), '#');
  // What a narrow terminal cuts off stands last.
  std::fprintf(stderr, "%s[%s] %3.0f%%  %lld:%02lld left  %s%s", terminal_ ? kBegin : "", bar.c_str(), share * 100,
               static_cast<long long>(left_s / 60), static_cast<long long>(left_s % 60), text_.c_str(),
               terminal_ ? kEnd : "\n");
  std::fflush(stderr);
  open_line_ = terminal_;
}

void ProgressBar::finish() {
  if (open_line_) std::fputc('\n', stderr);
  open_line_ = false;
}

}  // namespace trireme::cli
