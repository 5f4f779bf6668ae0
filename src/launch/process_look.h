// What a process does at this moment, seen from outside: whether it runs, is stopped or gone, its memory, and the stacks of its threads.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace trireme::launch {

struct MemoryUse {
  double now_mb = 0;   ///< VmRSS
  double most_mb = 0;  ///< VmHWM
};
/// Zeros when it cannot be read.
[[nodiscard]] MemoryUse read_memory_use(pid_t pid);

struct StackFrame {
  std::string function;  ///< "?" where nothing names it
  std::string module;    ///< "libc.so.6"
  std::string source;    ///< "loader.cpp:41"; empty without debug information
};
struct ThreadLook {
  pid_t tid = 0;
  char state = '?';  ///< as in /proc/PID/stat, before we looked
  std::string name;
  std::string kernel_wait;  ///< the kernel's function that it sleeps in; may be empty
  std::vector<StackFrame> frames;
};
struct ProcessLook {
  pid_t pid = 0;
  char state = 'X';  ///< as in /proc/PID/stat; 'X' and 'Z': gone
  MemoryUse memory;
  std::vector<ThreadLook> threads;  ///< the first one is the main thread
  std::string text;                 ///< all of it as trireme-stacks prints it
  std::string problem;              ///< why there are no stacks

  [[nodiscard]] bool gone() const { return state == 'X' || state == 'Z'; }
  [[nodiscard]] bool stopped() const { return state == 'T' || state == 't'; }
  /// Whether the main thread is inside a call of communication of ours; false where its stack is not known.
  [[nodiscard]] bool main_thread_communicates() const;
  /// "sleeps (clock_nanosleep) in load_batch(int) at loader.cpp:41, called by train, main"
  [[nodiscard]] std::string words() const;
};

/// With `stacks_program` empty, or when it fails, without stacks, and `problem` says why. Stops each thread for some 0.1 ms. [blocking, until
/// `limit`; thread-safe]
[[nodiscard]] ProcessLook look_at_process(pid_t pid, const std::string& stacks_program,
                                          std::chrono::milliseconds limit);

/// The threads of what trireme-stacks has printed. Any text may come in.
[[nodiscard]] std::vector<ThreadLook> parse_stacks(const std::string& text);

}  // namespace trireme::launch
