#include "launch/line_splitter.h"

#include <algorithm>

namespace trireme::launch {

void LineSplitter::emit(std::string_view line, std::string& out) const {
  out += prefix_;
  out += line;
  out += '\n';
}

void LineSplitter::add(std::string_view bytes, std::chrono::steady_clock::time_point now, std::string& out) {
  while (!bytes.empty()) {
    if (return_pending_) {
      return_pending_ = false;
      if (bytes.front() != '\n') {
        if (!partial_.empty() && now - last_rewrite_ >= std::chrono::seconds(1)) {
          emit(partial_, out);
          last_rewrite_ = now;
        }
        partial_.clear();
      }
    }
    const size_t stop = bytes.find_first_of("\r\n");
    const std::string_view text = bytes.substr(0, std::min(stop, kMaxLineBytes - partial_.size()));
    partial_ += text;
    bytes.remove_prefix(text.size());
    if (partial_.size() >= kMaxLineBytes) {
      emit(partial_, out);
      partial_.clear();
      // A line end right behind the last piece belongs to it.
      if (!bytes.empty() && bytes.front() == '\n') bytes.remove_prefix(1);
      continue;
    }
    if (bytes.empty()) break;
    return_pending_ = bytes.front() == '\r';
    if (!return_pending_) {
      emit(partial_, out);
      partial_.clear();
    }
    bytes.remove_prefix(1);
  }
}

void LineSplitter::finish(std::string& out) {
  if (!partial_.empty()) emit(partial_, out);
  partial_.clear();
  return_pending_ = false;
}

}  // namespace trireme::launch
