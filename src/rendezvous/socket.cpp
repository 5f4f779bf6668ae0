#include "rendezvous/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>

#include "base/deadline.h"
#include "base/str.h"
#include "rendezvous/memory_store.h"
#include "trireme/base/error.h"

namespace trireme::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

std::string reason_of(int error) { return std::system_category().message(error); }

std::string without_brackets(const std::string& host) {
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') return host.substr(1, host.size() - 2);
  return host;
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// Empty pointer and a reason when the name has no address.
Addresses resolve(const std::string& host, int port, int flags, std::string& reason) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(without_brackets(host).c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    reason = error == EAI_SYSTEM ? reason_of(errno) : gai_strerror(error);
    found = nullptr;
  }
  return {found, &freeaddrinfo};
}

/// 0 or the error number. `deadline` bounds the wait for the handshake.
int connect_one(const addrinfo& address, Clock::time_point deadline, Fd& out) {
  Fd fd(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return errno;
  if (connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    pollfd item{fd.get(), POLLOUT, 0};
    int ready = 0;
    do {
      const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now());
      ready = poll(&item, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1'000'000)));
    } while (ready < 0 && errno == EINTR);
    if (ready == 0) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return error;
  }
  const int one = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
  out = std::move(fd);
  return 0;
}

}  // namespace

std::string endpoint(const std::string& host, int port) {
  const std::string name = without_brackets(host);
  return name.find(':') == std::string::npos ? str(name, ':', port) : str('[', name, "]:", port);
}

int bound_port(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw Error(ErrorKind::kIo, str("[rendezvous.listen] descriptor ", fd, " is no socket: ", reason_of(errno), "."));
  }
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6*>(&address)->sin6_port);
  return ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

ListenSocket listen_tcp(const std::string& address, int port) {
  std::string reason;
  const Addresses found = resolve(address, port, AI_PASSIVE, reason);
  int error = 0;
  for (const addrinfo* a = found.get(); a != nullptr; a = a->ai_next) {
    Fd fd(socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) {
      error = errno;
      continue;
    }
    // A port that the kernel picks needs no reuse; a fixed one must be free again right after a job ended.
    const int one = 1;
    const int zero = 0;
    if (port != 0) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (a->ai_family == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
    if (bind(fd.get(), a->ai_addr, a->ai_addrlen) == 0 && listen(fd.get(), SOMAXCONN) == 0) {
      const int port_bound = bound_port(fd.get());
      return {std::move(fd), port_bound};
    }
    error = errno;
  }
  // "Every address" on a host without IPv6.
  if (address == "::" && (error == EAFNOSUPPORT || error == EADDRNOTAVAIL)) return listen_tcp("0.0.0.0", port);
  if (reason.empty()) reason = reason_of(error);
  const char* advice = error == EADDRINUSE      ? " Leave the port out (or give 0) and the kernel picks a free one."
                       : error == EADDRNOTAVAIL ? " Give an address of this host."
                                                : "";
  throw Error(ErrorKind::kIo,
              str("[rendezvous.listen] cannot listen on ", endpoint(address, port), ": ", reason, ".", advice));
}

Fd connect_tcp(const std::string& host, int port, Milliseconds timeout) {
  if (port < 1 || port > 65535) {
    throw Error(ErrorKind::kConfig, str("[rendezvous.connect] port ", port, " of host '", host,
                                        "' is not in 1..65535. Check MASTER_PORT."));
  }
  const auto deadline = deadline_after(timeout);
  Milliseconds pause{5};
  std::string reason;
  const Addresses addresses = resolve(host, port, 0, reason);
  if (!addresses) {
    throw Error(ErrorKind::kConfig, str("[rendezvous.connect] '", host, "' has no address: ", reason,
                                        ". Check MASTER_ADDR, /etc/hosts and DNS."));
  }
  while (true) {
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
      Fd fd;
      const int error = connect_one(*a, deadline, fd);
      if (error == 0) return fd;
      reason = reason_of(error);
    }
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) break;
    // Nothing can be awaited here: a listener elsewhere appears without a sign.
    std::this_thread::sleep_for(std::min(pause, left));
    pause = std::min(pause * 2, Milliseconds(250));
  }
  throw Error(ErrorKind::kTimeout,
              str("[rendezvous.connect] no store answers at ", endpoint(host, port), " within ", in_words(timeout),
                  ": ", reason, ". Is rank 0 (or the launcher) running there, and the port open?"));
}

}  // namespace trireme::rendezvous
