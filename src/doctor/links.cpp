#include "doctor/links.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>

#include "base/str.h"
#include "comm/algorithms/communicator.h"
#include "doctor/probe.h"
#include "rendezvous/socket.h"
#include "trireme/base/error.h"
#include "trireme/rendezvous/store.h"

namespace trireme::doctor {
namespace {

using Clock = std::chrono::steady_clock;
using diagnose::LinkMeasure;
using std::chrono::milliseconds;

constexpr int kRoundTrips = 300;
constexpr int kMessages = 8;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Bytes that differ from message to message and from place to place, so that a lost, doubled or shifted piece shows.
void fill(std::vector<unsigned char>& data, int message) {
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<unsigned char>((i * 131 + (i >> 12) + static_cast<size_t>(message) * 29) & 0xFF);
}

int64_t count_wrong(const std::vector<unsigned char>& data, int message) {
  int64_t wrong = 0;
  for (size_t i = 0; i < data.size(); ++i) {
    wrong +=
        data[i] != static_cast<unsigned char>((i * 131 + (i >> 12) + static_cast<size_t>(message) * 29) & 0xFF) ? 1 : 0;
  }
  return wrong;
}

/// Purpose  A way of two ranks: each end sends and receives whole messages.
class Way {
 public:
  virtual ~Way() = default;
  virtual void send(const void* data, size_t bytes) = 0;
  virtual void recv(void* data, size_t bytes) = 0;
};

class SharedMemoryWay final : public Way {
 public:
  SharedMemoryWay(comm::Communicator& communicator, int peer) : communicator_(communicator), peer_(peer) {}
  void send(const void* data, size_t bytes) override {
    communicator_.send(call(comm::OpKind::kSend, ++sent_, bytes), data, bytes);
  }
  void recv(void* data, size_t bytes) override {
    communicator_.recv(call(comm::OpKind::kRecv, ++received_, bytes), data, bytes);
  }

 private:
  [[nodiscard]] comm::CallInfo call(comm::OpKind op, uint64_t number, size_t bytes) const {
    comm::CallInfo info;
    info.op = op;
    info.call = number;
    info.count = bytes;
    info.root = peer_;
    return info;
  }
  comm::Communicator& communicator_;
  int peer_;
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
};

class TcpWay final : public Way {
 public:
  TcpWay(Fd socket, milliseconds limit) : socket_(std::move(socket)), limit_(limit) {}
  void send(const void* data, size_t bytes) override {
    const auto* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t put = ::send(socket_.get(), at, bytes, MSG_NOSIGNAL);
      if (put < 0) {
        wait(POLLOUT);
        continue;
      }
      at += put;
      bytes -= static_cast<size_t>(put);
    }
  }
  void recv(void* data, size_t bytes) override {
    auto* at = static_cast<char*>(data);
    while (bytes > 0) {
      const ssize_t got = ::recv(socket_.get(), at, bytes, 0);
      if (got == 0) throw Error(ErrorKind::kPeerLost, "[doctor.links] the other rank closed its socket.");
      if (got < 0) {
        wait(POLLIN);
        continue;
      }
      at += got;
      bytes -= static_cast<size_t>(got);
    }
  }

