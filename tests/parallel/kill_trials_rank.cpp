// The program whose ranks kill_trials_test kills: a small training run on the public API, which tells the test by lines in a FIFO when each
// phase begins and ends, when the victim dies, and which error a survivor got when.
//
//   parallel_kill_rank FOLDER [PHASE VICTIM DELAY_NS LATE EXTRA]
//
// The victim kills itself DELAY_NS after the beginning of the phase, from a thread of its own, or at the end of the phase if that comes
// first. LATE is a rank that waits for a gate of its own before init, or -1. With EXTRA 1 the survivors make one more call in teardown.
#include <fcntl.h>
#include <sys/prctl.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "parallel/kill_trials_phases.h"
#include "support/patience.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/rendezvous/job_env.h"
#include "trireme/trireme.h"

namespace {

using namespace trireme::testing;  // NOLINT(google-build-using-namespace): the names shared with the test

struct Plan {
  std::string folder;
  int phase = kNumPhases;
  int victim = -1;
  int64_t delay_ns = 0;
  int late = -1;
  bool extra_call = false;
};

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// Purpose  Tells the test where this rank is, and ends it there if it is the victim.
class Reporter {
 public:
  Reporter(Plan plan, int rank)
      : plan_(std::move(plan)),
        rank_(rank),
        events_(open((plan_.folder + kEvents.data()).c_str(), O_WRONLY | O_CLOEXEC)) {
    if (events_ < 0) _exit(90);
    if (rank_ != plan_.victim) return;
    std::thread([this] {
      prctl(PR_SET_TIMERSLACK, 1);
      die_at_.wait(0);
      const int64_t at = die_at_.load();
      const timespec until{at / 1'000'000'000, at % 1'000'000'000};
      while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
      }
      die("inside");
    }).detach();
  }

