// What goes wrong in a rank between its calls; shared by the rank programs of fault_injection_test with and without LibTorch. In no namespace
// of ours, as the code of a user.
#pragma once

#include <string>
#include <vector>

/// A line on standard output, at once.
void say(const std::string& text);

/// As a program that evaluates for so long.
void evaluate(double seconds);

/// The culprit writes "fault NS", the monotonic time, and does what the name says; returns at once where that is a wrong call, which is
/// the caller's to make. `memory` ends by what `allocate` throws when 512 MiB more than now are used.
void do_fault(const std::string& fault, void (*allocate)(size_t bytes));

/// The main() of a rank program: runs `train` on its arguments. Our errors and std::runtime_error are told and end it in good order; what means
/// "out of memory" (std::bad_alloc, LibTorch's) ends it as a program without a handler.
int run_rank(int argc, char** argv, int (*train)(const std::vector<std::string>& args));
