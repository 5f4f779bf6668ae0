// The program that launch tests start as ranks; its first argument says what it does. It meets the others in the
// launcher's store, so that all waiting is for events.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/rendezvous/job_env.h"

namespace {

using trireme::rendezvous::JobEnv;
constexpr std::chrono::seconds kLong{100};

void say(const std::string& text) {
  const std::string line = text + "\n";
  if (write(1, line.data(), line.size()) < 0) _exit(90);
}

[[noreturn]] void sleep_for_ever() {
  while (true) pause();
}

/// An ordinary child, a child in a session of its own, and a daemon: forked twice, so that its parent is gone.
void leave_children_behind() {
  for (const bool own_session : {false, true}) {
    if (fork() == 0) {
      if (own_session) setsid();
      signal(SIGTERM, SIG_IGN);
      signal(SIGINT, SIG_IGN);
      signal(SIGHUP, SIG_IGN);
      sleep_for_ever();
    }
  }
  const pid_t middle = fork();
  if (middle == 0) {
    setsid();
    if (fork() == 0) {
      signal(SIGTERM, SIG_IGN);
      signal(SIGINT, SIG_IGN);
      signal(SIGHUP, SIG_IGN);
      for (int fd = 0; fd < 3; ++fd) close(fd);
      sleep_for_ever();
    }
    _exit(0);
  }
  waitpid(middle, nullptr, 0);
}

int run(const std::string& what, const std::vector<std::string>& args) {
  const JobEnv env = trireme::rendezvous::detect_job_env();
  const auto job = trireme::rendezvous::open_job_store(env, kLong);
  const auto meet = [&](const std::string& key) { job.store->barrier(key, env.world_size, kLong); };
  if (what == "meet") {
    meet("all");
    return 0;
  }
  if (what == "exit-at-step") {  // rank 1 leaves with this code in step 10, unless the job was restarted
    for (int step = 0; step < 12; ++step) {
      if (step == 10 && env.rank == 1 && env.restart_count == 0) return std::atoi(args.at(0).c_str());
      meet("step" + std::to_string(step));
    }
    say("finished after restart " + std::to_string(env.restart_count));
    return 0;
  }
  if (what == "die") {  // rank 1 dies by this signal, the others wait
    meet("all");
    if (env.rank == 1) {
      const int signal = std::atoi(args.at(0).c_str());
      ::signal(signal, SIG_DFL);  // a sanitizer would make an exit code of it
      if (signal == SIGABRT) std::abort();
      kill(getpid(), signal);
    }
    sleep_for_ever();
  }
  if (what == "peers-see-it") {  // rank 1 dies, the others see the notice, say so and leave with "lost peer"
    meet("all");
    if (env.rank == 1) kill(getpid(), SIGKILL);
    (void)trireme::rendezvous::get_unless_dead(*job.store, *job.store, "never", kLong, "test.wait");
  }
  if (what == "children") {
    leave_children_behind();
    meet("all");
    say("ready");
    if (!args.empty() && env.rank == 1) return std::atoi(args.at(0).c_str());
    if (!args.empty()) return 0;
    sleep_for_ever();
  }
  if (what == "wait") {
    say("ready");
    sleep_for_ever();
  }
  if (what == "save-on-term") {  // needs args[0] ms to save into args[1] after SIGTERM, then leaves with 7
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    say("ready");
    int signal = 0;
    sigwait(&set, &signal);
    usleep(static_cast<useconds_t>(std::atoi(args.at(0).c_str())) * 1000);  // stands for the writing
    const int fd = open((args.at(1) + std::to_string(env.rank)).c_str(), O_CREAT | O_WRONLY, 0600);
    return fd >= 0 ? 7 : 91;
  }
  if (what == "eat-memory") {  // rank 1 joins the cgroup of args[0] and allocates until it is killed
    meet("all");
    if (env.rank != 1) sleep_for_ever();
    const int fd = open(args.at(0).c_str(), O_WRONLY);
    const std::string self = std::to_string(getpid());
    if (fd < 0 || write(fd, self.data(), self.size()) < 0) return 92;
    while (true) {
      constexpr size_t kBytes = size_t{1} << 20;
      std::memset(std::malloc(kBytes), 1, kBytes);
    }
  }
  return 99;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "", {argv + std::min(argc, 2), argv + argc});
  } catch (const trireme::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return trireme::exit_code(error.kind());
  }
}
