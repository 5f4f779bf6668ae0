// trireme-stacks PID [FILE RANK]: the stacks of all threads of a process, taken from outside, so that a process that is stopped, spins, or is inside
// malloc shows them too. A program of its own, since only it needs libdw, and since whoever waits for it can end it.
//
// Each thread is held only while its frames are counted; names are looked up when all threads run again. Output:
//
//   memory VmHWM 1204 VmRSS 1180 VmSwap 0          MB
//   thread 4121 S train futex_wait_queue           number, state, name, what it waits for in the kernel
//     #0 pthread_mutex_lock+0x12f libc.so.6
//     #1 load_batch(int) train loader.cpp:41
//
// With FILE it goes there, behind a line about the rank, and appears when it is whole. Exit code 0; 1 where not even one thread could be looked at, with the reason on stderr.
#include <cxxabi.h>
#include <dirent.h>
#include <elfutils/libdwfl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr size_t kMostFrames = 100;
constexpr size_t kMostThreads = 512;

struct Thread {
  pid_t tid = 0;
  std::vector<Dwarf_Addr> frames;  ///< addresses inside the calling instruction
  std::string error;
};

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Nothing is fetched from elsewhere: what the files themselves hold must do, and quickly.
int find_no_debug_files(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*, GElf_Word, char**) {
  return -1;
}

int take_frame(Dwfl_Frame* frame, void* arg) {
  auto* thread = static_cast<Thread*>(arg);
  Dwarf_Addr pc = 0;
  bool is_activation = false;
  if (!dwfl_frame_pc(frame, &pc, &is_activation)) {
    thread->error = dwfl_errmsg(-1);
    return DWARF_CB_ABORT;
  }
  thread->frames.push_back(is_activation ? pc : pc - 1);
  return thread->frames.size() < kMostFrames ? DWARF_CB_OK : DWARF_CB_ABORT;
}

std::vector<pid_t> threads_of(pid_t pid) {
  std::vector<pid_t> tids;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(("/proc/" + std::to_string(pid) + "/task").c_str()),
                                                   &closedir);
  while (folder != nullptr) {
    const dirent* entry = readdir(folder.get());
    if (entry == nullptr) break;
    if (entry->d_name[0] != '.') tids.push_back(static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10)));
  }
  std::sort(tids.begin(), tids.end());
  if (tids.size() > kMostThreads) tids.resize(kMostThreads);
  return tids;
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 && text ? text.get() : name;
}

std::string base_name(const char* path) {
  const char* slash = path != nullptr ? std::strrchr(path, '/') : nullptr;
  return slash != nullptr ? slash + 1 : (path != nullptr ? path : "?");
}

std::string describe(Dwfl* dwfl, Dwarf_Addr address) {
  Dwfl_Module* module = dwfl_addrmodule(dwfl, address);
  if (module == nullptr) return "? ?";
  std::string text = "?";
  GElf_Off offset = 0;
  GElf_Sym symbol{};
  // A stripped library has only the names that it exports: one that ends before the address is another function's.
  const char* name = dwfl_module_addrinfo(module, address, &offset, &symbol, nullptr, nullptr, nullptr);
  if (name != nullptr && (symbol.st_size == 0 || offset < symbol.st_size)) text = demangled(name);
  text += " " + base_name(dwfl_module_info(module, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr));
  int line = 0;
  Dwfl_Line* source = dwfl_module_getsrc(module, address);
  const char* file = source != nullptr ? dwfl_lineinfo(source, nullptr, &line, nullptr, nullptr, nullptr) : nullptr;
  // A line of a system header is that of something inlined, and says little.
  if (file != nullptr && std::strncmp(file, "/usr/", 5) != 0)
    text += " " + base_name(file) + ":" + std::to_string(line);
  return text;
}

void print_memory(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::string line = "memory";
  for (std::string text; std::getline(status, text);) {
    for (const char* field : {"VmHWM:", "VmRSS:", "VmSwap:"}) {
      if (!text.starts_with(field)) continue;
      const double kib = std::strtod(text.c_str() + std::strlen(field), nullptr);
      char number[64];
      std::snprintf(number, sizeof(number), " %.*s %.0f", static_cast<int>(std::strlen(field)) - 1, field,
                    kib * 1024e-6);
      line += number;
    }
  }
  // A process that ends gives back its memory first, and is there for a while without.
  if (line == "memory") line += " is given back: the process is ending";
  std::puts(line.c_str());
}

