// Walks a scattered list of segments in runs of at most so many elements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "comm/algorithms/communicator.h"

namespace trireme::comm {

class SegmentCursor {
 public:
  SegmentCursor(std::span<const Segment> segments, size_t element_bytes)
      : segments_(segments), element_bytes_(element_bytes) {
    skip_empty();
  }

  [[nodiscard]] static size_t total(std::span<const Segment> segments) {
    size_t count = 0;
    for (const Segment& segment : segments) count += segment.count;
    return count;
  }

  /// Calls visit(in, out, count) for the next `count` elements, piece by piece.
  template <typename Visit>
  void advance(size_t count, Visit&& visit) {
    while (count > 0) {
      const Segment& segment = segments_[index_];
      const size_t run = std::min(count, segment.count - offset_);
      const size_t at = offset_ * element_bytes_;
      visit(static_cast<const std::byte*>(segment.in) + at, static_cast<std::byte*>(segment.out) + at, run);
      count -= run;
      offset_ += run;
      skip_empty();
    }
  }

 private:
  void skip_empty() {
    while (index_ < segments_.size() && offset_ == segments_[index_].count) {
      ++index_;
      offset_ = 0;
    }
  }

  std::span<const Segment> segments_;
  size_t element_bytes_;
  size_t index_ = 0;
  size_t offset_ = 0;
};

}  // namespace trireme::comm
