#include "launch/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace trireme::launch {
namespace {

std::vector<pid_t> all_pids() {
  std::vector<pid_t> pids;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), &closedir);
  if (!proc) return pids;
  while (const dirent* entry = readdir(proc.get())) {
    if (std::isdigit(static_cast<unsigned char>(entry->d_name[0])) != 0) {
      pids.push_back(static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10)));
    }
  }
  return pids;
}

std::string read_whole(const char* path, size_t limit) {
  std::string text;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  char buffer[4096];
  ssize_t got = 0;
  while (text.size() < limit && (got = read(fd, buffer, sizeof(buffer))) > 0) {
    text.append(buffer, static_cast<size_t>(got));
  }
  close(fd);
  return text;
}

}  // namespace

ProcessInfo read_process(pid_t pid) {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%d/stat", pid);
  const std::string text = read_whole(path, 4096);
  // The name may hold spaces and brackets: what counts is the last closing one.
  const size_t open = text.find('(');
  const size_t close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close + 2 >= text.size()) return {};
  ProcessInfo info;
  info.pid = pid;
  info.name = text.substr(open + 1, close - open - 1);
  const char* field = text.c_str() + close + 2;
  info.state = *field;
  // Fields are counted from 1: state is 3, the parent 4, the start time 22.
  for (int number = 3; field != nullptr && number < 22; ++number) {
    if (number == 9) info.flags = std::strtoul(field, nullptr, 10);
    if (number == 4) info.parent = static_cast<pid_t>(std::strtol(field, nullptr, 10));
    field = std::strchr(field, ' ');
    if (field != nullptr) ++field;
  }
  if (field != nullptr) info.start_ticks = std::strtoull(field, nullptr, 10);
  return info;
}

bool is_exiting(pid_t pid) {
  // The kernel's PF_EXITING, PF_DUMPCORE and PF_SIGNALED, as /proc/PID/stat shows them.
  constexpr unsigned long kExiting = 0x4 | 0x200 | 0x400;
  if (pid <= 0) return false;
  const ProcessInfo process = read_process(pid);
  return process.pid == 0 || (process.flags & kExiting) != 0;
}

std::vector<ProcessInfo> descendants(pid_t root) {
  std::vector<ProcessInfo> all;
  for (const pid_t pid : all_pids()) {
    ProcessInfo info = read_process(pid);
    if (info.pid != 0) all.push_back(std::move(info));
  }
  std::vector<pid_t> ours{root};
  std::vector<ProcessInfo> found;
  // The list of ours grows while it is walked: children first, then theirs.
  for (size_t i = 0; i < ours.size(); ++i) {
    for (const ProcessInfo& info : all) {
      if (info.parent != ours[i] || info.pid == root) continue;
      ours.push_back(info.pid);
      if (info.state != 'Z' && info.state != 'X') found.push_back(info);
    }
  }
  return found;
}

bool signal_exactly(const ProcessInfo& process, int signal) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0));
  if (fd < 0) return false;
  // The pidfd holds on to one process. If that one started when ours did, it is ours.
  const bool same = read_process(process.pid).start_ticks == process.start_ticks;
  const bool sent = same && syscall(SYS_pidfd_send_signal, fd, signal, nullptr, 0) == 0;
  close(fd);
  return sent;
}

EnvScan processes_with_env(const std::string& assignment) {
  EnvScan scan;
  const std::string wanted = '\0' + assignment + '\0';
  for (const pid_t pid : all_pids()) {
    char path[64];
    std::snprintf(path, sizeof(path), "/proc/%d", pid);
    struct stat owner{};
    if (pid == getpid()) continue;
    if (stat(path, &owner) != 0) {
      scan.complete = false;
      continue;
    }
    if (owner.st_uid != geteuid()) continue;
    std::snprintf(path, sizeof(path), "/proc/%d/environ", pid);
    const std::string text = '\0' + read_whole(path, size_t{1} << 21) + '\0';
    const ProcessInfo info = read_process(pid);
    if (info.pid == 0 || info.state == 'Z' || info.state == 'X') {
      scan.complete = false;
    } else if (text.find(wanted) != std::string::npos) {
      scan.found.push_back(info);
    }
  }
  return scan;
}

}  // namespace trireme::launch
