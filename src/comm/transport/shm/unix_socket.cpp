#include "comm/transport/shm/unix_socket.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/log.h"
#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

[[noreturn]] void fail(const char* what) {
  const int error = errno;
  throw Error(ErrorKind::kIo, str("[comm.shm] ", what, " failed: ", std::strerror(error),
                                  error == EMFILE || error == ENFILE ? ". Raise 'ulimit -n' or close files." : "."));
}

socklen_t abstract_address(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  TRIREME_CHECK(name.size() + 1 <= sizeof(address.sun_path));
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

bool same_user(int socket) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

bool readable(int fd, std::chrono::milliseconds wait) {
  pollfd entry = {.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, static_cast<int>(wait.count())) > 0;
}

}  // namespace

std::string random_token() {
  std::array<uint8_t, 16> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) fail("getrandom");
  std::string text;
  for (const uint8_t byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

UnixListener listen_on_abstract_name() {
  UnixListener listener;
  listener.socket = Fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.socket) fail("socket");
  listener.name = "trireme-" + random_token();
  sockaddr_un address;
  const socklen_t length = abstract_address(listener.name, address);
  if (bind(listener.socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) fail("bind");
  if (listen(listener.socket.get(), 128) != 0) fail("listen");
  return listener;
}

Fd accept_peer(const UnixListener& listener, const std::string& token, std::chrono::milliseconds wait) {
  if (!readable(listener.socket.get(), wait)) return {};
  Fd peer(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!peer) {
    if (errno == EMFILE || errno == ENFILE) fail("accept");
    return {};
  }
  std::string got(token.size(), '\0');
  if (!same_user(peer.get()) || !readable(peer.get(), std::chrono::milliseconds{1000}) ||
      recv(peer.get(), got.data(), got.size(), MSG_DONTWAIT) != static_cast<ssize_t>(token.size()) || got != token) {
    log::warn("comm.shm", "dropped a connection of another user or without the group's token");
    return {};
  }
  return peer;
}

Fd connect_to_peer(const std::string& name, const std::string& token) {
  Fd peer(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!peer) fail("socket");
  sockaddr_un address;
  const socklen_t length = abstract_address(name, address);
  if (connect(peer.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    throw Error(ErrorKind::kIo,
                str("[comm.shm] connecting to the group's first rank failed: ", std::strerror(errno),
                    ". It died, or runs on another host or in another network namespace (container); one host and one "
                    "namespace are required."));
  }
  if (!same_user(peer.get())) {
    throw Error(ErrorKind::kIo,
                "[comm.shm] the group's first rank runs under another user id; start all ranks as one user.");
  }
  if (send(peer.get(), token.data(), token.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(token.size())) fail("send");
  return peer;
}

bool send_descriptor(const Fd& socket, int descriptor) {
  char payload = 'T';
  iovec part = {.iov_base = &payload, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  const ssize_t sent = sendmsg(socket.get(), &message, MSG_NOSIGNAL);
  if (sent == 1) return true;
  if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) return false;
  fail("sending the shared memory's descriptor");
}

Fd receive_descriptor(const Fd& socket, std::chrono::milliseconds wait) {
  if (!readable(socket.get(), wait)) {
    throw Error(ErrorKind::kTimeout,
                str("[comm.shm] the group's first rank sent no shared memory within ", wait.count(), " ms."));
  }
  char payload = 0;
  iovec part = {.iov_base = &payload, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  if (got == 0 || (got < 0 && errno == ECONNRESET)) {
    throw Error(ErrorKind::kPeerLost, "[comm.shm] it died, or gave up, before it sent its shared memory; see its log.");
  }
  const cmsghdr* header = got == 1 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof(int))) {
    throw Error(ErrorKind::kIo,
                str("[comm.shm] the group's first rank sent something else than its shared memory",
                    (message.msg_flags & MSG_CTRUNC) != 0 ? " (no file descriptor left: raise 'ulimit -n')" : "", "."));
  }
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
  return Fd(descriptor);
}

}  // namespace trireme::comm
