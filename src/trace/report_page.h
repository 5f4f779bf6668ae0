// The page of `trireme trace report --html`, which CMake makes a constant of: report_page.html.
#pragma once

namespace trireme::trace {

extern const char* const kReportPage;

}  // namespace trireme::trace
