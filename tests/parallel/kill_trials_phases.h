// What kill_trials_test and the ranks that it starts have in common.
#pragma once

#include <array>
#include <string_view>

namespace trireme::testing {

/// The phases of a run in which a rank may be killed, in the order in which a run goes through them.
inline constexpr std::array<std::string_view, 6> kPhases = {
    "init", "first collective", "bucket rebuild", "steady state", "save", "teardown"};
enum Phase : int { kInit, kFirstCollective, kBucketRebuild, kSteadyState, kSave, kTeardown, kNumPhases };

/// Steps of the two checkpoints that a run saves: after its first step, and in the phase "save".
inline constexpr int kFirstStep = 1;
inline constexpr int kLastStep = 41;

/// Checkpoints hold this tensor, with the step in each of its elements.
inline constexpr std::string_view kMarkName = "mark";
inline constexpr int kMarkElements = 1 << 20;

// In the folder of a run:
inline constexpr std::string_view kEvents = "/events";       ///< FIFO: lines "RANK WORD ..." from ranks to the test
inline constexpr std::string_view kGate = "/gate";           ///< FIFO: ranks begin with init when it is opened
inline constexpr std::string_view kLateGate = "/late-gate";  ///< the same for the one rank that comes late
inline constexpr std::string_view kCheckpoints = "/checkpoints";

}  // namespace trireme::testing
