#include "diagnose/line_source.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/str.h"
#include "diagnose/excerpt.h"
#include "trireme/base/error.h"

namespace trireme::diagnose {
namespace {

/// Purpose  Puts lines together from blocks. What is at hand whole is passed on where it lies; only a line that spans blocks is copied.
class Splitter {
 public:
  explicit Splitter(const std::function<bool(const Line&)>& each) : each_(each) {}

  bool feed(std::string_view block) {
    read_.bytes += static_cast<int64_t>(block.size());
    while (!block.empty()) {
      const void* end = std::memchr(block.data(), '\n', block.size());
      const size_t size =
          end == nullptr ? block.size() : static_cast<size_t>(static_cast<const char*>(end) - block.data());
      if (!pieces(block.substr(0, size), end != nullptr)) return false;
      if (end == nullptr) break;
      ++number_;
      block.remove_prefix(size + 1);
    }
    return true;
  }

  LinesRead finish(bool wanted) {
    read_.ends_in_line = !held_.empty();
    if (wanted && !held_.empty()) give(held_);
    read_.lines = number_ - 1 + (read_.ends_in_line || open_ ? 1 : 0);
    return read_;
  }

 private:
  /// A part of one line, or its end. Carriage returns divide it.
  bool pieces(std::string_view part, bool ended) {
    open_ = !ended;
    for (;;) {
      const void* found = part.empty() ? nullptr : std::memchr(part.data(), '\r', part.size());
      if (found == nullptr) break;
      const auto size = static_cast<size_t>(static_cast<const char*>(found) - part.data());
      hold(part.substr(0, size));
      if (!held_.empty() && !flush()) return false;
      part.remove_prefix(size + 1);
    }
    if (!ended) {
      hold(part);
      return true;
    }
    // The "\r" of "\r\n" ends the line; there is no empty piece after it.
    const bool more = !given_ || !part.empty() || !held_.empty();
    given_ = false;
    if (!more) return true;
    if (held_.empty() && !skipping_) return give(part);
    hold(part);
    const bool go_on = flush();
    given_ = false;
    return go_on;
  }

  void hold(std::string_view part) {
    const size_t room = kLongestLine - held_.size();
    if (part.size() > room) skipping_ = true;
    held_.append(part.substr(0, room));
  }

  bool flush() {
    const bool go_on = give(held_);
    held_.clear();
    skipping_ = false;
    given_ = true;
    return go_on;
  }

  bool give(std::string_view text) {
    const bool cut = skipping_ || text.size() > kLongestLine;
    if (cut) ++read_.cut_lines;
    text = text.substr(0, kLongestLine);
    if (!text.empty() && std::memchr(text.data(), '\x1b', text.size()) != nullptr) {
      const std::string plain = without_escapes(text);
      return each_({plain, number_, cut});
    }
    return each_({text, number_, cut});
  }

  const std::function<bool(const Line&)>& each_;
  std::string held_;
  bool skipping_ = false;  ///< the line is longer than what is kept
  bool given_ = false;     ///< a piece of this line has been passed on
  bool open_ = false;      ///< bytes have come since the last "\n"
  int64_t number_ = 1;
  LinesRead read_;
};

}  // namespace

LinesRead read_lines(int fd, const std::string& name, const std::function<bool(const Line&)>& each,
                     std::string_view head) {
  constexpr size_t kBlock = size_t{256} << 10;
  std::vector<char> block(kBlock);
  Splitter splitter(each);
  if (!splitter.feed(head)) return splitter.finish(false);
  for (;;) {
    const ssize_t size = read(fd, block.data(), block.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) throw Error(ErrorKind::kIo, str("[diagnose.read] ", name, ": ", std::strerror(errno), "."));
    if (size == 0) return splitter.finish(true);
    if (!splitter.feed({block.data(), static_cast<size_t>(size)})) return splitter.finish(false);
  }
}

LinesRead split_lines(std::string_view text, const std::function<bool(const Line&)>& each) {
  Splitter splitter(each);
  return splitter.finish(splitter.feed(text));
}

}  // namespace trireme::diagnose
