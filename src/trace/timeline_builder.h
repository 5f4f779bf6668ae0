// Takes the events of a Chrome trace one by one and keeps what a Timeline needs. Private to read_timeline.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/activity.h"
#include "trace/chrome_event.h"
#include "trace/timeline.h"

namespace trireme::trace {

class TimelineBuilder {
 public:
  void take(const ChromeEvent& event, EventParser& parser);

  /// Closes what is open, joins kernels and their descriptions, drops what a GPU's trace does not need, sorts.
  [[nodiscard]] Timeline finish();

  Timeline& timeline() { return timeline_; }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  struct OpenSpan {
    std::string name;
    std::string category;
    int64_t start_ns = 0;
  };
  /// A call whose description may still come, under its external id.
  struct PendingCall {
    Call call;
    int64_t external_id = -1;
    bool described = false;
  };

  void complete(const ChromeEvent& event, int64_t duration_ns, EventParser* parser);
  void metadata(const ChromeEvent& event, EventParser& parser);
  void collective(const ChromeEvent& event, const EventClass& what, int64_t end_ns, EventParser* parser);
  void describe(Call& call, const CollectiveArgs& args, std::string_view name);
  uint32_t group_of(const CollectiveArgs& args);
  uint32_t name_of(std::string_view name);
  uint16_t lane_of(const ChromeEvent& event, bool device);
  void seen(int64_t start_ns, int64_t end_ns);
  void join_descriptions();
  void keep_one_side();

  Timeline timeline_;
  std::unordered_map<std::string, uint32_t, Hash, std::equal_to<>> names_;
  std::unordered_map<std::string, uint16_t, Hash, std::equal_to<>> lanes_;
  std::unordered_map<std::string, uint32_t, Hash, std::equal_to<>> groups_;
  std::map<std::string, std::vector<OpenSpan>> open_;  ///< by lane
  std::vector<PendingCall> device_calls_;
  std::vector<PendingCall> host_calls_;
  std::unordered_map<int64_t, CollectiveArgs> descriptions_;  ///< by external id
  std::string lane_key_;
  std::string last_lane_key_;
  uint16_t last_lane_ = 0;
  bool any_ = false;
};

}  // namespace trireme::trace
