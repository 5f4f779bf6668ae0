// What this process says that it is busy with, or in the middle of: kept once, and shown in every collective trace that it has open.
#pragma once

#include <string_view>

namespace trireme::profile {

namespace layout {
struct BusySlot;
}

/// The slot of the scope, for the other two; -1 when as many as can be shown are open. Below 0 `fraction` means none. [thread-safe]
[[nodiscard]] int begin_busy(std::string_view what, double fraction);
/// Where the process is, which is no reason to wait for it: "no_sync()". Ended by end_busy(). [thread-safe]
[[nodiscard]] int begin_note(std::string_view what) noexcept;
void set_busy_fraction(int slot, double fraction) noexcept;
void end_busy(int slot) noexcept;

/// All kBusySlots slots as they are now.
void copy_busy_scopes(layout::BusySlot* out);

/// A trace's kBusySlots slots, from now on kept equal to the process's; until remove_busy_board().
void add_busy_board(layout::BusySlot* slots);
void remove_busy_board(const layout::BusySlot* slots) noexcept;

}  // namespace trireme::profile
