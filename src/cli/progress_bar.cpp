#include "cli/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace trireme::cli {
namespace {

constexpr int kBarWidth = 24;
constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::chrono::seconds kNewLine{10};

}  // namespace

ProgressBar::ProgressBar(int64_t done)
    : terminal_(isatty(STDERR_FILENO) == 1), start_(Clock::now()), last_draw_(start_ - kNewLine), first_done_(done) {}

void ProgressBar::update(int64_t done, int64_t total, const std::string& text) {
  const auto now = Clock::now();
  if (done < total &&
      now - last_draw_ < (terminal_ ? std::chrono::milliseconds(kRedraw) : std::chrono::milliseconds(kNewLine)))
    return;
  last_draw_ = now;
  const double elapsed_s = std::chrono::duration<double>(now - start_).count();
  const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1.0;
  const double rate = elapsed_s > 0 ? static_cast<double>(done - first_done_) / elapsed_s : 0;
  const auto left_s = rate > 0 ? static_cast<int64_t>(static_cast<double>(total - done) / rate) : 0;
  std::string bar(kBarWidth, '.');
  std::fill_n(bar.begin(), std::clamp(static_cast<int>(share * kBarWidth), 0, kBarWidth), '#');
  // \033[K clears what a longer line before left behind.
  std::fprintf(stderr, "%s[%s] %3.0f%%  %s  %lld:%02lld left%s", terminal_ ? "\r\033[K" : "", bar.c_str(), share * 100,
               text.c_str(), static_cast<long long>(left_s / 60), static_cast<long long>(left_s % 60),
               terminal_ ? "" : "\n");
  std::fflush(stderr);
  open_line_ = terminal_;
}

void ProgressBar::finish() {
  if (open_line_) std::fputc('\n', stderr);
  open_line_ = false;
}

}  // namespace trireme::cli
