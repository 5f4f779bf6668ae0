// A rank that trains without LibTorch and, in one step, goes wrong in one way: fault_rank PATTERN FAULT CULPRIT STEP NUM_STEPS [SECONDS [SLOW_STEPS]].
// Patterns: collectives (what data-parallel training does), all_to_all, messages (a ring). Faults: faults.h, the patterns and is_slow().

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/str.h"
#include "comm/algorithms/call_queue.h"
#include "comm/algorithms/communicator.h"
#include "launch/faults.h"
#include "profile/collective_trace.h"
#include "profile/group_meeting.h"
#include "profile/rank_report.h"
#include "trireme/base/error.h"
#include "trireme/profile/data_wait.h"
#include "trireme/rendezvous/job_env.h"

namespace {

using trireme::str;
using trireme::comm::CallInfo;
using trireme::comm::DType;
using trireme::comm::OpKind;

constexpr std::chrono::seconds kLong{100};

/// The calls of a rank as a backend makes them: through queues, with the trace.
class Rank {
 public:
  Rank() : env_(trireme::rendezvous::detect_job_env()), job_(trireme::rendezvous::open_job_store(env_, kLong)) {
    trireme::profile::prepare_rank_reports(env_.run_dir, env_.rank);
    const std::string folder = env_.run_dir + "/trace";
    std::filesystem::create_directories(folder);
    trace_ =
        trireme::profile::open_collective_trace({.path = str(folder, "/rank", env_.rank, ".trace"), .rank = env_.rank});
    trireme::comm::CommunicatorOptions options;
    options.timeout = kLong;
    options.global_ranks.resize(static_cast<size_t>(env_.world_size));
    std::iota(options.global_ranks.begin(), options.global_ranks.end(), 0);
    group_ = trace_->register_group(options.group_name, options.global_ranks);
    store_ = trireme::rendezvous::make_prefix_store("test/group", job_.store);
    trireme::profile::GroupMeeting meeting(trace_.get(), group_);
    communicator_ = trireme::comm::make_shm_communicator(*store_, *job_.store, env_.rank, env_.world_size, options);
    meeting.done();
    queue_ = std::make_unique<trireme::comm::CallQueue>("world", "trireme-comm", trace_.get(), group_);
  }

  [[nodiscard]] int rank() const { return env_.rank; }
  [[nodiscard]] int size() const { return env_.world_size; }
  uint32_t step = 0;

  void all_reduce(size_t count, DType dtype, const char* label) {
    std::vector<double> data(count, 1.0);  // wide enough for any dtype
    CallInfo info = call(OpKind::kAllReduce, dtype, count);
    info.set_label(label);
    trireme::comm::Segment segment = {data.data(), data.data(), count};
    wait(*queue_, queue_->issue(info, [&](const CallInfo& i) { communicator_->all_reduce(i, {&segment, 1}); }));
  }

  void broadcast(size_t count, DType dtype, int root) {
    std::vector<double> data(count, 1.0);
    CallInfo info = call(OpKind::kBroadcast, dtype, count);
    info.root = root;
    wait(*queue_, queue_->issue(info, [&](const CallInfo& i) {
      communicator_->broadcast(i, data.data(), count * trireme::comm::size_of(dtype));
    }));
  }

  /// `more` for the peer after this one, where nobody else expects it.
  void all_to_all(size_t count, DType dtype, size_t more) {
    const auto n = static_cast<size_t>(size());
    std::vector<std::vector<double>> in(n, std::vector<double>(count + more, 1.0));
    std::vector<std::vector<double>> out = in;
    std::vector<trireme::comm::Communicator::Block> ins;
    std::vector<trireme::comm::Communicator::Block> outs;
    size_t total = 0;
    for (size_t r = 0; r < n; ++r) {
      const bool wrong = static_cast<int>(r) == (rank() + 1) % size();
      ins.push_back({in[r].data(), (count + (wrong ? more : 0)) * trireme::comm::size_of(dtype)});
      outs.push_back({out[r].data(), count * trireme::comm::size_of(dtype)});
      total += count + (wrong ? more : 0);
    }
    const CallInfo info = call(OpKind::kAllToAll, dtype, total);
    wait(*queue_, queue_->issue(info, [&](const CallInfo& i) { communicator_->all_to_all(i, ins, outs); }));
  }

