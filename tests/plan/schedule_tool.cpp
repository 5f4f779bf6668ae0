// Our schedules on the command line, for schedule_torch_test.py: `compute NAME p v m`, `full NAME p v m`, and on stdin's CSV `check`,
// `rewrite` and `lower`.
#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>

#include "trireme/plan/schedule.h"

int main(int argc, char** argv) {
  using namespace trireme::plan;
  try {
    const std::string command = argc > 1 ? argv[1] : "";
    if (argc == 6 && (command == "compute" || command == "full")) {
      const ScheduleOptions options{std::stoi(argv[3]), std::stoi(argv[4]), std::stoi(argv[5])};
      std::cout << write_schedule_csv(
          command == "full" ? make_schedule(argv[2], options) : make_compute_schedule(argv[2], options), true);
      return 0;
    }
    const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
    const ScheduleFile file = read_schedule_csv(text, "stdin");
    if (command == "check") {
      const auto verdict = check_schedule(file.schedule);
      std::cout << (verdict.ok() ? "ok" : verdict.reason()) << '\n';
    } else if (command == "rewrite") {
      std::cout << write_schedule_csv(file.schedule, true);
    } else if (command == "lower") {
      std::cout << write_schedule_csv(add_communication(file.schedule, file.splits_backward), true);
    } else {
      return 2;
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