char state_of(pid_t pid, pid_t tid) {
  const std::string stat = first_line("/proc/" + std::to_string(pid) + "/task/" + std::to_string(tid) + "/stat");
  const size_t close = stat.rfind(')');
  return close != std::string::npos && close + 2 < stat.size() ? stat[close + 2] : '?';
}

}  // namespace

int main(int argc, char** argv) {
  pid_t pid = 0;
  const bool good = (argc == 2 || argc == 4) &&
                    std::from_chars(argv[1], argv[1] + std::strlen(argv[1]), pid).ec == std::errc{} && pid > 0;
  const std::string file = argc == 4 ? argv[2] : "";
  if (!good) {
    std::fputs("usage: trireme-stacks PID [FILE RANK]\nPrints the stacks of all threads of a process.\n", stderr);
    return 2;
  }
  const std::vector<pid_t> tids = threads_of(pid);
  if (tids.empty()) {
    std::fprintf(stderr, "[stacks] there is no process %d that may be looked at.\n", pid);
    return 1;
  }
  if (!file.empty()) {
    if (std::freopen((file + ".new").c_str(), "w", stdout) == nullptr) {
      std::perror((file + ".new").c_str());
      return 1;
    }
    std::printf("rank %s pid %d\n", argv[3], pid);
  }
  print_memory(pid);
  std::string states;  // before we stop them
  std::vector<std::string> waits;
  for (const pid_t tid : tids) {
    states += state_of(pid, tid);
    waits.push_back(first_line("/proc/" + std::to_string(pid) + "/task/" + std::to_string(tid) + "/wchan"));
  }
  const Dwfl_Callbacks callbacks = {.find_elf = dwfl_linux_proc_find_elf,
                                    .find_debuginfo = find_no_debug_files,
                                    .section_address = nullptr,
                                    .debuginfo_path = nullptr};
  Dwfl* dwfl = dwfl_begin(&callbacks);
  std::string problem;
  if (dwfl == nullptr || dwfl_linux_proc_report(dwfl, pid) != 0 || dwfl_report_end(dwfl, nullptr, nullptr) != 0 ||
      dwfl_linux_proc_attach(dwfl, pid, false) != 0) {
    problem = dwfl_errmsg(-1) != nullptr ? dwfl_errmsg(-1) : std::strerror(errno);
  }
  std::vector<Thread> threads(tids.size());
  bool any = false;
  for (size_t i = 0; i < tids.size(); ++i) {
    threads[i].tid = tids[i];
    if (!problem.empty()) continue;
    errno = 0;
    const int result = dwfl_getthread_frames(dwfl, tids[i], take_frame, &threads[i]);
    if (result < 0 && threads[i].frames.empty()) threads[i].error = dwfl_errmsg(-1);
    any = any || !threads[i].frames.empty();
  }
  for (size_t i = 0; i < tids.size(); ++i) {
    const std::string task = "/proc/" + std::to_string(pid) + "/task/" + std::to_string(tids[i]);
    std::string name = first_line(task + "/comm");
    std::replace(name.begin(), name.end(), ' ', '_');
    std::printf("thread %d %c %s %s\n", tids[i], states[i], name.empty() ? "?" : name.c_str(),
                waits[i].empty() || waits[i] == "0" ? "-" : waits[i].c_str());
    for (size_t f = 0; f < threads[i].frames.size(); ++f) {
      std::printf("  #%zu %s\n", f, describe(dwfl, threads[i].frames[f]).c_str());
    }
    if (threads[i].frames.empty() && !threads[i].error.empty())
      std::printf("  no stack: %s\n", threads[i].error.c_str());
  }
  std::fflush(stdout);
  if (!file.empty() && std::rename((file + ".new").c_str(), file.c_str()) != 0) std::perror(file.c_str());
  if (!any) {
    const std::string yama = first_line("/proc/sys/kernel/yama/ptrace_scope");
    std::fprintf(
        stderr, "[stacks] no stack of process %d: %s%s\n", pid,
        problem.empty() && threads[0].error == "no error" ? "it is ending"
        : problem.empty()                                 ? threads[0].error.c_str()
                                                          : problem.c_str(),
        yama.empty() || yama == "0" ? "" : " (kernel.yama.ptrace_scope is not 0, which keeps others from looking)");
  }
  // _exit: nothing of what was read needs to be given back.
  _exit(any ? 0 : 1);
}