  void send(int to, size_t count, DType dtype) {
    std::vector<double> data(count, 1.0);
    CallInfo info = call(OpKind::kSend, dtype, count);
    info.root = to;
    trireme::comm::CallQueue& queue = lane(to, OpKind::kSend);
    wait(queue, queue.issue(info, [&](const CallInfo& i) {
      communicator_->send(i, data.data(), count * trireme::comm::size_of(dtype));
    }));
  }

  void recv(int from, size_t count, DType dtype) {
    std::vector<double> data(count, 1.0);
    CallInfo info = call(OpKind::kRecv, dtype, count);
    info.root = from;
    trireme::comm::CallQueue& queue = lane(from, OpKind::kRecv);
    wait(queue, queue.issue(info, [&](const CallInfo& i) {
      communicator_->recv(i, data.data(), count * trireme::comm::size_of(dtype));
    }));
  }

 private:
  [[nodiscard]] CallInfo call(OpKind op, DType dtype, size_t count) const {
    CallInfo info;
    info.op = op;
    info.dtype = dtype;
    info.count = count;
    const int64_t dims[] = {static_cast<int64_t>(count)};
    if (op != OpKind::kAllToAll) info.set_dims(dims);
    info.step = step;
    return info;
  }
  static void wait(trireme::comm::CallQueue& queue, const trireme::comm::CallPtr& call) { queue.wait(call); }
  trireme::comm::CallQueue& lane(int peer, OpKind op) {
    auto& queue = lanes_[{peer, op}];
    if (!queue) queue = std::make_unique<trireme::comm::CallQueue>("world", "trireme-lane", trace_.get(), group_);
    return *queue;
  }

