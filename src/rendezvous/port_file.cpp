#include "rendezvous/port_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>
#include <thread>

#include "base/deadline.h"
#include "base/own_folder.h"
#include "base/str.h"
#include "rendezvous/memory_store.h"
#include "rendezvous/socket.h"
#include "trireme/base/error.h"

namespace trireme::rendezvous {
namespace {

[[noreturn]] void io_failed(const std::string& path, const std::string& what) {
  throw Error(ErrorKind::kIo, str("[rendezvous.port_file] ", path, ": ", what,
                                  ". Set MASTER_ADDR and MASTER_PORT to do without this file."));
}

/// Checked, since /tmp belongs to everybody.
std::string folder() {
  std::string path = own_tmp_folder();
  if (const std::string problem = make_own_folder(path); !problem.empty()) io_failed(path, problem);
  return path;
}

std::string path_of(const std::string& run_id) {
  std::string name;
  for (const char c : run_id) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
    name += plain ? c : '_';
  }
  return folder() + "/port-" + name.substr(0, 128);
}

/// The start time in clock ticks, which together with the pid names a process for good; 0 when there is none.
unsigned long long start_ticks(int pid) {
  std::ifstream stat(str("/proc/", pid, "/stat"));
  std::string text;
  std::getline(stat, text);
  const size_t after_name = text.rfind(") ");
  if (after_name == std::string::npos) return 0;
  std::istringstream fields(text.substr(after_name + 2));
  std::string skipped;
  for (int i = 3; i < 22; ++i) fields >> skipped;
  unsigned long long ticks = 0;
  fields >> ticks;
  return ticks;
}

}  // namespace

PortFile::PortFile(const std::string& run_id, int port) : path_(path_of(run_id)) {
  const std::string part = str(path_, ".", getpid());
  const std::string text = str(port, ' ', getpid(), ' ', start_ticks(getpid()), '\n');
  const Fd fd(open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd || write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    io_failed(part, std::system_category().message(errno));
  }
  if (rename(part.c_str(), path_.c_str()) != 0) io_failed(path_, std::system_category().message(errno));
}

PortFile::~PortFile() { unlink(path_.c_str()); }

int await_port(const std::string& run_id, std::chrono::milliseconds timeout) {
  const std::string path = path_of(run_id);
  const auto deadline = deadline_after(timeout);
  std::chrono::milliseconds pause{2};
  while (true) {
    std::ifstream file(path);
    int port = 0;
    int pid = 0;
    unsigned long long ticks = 0;
    if (file >> port >> pid >> ticks && ticks != 0 && start_ticks(pid) == ticks) return port;
    if (std::chrono::steady_clock::now() >= deadline) {
      throw Error(
          ErrorKind::kTimeout,
          str("[rendezvous.port_file] rank 0 has not written ", path, " within ", in_words(timeout),
              ". It is late or died (see its log), or has another /tmp: then set MASTER_ADDR and MASTER_PORT."));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(50));
  }
}

}  // namespace trireme::rendezvous