  /// One line, at once: shorter than PIPE_BUF, so those of several ranks do not mix.
  template <typename... Parts>
  void say(const Parts&... parts) {
    std::ostringstream text;
    text << rank_;
    ((text << ' ' << parts), ...);
    std::string line = text.str().substr(0, 4000);
    std::replace(line.begin(), line.end(), '\n', ' ');
    line += '\n';
    if (write(events_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) _exit(91);
  }

  void begin(Phase phase) {
    say("begin", int{phase}, now_ns());
    if (rank_ != plan_.victim || phase != plan_.phase) return;
    die_at_ = std::max<int64_t>(now_ns() + plan_.delay_ns, 1);
    die_at_.notify_all();
  }
  void end(Phase phase) {
    if (rank_ == plan_.victim && phase == plan_.phase) die("at-end");
    say("end", int{phase}, now_ns());
  }

  /// The call that may find a peer dead begins now.
  void calling() { call_began_ns_ = now_ns(); }
  [[nodiscard]] int64_t call_began_ns() const { return call_began_ns_; }

 private:
  void die(const char* where) {
    if (!dying_.exchange(true)) {
      say("death", now_ns(), where);
      kill(getpid(), SIGKILL);
    }
    while (true) pause();
  }

  Plan plan_;
  int rank_;
  int events_;
  int64_t call_began_ns_ = 0;
  std::atomic<int64_t> die_at_{0};
  std::atomic<bool> dying_{false};
};

Reporter* g_reporter = nullptr;  // never destroyed: the end of the process is part of the last phase

torch::nn::Sequential make_model() {
  torch::manual_seed(1);
  torch::nn::Sequential model;
  for (int layer = 0; layer < 24; ++layer) {
    model->push_back(torch::nn::Linear(64, 64));
    model->push_back(torch::nn::Tanh());
  }
  return model;
}

void save(Reporter& reporter, const std::string& root, int step, const torch::nn::Sequential& model,
          torch::optim::Optimizer& optimizer) {
  trireme::checkpoint::State state;
  trireme::checkpoint::add_module_state(state, *model);
  trireme::checkpoint::NamedParameters named;
  for (const auto& entry : model->named_parameters()) named.emplace_back(entry.key(), entry.value());
  trireme::checkpoint::add_optimizer_state(state, optimizer, named);
  state.tensors.emplace(kMarkName, torch::full({kMarkElements}, float(step)));
  reporter.say("saving", step);
  (void)trireme::checkpoint::save(root, step, state);
  reporter.say("saved", step);
}

void train(const Plan& plan, int rank, Reporter& reporter) {
  at::set_num_threads(1);
  torch::nn::Sequential model = make_model();
  reporter.say("ready");
  const std::string gate = plan.folder + (rank == plan.late ? kLateGate : kGate).data();
  close(open(gate.c_str(), O_RDONLY | O_CLOEXEC));  // until the test opens it too

  reporter.begin(kInit);
  reporter.calling();
  std::optional<trireme::Group> world = trireme::init({.timeout = trireme::test::kPatience});
  reporter.end(kInit);

  reporter.begin(kFirstCollective);
  reporter.calling();
  trireme::comm::all_reduce_sum(*world, torch::ones({1 << 20})).wait();
  reporter.calling();
  std::optional<trireme::DistributedDataParallel<torch::nn::Sequential>> ddp;
  trireme::DdpOptions options;
  options.first_bucket_bytes = options.bucket_bytes = 1;  // a bucket for each parameter: the most that can be rebuilt
  ddp.emplace(*world, model, options);
  reporter.end(kFirstCollective);

  torch::optim::SGD optimizer(ddp->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  const auto run_step = [&] {
    optimizer.zero_grad();
    const at::Tensor loss = torch::mse_loss(ddp->forward(torch::rand({16, 64})), torch::zeros({16, 64}));
    reporter.calling();
    loss.backward();
  };
  // The last gradients of the first backward are due: from here to its end buckets are finished, agreed on and laid out anew.
  bool rebuilding = false;
  const auto first_layer = model->parameters();
  std::array<unsigned, 2> hooks{};
  for (size_t i = 0; i < hooks.size(); ++i) {
    hooks[i] = first_layer[i].register_hook([&](const at::Tensor& /*gradient*/) {
      if (!std::exchange(rebuilding, true)) reporter.begin(kBucketRebuild);
    });
  }
  run_step();
  reporter.end(kBucketRebuild);
  for (size_t i = 0; i < hooks.size(); ++i) first_layer[i].remove_hook(hooks[i]);
  if (!ddp->stats().rebuilt) throw trireme::Error(trireme::ErrorKind::kInternal, "buckets were not rebuilt");
  optimizer.step();
  const std::string root = plan.folder + kCheckpoints.data();
  if (rank == 0) save(reporter, root, kFirstStep, model, optimizer);
  reporter.calling();
  trireme::comm::barrier(*world);

  reporter.begin(kSteadyState);
  for (int step = kFirstStep; step < kLastStep; ++step) {
    run_step();
    optimizer.step();
  }
  reporter.end(kSteadyState);

  reporter.begin(kSave);
  if (rank == 0) save(reporter, root, kLastStep, model, optimizer);
  reporter.calling();
  trireme::comm::barrier(*world);
  reporter.end(kSave);

  reporter.calling();
  trireme::comm::barrier(*world);
  reporter.begin(kTeardown);
  if (plan.extra_call && rank != plan.victim) {
    reporter.calling();
    trireme::comm::all_reduce_sum(*world, torch::ones({1000})).wait();
  }
  ddp.reset();
  world.reset();
}

}  // namespace

int main(int argc, char** argv) {
  Plan plan;
  plan.folder = argv[1];
  if (argc == 7) {
    plan.phase = std::atoi(argv[2]);
    plan.victim = std::atoi(argv[3]);
    plan.delay_ns = std::atoll(argv[4]);
    plan.late = std::atoi(argv[5]);
    plan.extra_call = std::atoi(argv[6]) != 0;
  }
  const int rank = trireme::rendezvous::detect_job_env().rank;
  g_reporter = new Reporter(plan, rank);
  try {
    std::atexit([] { g_reporter->end(kTeardown); });
    train(plan, rank, *g_reporter);
    return 0;
  } catch (const trireme::Error& error) {
    g_reporter->say("error", now_ns(), g_reporter->call_began_ns(), to_string(error.kind()), error.what());
    return trireme::exit_code(error.kind());
  } catch (const std::exception& error) {
    g_reporter->say("error", now_ns(), g_reporter->call_began_ns(), "unknown", error.what());
    return 1;
  }
}
