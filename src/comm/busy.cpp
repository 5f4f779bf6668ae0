#include "trireme/comm/busy.h"

#include "profile/busy_board.h"

namespace trireme::comm {

BusyScope::BusyScope(std::string_view what, double fraction) : slot_(profile::begin_busy(what, fraction)) {}
BusyScope::~BusyScope() { profile::end_busy(slot_); }
void BusyScope::progress(double fraction) noexcept { profile::set_busy_fraction(slot_, fraction); }

}  // namespace trireme::comm
