// A group of ranks that communicate with each other.
//
// [collective]: all ranks of the group must call it, in the same order. [local]: any rank may.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace c10d {
class ProcessGroup;
}

namespace trireme::comm {

struct GroupState;

/// Purpose       Names an ordered set of ranks and how they reach each other. A value: copies refer to the same group.
/// Invariants    rank() is this rank's index in global_ranks(). In a group of size 1 every collective returns its
///               input, so code has no branch for "am I distributed?".
/// Thread safety One collective at a time per group; different groups may be used from different threads.
/// Lifetime      The group leaves when its last copy (and the ProcessGroup it handed out) is gone; peers that still
///               wait for this rank then get kPeerLost. In a forked child a Group does nothing and must not be used; it may be destroyed.
class Group {
 public:
  /// The world of one: rank 0 of 1. [local]
  Group();
  explicit Group(std::shared_ptr<GroupState> state);

  [[nodiscard]] int rank() const noexcept;  ///< within the group
  [[nodiscard]] int size() const noexcept;
  [[nodiscard]] const std::vector<int>& global_ranks() const noexcept;  ///< of the members, in order of their rank here
  [[nodiscard]] const std::string& name() const noexcept;               ///< "world", "dp_shard", ...
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept;     ///< of every call
  [[nodiscard]] const std::string& backend_name() const noexcept;       ///< "host"

  /// The ProcessGroup behind it: code written against c10d, c10d::Reducer and the functional collectives work on it.
  [[nodiscard]] const c10::intrusive_ptr<c10d::ProcessGroup>& c10d() const noexcept;

  /// A group of some of these ranks. [collective among `ranks` only, blocking]
  ///
  /// ranks    ranks within this group, each once, in the order they shall have in the new group; this rank is one.
  /// name     for messages and traces; empty: "<this>/<ranks>".
  /// Errors   kInvalidArgument   a rank out of range or twice, or this rank is not among them.
  ///          kPeerLost kTimeout while the members meet: a member died, left this group, or did not come; named.
  /// Cost     some ten messages to the job's store per rank. Address space of n (n + 2) 256 KiB, of which only what is used costs memory, two
  ///          file descriptors, and a thread from the first call on.
  [[nodiscard]] Group subgroup(const std::vector<int>& ranks, const std::string& name = {}) const;

  /// For the library itself.
  [[nodiscard]] GroupState& state() const noexcept { return *state_; }

 private:
  std::shared_ptr<GroupState> state_;
};

}  // namespace trireme::comm