 private:
  void wait(short events) const {
    if (errno == EINTR) return;
    if (errno != EAGAIN) throw Error(ErrorKind::kIo, str("[doctor.links] ", std::strerror(errno), "."));
    pollfd entry{socket_.get(), events, 0};
    if (poll(&entry, 1, static_cast<int>(limit_.count())) == 0)
      throw Error(ErrorKind::kTimeout, "[doctor.links] nothing came in time.");
  }
  Fd socket_;
  milliseconds limit_;
};

/// The lower rank measures; the other answers.
LinkMeasure measure_way(Way& way, const std::string& kind, int from, int to, bool measures, size_t bytes) {
  LinkMeasure measure;
  measure.kind = kind;
  measure.from = from;
  measure.to = to;
  uint64_t word = 0;
  std::vector<double> round_trips;
  for (int i = 0; i < kRoundTrips; ++i) {
    const Clock::time_point start = Clock::now();
    if (measures) way.send(&word, sizeof(word));
    way.recv(&word, sizeof(word));
    if (!measures) way.send(&word, sizeof(word));
    round_trips.push_back(seconds_since(start));
  }
  std::vector<unsigned char> data(bytes);
  std::vector<double> times;
  for (int message = 0; message < kMessages; ++message) {
    if (measures) fill(data, message);
    if (!measures) std::fill(data.begin(), data.end(), 0);
    // The receiver says when it is ready and when it has all, so that neither filling nor checking is timed.
    if (!measures) way.send(&word, sizeof(word));
    if (measures) way.recv(&word, sizeof(word));
    const Clock::time_point start = Clock::now();
    if (measures) way.send(data.data(), data.size());
    if (!measures) way.recv(data.data(), data.size());
    if (!measures) way.send(&word, sizeof(word));
    if (measures) way.recv(&word, sizeof(word));
    times.push_back(seconds_since(start));
    int64_t wrong = measures ? 0 : count_wrong(data, message);
    if (!measures) way.send(&wrong, sizeof(wrong));
    if (measures) way.recv(&wrong, sizeof(wrong));
    measure.wrong += wrong;
  }
  measure.median_latency_us = median(round_trips) / 2 * 1e6;
  measure.gb_per_s = static_cast<double>(bytes) / median(times) / 1e9;
  return measure;
}

LinkMeasure measure_memcpy(int rank, size_t bytes) {
  LinkMeasure measure;
  measure.kind = "memcpy";
  measure.from = measure.to = rank;
  std::vector<unsigned char> from(bytes);
  std::vector<unsigned char> to(bytes);
  std::vector<double> times;
  for (int message = 0; message < kMessages; ++message) {
    fill(from, message);
    const Clock::time_point start = Clock::now();
    std::memcpy(to.data(), from.data(), bytes);
    times.push_back(seconds_since(start));
    measure.wrong += count_wrong(to, message);
  }
  measure.gb_per_s = static_cast<double>(bytes) / median(times) / 1e9;
  return measure;
}

Fd accept_one(int listener, milliseconds limit) {
  pollfd entry{listener, POLLIN, 0};
  if (poll(&entry, 1, static_cast<int>(limit.count())) <= 0)
    throw Error(ErrorKind::kTimeout, "[doctor.links] no rank connected in time.");
  Fd socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) throw Error(ErrorKind::kIo, str("[doctor.links] accept: ", std::strerror(errno), "."));
  return socket;
}

Fd connect_pair(rendezvous::Store& store, int lower, int upper, bool listens, milliseconds limit) {
  const std::string key = str("tcp/", lower, "/", upper);
  if (!listens) {
    const std::string port = store.get(key, limit);
    return rendezvous::connect_tcp("127.0.0.1", std::stoi(port), limit);
  }
  const rendezvous::ListenSocket listener = rendezvous::listen_tcp("127.0.0.1", 0);
  store.set(key, std::to_string(listener.port));
  return accept_one(listener.fd.get(), limit);
}

