// The members of a group come together in a store, before they share anything else: who is missing is known by name, and what ends the wait
// on one rank ends it on all.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/transport/communicator_options.h"
#include "trireme/base/error.h"
#include "trireme/rendezvous/store.h"

namespace trireme::comm {

/// Purpose       Waits of one meeting, all under one deadline, options.timeout from the construction.
/// Invariants    Whoever gives up writes why into the store, the first one counts, and all others throw that.
/// Thread safety None.
/// Lifetime      What it was made with must live longer.
class Gathering {
 public:
  /// Tells the others that this rank has come. `store` is fresh for this meeting; `root` is where the launcher leaves death notices; `watch`
  /// may be empty.
  Gathering(rendezvous::Store& store, rendezvous::Store& root, int rank, int size, const CommunicatorOptions& options,
            MeetingWatch watch);

  /// To be called about 20 times a second by a rank that waits for those group ranks of which `is_missing` says so at that moment. Throws
  /// kPeerLost when one of them died or left, kTimeout naming those who never came, or what another rank gave up for.
  void look(const IsMissing& is_missing);

  /// Waits for a key of the meeting's store.
  [[nodiscard]] std::string await_key(const std::string& key);

  /// When something failed that only a peer's death or giving up explains: throws that as soon as it is known, returns after half a second.
  void await_cause();

  /// Lets the others give up as well, unless they have.
  void give_up(const Error& error) noexcept;

  [[nodiscard]] std::chrono::milliseconds time_left() const;

 private:
  /// Those who have not come, else those who came and are not done (true); global ranks.
  [[nodiscard]] std::pair<std::vector<int>, bool> late_ranks(const IsMissing& is_missing);
  void tell_of_wait(const IsMissing& is_missing);
  [[noreturn]] void report_timeout(const IsMissing& is_missing);
  [[noreturn]] void give_up_for(ErrorKind kind, const std::string& text);
  [[nodiscard]] int global_rank(int rank) const;
  [[nodiscard]] std::string prefix() const;

  rendezvous::Store& store_;
  rendezvous::Store& root_;
  int rank_;
  int size_;
  const CommunicatorOptions& options_;
  MeetingWatch watch_;
  std::chrono::steady_clock::time_point deadline_;
  std::chrono::steady_clock::time_point tell_at_;  ///< of ranks that no launcher watches
};

/// Runs one rank's part of a meeting; if that throws, the others learn why.
template <typename Part>
auto gather(Gathering& gathering, Part&& part) {
  try {
    return part();
  } catch (const Error& error) {
    gathering.give_up(error);
    throw;
  }
}

}  // namespace trireme::comm
