// The time that this process has waited for data (trireme/profile/data_wait.h): shown in every collective trace that it has open.
#pragma once

namespace trireme::profile {

namespace layout {
struct DataWaits;
}

/// A trace's board, which from now on gets every wait; until remove_data_waits_board().
void add_data_waits_board(layout::DataWaits* board);
void remove_data_waits_board(const layout::DataWaits* board) noexcept;

/// What the board says at one moment.
void copy_data_waits(const layout::DataWaits& board, layout::DataWaits& out);

}  // namespace trireme::profile