/// One rank's part: memcpy for each, then pair after pair, everybody else waiting, so that pairs do not disturb each other.
void run_rank(int rank, const LinkOptions& options, int listen_fd, int port, Report& report) {
  std::unique_ptr<rendezvous::TcpStoreServer> server;
  if (rank == 0) {
    rendezvous::TcpStoreServer::Options serve;
    serve.listen_fd = listen_fd;
    server = start_tcp_store_server(serve);
  }
  const auto store = rendezvous::connect_tcp_store("127.0.0.1", port, options.limit);
  const auto group_store = rendezvous::make_prefix_store("group/", store);
  comm::CommunicatorOptions group;
  group.timeout = options.limit;
  const auto communicator = comm::make_shm_communicator(*group_store, *store, rank, options.ranks, group);
  uint64_t barriers = 0;
  const auto barrier = [&] {
    comm::CallInfo info;
    info.call = ++barriers;
    communicator->barrier(info);
  };
  for (int turn = 0; turn < options.ranks; ++turn) {
    if (turn == rank) report.facts.links.push_back(measure_memcpy(rank, options.bytes));
    barrier();
  }
  for (int lower = 0; lower < options.ranks; ++lower) {
    for (int upper = lower + 1; upper < options.ranks; ++upper) {
      if (rank == lower || rank == upper) {
        const bool measures = rank == lower;
        SharedMemoryWay shared(*communicator, measures ? upper : lower);
        const LinkMeasure by_memory = measure_way(shared, "shared memory", lower, upper, measures, options.bytes);
        TcpWay tcp(connect_pair(*store, lower, upper, !measures, options.limit), options.limit);
        const LinkMeasure by_tcp = measure_way(tcp, "TCP", lower, upper, measures, options.bytes);
        if (measures) report.facts.links.insert(report.facts.links.end(), {by_memory, by_tcp});
      }
      barrier();
    }
  }
  communicator->leave();
  // The store of rank 0 goes last.
  if (rank == 0) {
    for (int other = 1; other < options.ranks; ++other) (void)store->get(str("done/", other), options.limit);
  } else {
    store->set(str("done/", rank), "1");
  }
}

std::string rounded(double value) { return str(std::round(value * 100) / 100); }

void judge_links(Report& report) {
  double slowest = 0;
  std::vector<double> speeds;
  for (const LinkMeasure& link : report.facts.links) {
    const bool wrong = link.wrong > 0;
    const std::string name =
        link.from == link.to ? str(link.kind, " ", link.from) : str(link.kind, " ", link.from, "-", link.to);
    std::string text = link.gb_per_s ? rounded(*link.gb_per_s) + " GB/s" : "";
    if (link.median_latency_us) text += str(text.empty() ? "" : ", ", rounded(*link.median_latency_us), " us");
    if (link.peer) text += *link.peer ? ", peer-to-peer" : ", through host memory";
    if (wrong) text += str(", ", grouped(link.wrong), " bytes arrived changed");
    add_row(report, name, wrong ? Check::State::kError : Check::State::kOk, text);
    if (link.kind == "shared memory" && link.gb_per_s) {
      speeds.push_back(*link.gb_per_s);
      slowest = speeds.size() == 1 ? *link.gb_per_s : std::min(slowest, *link.gb_per_s);
    }
    if (!wrong) continue;
    add_finding(report, "links.corrupt", Severity::kError, 1,
                str(name, ": ", grouped(link.wrong), " bytes arrived changed"),
                "Hardware that changes data silently: take the host out; test memory (memtest86+) and, for GPUs, ACS "
                "and IOMMU (iommu=pt), then dcgmi diag -r 3.");
  }
  if (speeds.size() >= 3 && slowest < median(speeds) / 3) {
    add_finding(report, "links.slow_pair", Severity::kWarning, 0.5,
                str("one pair of ranks reaches ", rounded(slowest), " GB/s, most reach ", rounded(median(speeds))),
                "Another program on its cores, or two CPU sockets between them: compare 'taskset -cp' of the ranks and "
                "run it again.");
  }
}

}  // namespace

Report measure_links(const LinkOptions& options) {
  if (options.ranks < 2)
    throw Error(ErrorKind::kInvalidArgument, str("[doctor.links] ", options.ranks, " ranks; at least 2 are required."));
  const rendezvous::ListenSocket listener = rendezvous::listen_tcp("127.0.0.1", 0);
  std::vector<Probe> probes;
  for (int rank = 0; rank < options.ranks; ++rank) {
    probes.push_back({str("rank ", rank), options.limit, [&, rank](Report& report) {
                        run_rank(rank, options, listener.fd.get(), listener.port, report);
                      }});
  }
  Report report = run_probes(probes);
  join_reports(
      report,
      run_probes({{"GPU links", options.limit, [&](Report& gpus) { measure_gpu_links(gpus, options.bytes); }}}));
  judge_links(report);
  report.sort();
  return report;
}

}  // namespace trireme::doctor