  trireme::rendezvous::JobEnv env_;
  trireme::rendezvous::JobStore job_;
  std::shared_ptr<trireme::rendezvous::Store> store_;
  std::shared_ptr<trireme::profile::CollectiveTrace> trace_;
  uint16_t group_ = 0;
  std::unique_ptr<trireme::comm::Communicator> communicator_;
  std::map<std::pair<int, OpKind>, std::unique_ptr<trireme::comm::CallQueue>> lanes_;
  std::unique_ptr<trireme::comm::CallQueue> queue_;
};

/// Faults that come again in every step: what a rank does in a step before its calls.
void be_slow(const std::string& fault, double seconds) {
  if (fault == "slow_loader") {
    const auto waiting = trireme::profile::data_wait();
    evaluate(seconds);
  } else {
    evaluate(seconds);
  }
}

/// Whether this rank is slow in this step: the culprit from `at_step` on, for as many steps; by turns, every rank in every n-th step.
bool is_slow(const std::string& fault, const Rank& rank, int culprit, int step, int at_step, int num_slow) {
  if (fault == "by_turns") return step % rank.size() == rank.rank();
  const bool named = fault == "slow" || fault == "slow_loader";
  return named && rank.rank() == culprit && step >= at_step && step < at_step + num_slow;
}

/// The calls of one step; `fault` is empty where this rank does nothing wrong in it.
void collectives(Rank& rank, const std::string& fault) {
  const DType dtype = fault == "dtype" ? DType::kF64 : DType::kF32;
  rank.all_reduce(1000, DType::kF32, "bucket 0");
  if (fault == "extra") rank.all_reduce(500, DType::kF32, "bucket 1");
  if (fault == "swapped") rank.all_reduce(200, DType::kF32, "bucket 2");
  if (fault != "missing") rank.all_reduce(fault == "shape" ? 501 : 500, dtype, "bucket 1");
  if (fault != "swapped") rank.all_reduce(200, DType::kF32, "bucket 2");
  rank.broadcast(16, DType::kF32, fault == "root" ? 1 : 0);
}

void all_to_alls(Rank& rank, const std::string& fault) {
  if (fault == "swapped") rank.all_to_all(8, DType::kI64, 0);
  if (fault == "extra") rank.all_to_all(8, DType::kI64, 0);
  if (fault != "missing") rank.all_to_all(64, fault == "dtype" ? DType::kF64 : DType::kF32, fault == "shape" ? 3 : 0);
  if (fault != "swapped") rank.all_to_all(8, DType::kI64, 0);
}

void messages(Rank& rank, const std::string& fault) {
  const int to = (rank.rank() + 1) % rank.size();
  const int from = (rank.rank() + rank.size() - 1) % rank.size();
  if (fault == "swapped") rank.send(to, 4, DType::kI64);
  if (fault == "extra") rank.send(to, 4, DType::kI64);
  const DType dtype = fault == "dtype" ? DType::kF64 : DType::kF32;
  if (fault != "missing") rank.send(fault == "root" ? from : to, fault == "shape" ? 1001 : 1000, dtype);
  if (fault != "swapped") rank.send(to, 4, DType::kI64);
  rank.recv(from, 1000, DType::kF32);
  rank.recv(from, 4, DType::kI64);
}

std::vector<std::unique_ptr<char[]>> g_kept;

/// Tells a test of each step of rank 0, whatever the launcher does meanwhile: one byte into the FIFO FAULT_RANK_STEPS, where it is set.
class StepTeller {
 public:
  explicit StepTeller(int rank) {
    const char* path = std::getenv("FAULT_RANK_STEPS");
    if (path != nullptr && rank == 0) fifo_ = std::fopen(path, "we");
  }
  void tell() {
    if (fifo_ != nullptr && (std::fputc('.', fifo_) == EOF || std::fflush(fifo_) != 0)) std::abort();
  }

 private:
  std::FILE* fifo_ = nullptr;  // open until the process ends
};

int train(const std::vector<std::string>& args) {
  const std::string& pattern = args.at(0);
  const std::string& fault = args.at(1);
  const int culprit = std::atoi(args.at(2).c_str());
  const int at_step = std::atoi(args.at(3).c_str());
  const int num_steps = std::atoi(args.at(4).c_str());
  // Step 0 is before init().
  const auto allocate = [](size_t bytes) { g_kept.emplace_back(new char[bytes]); };
  if (at_step == 0 && trireme::rendezvous::detect_job_env().rank == culprit) do_fault(fault, allocate);
  Rank rank;
  StepTeller steps(rank.rank());
  for (int step = 1; step <= num_steps; ++step) {
    rank.step = static_cast<uint32_t>(step);
    const int num_slow = args.size() > 6 ? std::atoi(args[6].c_str()) : 0;
    if (is_slow(fault, rank, culprit, step, at_step, num_slow)) be_slow(fault, std::atof(args.at(5).c_str()));
    const bool now = rank.rank() == culprit && step == at_step;
    if (now) do_fault(fault, allocate);
    const std::string wrong = now ? fault : "";
    if (pattern == "collectives") collectives(rank, wrong);
    if (pattern == "all_to_all") all_to_alls(rank, wrong);
    if (pattern == "messages") messages(rank, wrong);
    steps.tell();
    // An evaluation on rank 0 every 100 steps.
    if (fault == "evaluate" && rank.rank() == 0 && step % 100 == 0) evaluate(std::atof(args.at(5).c_str()));
  }
  // After the last step: when all calls are over.
  if (rank.rank() == culprit && at_step > num_steps) do_fault(fault, allocate);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return run_rank(argc, argv, train); }
