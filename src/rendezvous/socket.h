// TCP sockets as the store needs them: listening on a chosen address, connecting with a deadline.
#pragma once

#include <chrono>
#include <string>

#include "base/fd.h"

namespace trireme::rendezvous {

struct ListenSocket {
  Fd fd;
  int port = 0;
};

/// Listens on `address` (an address or a name of this host; "::" is every address); port 0 lets the kernel choose. Throws kIo with the reason,
/// and for a port in use says so.
[[nodiscard]] ListenSocket listen_tcp(const std::string& address, int port);

/// The port that a listening socket has.
[[nodiscard]] int bound_port(int fd);

/// "host:port", with brackets around an IPv6 address.
[[nodiscard]] std::string endpoint(const std::string& host, int port);

/// Connects (non-blocking socket, no delay) within `timeout`, trying each address of the name again until then.
/// Throws kConfig for a name without address, kTimeout with the last reason.
[[nodiscard]] Fd connect_tcp(const std::string& host, int port, std::chrono::milliseconds timeout);

}  // namespace trireme::rendezvous
