// An abstract Unix stream socket that hands one file descriptor to peers of the same user.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>

#include "base/fd.h"

namespace trireme::comm {

/// Listens under a random abstract name. Throws kIo.
struct UnixListener {
  Fd socket;
  std::string name;  ///< without the leading zero byte
};
[[nodiscard]] UnixListener listen_on_abstract_name();

/// The next peer that has the same user id and sends exactly `token`; strangers are dropped. An empty descriptor after `wait`.
[[nodiscard]] Fd accept_peer(const UnixListener& listener, const std::string& token, std::chrono::milliseconds wait);

/// Connects, checks that the listener runs under the same user id, sends `token`. Throws kIo naming what failed.
[[nodiscard]] Fd connect_to_peer(const std::string& name, const std::string& token);

/// False when the peer has closed. Throws kIo for anything else.
[[nodiscard]] bool send_descriptor(const Fd& socket, int descriptor);
/// Waits up to `wait`. Throws kPeerLost when the peer closes, kIo when it sends anything but one descriptor, kTimeout.
[[nodiscard]] Fd receive_descriptor(const Fd& socket, std::chrono::milliseconds wait);

/// 32 hexadecimal digits from the kernel's random source.
[[nodiscard]] std::string random_token();

}  // namespace trireme::comm
