// Key-value store that ranks meet in. Several implementations speak one interface: in memory (ranks as threads), and
// TCP in the wire protocol of c10d's TCPStore, as server and client, so that torchrun's workers can use ours and ours
// can use torchrun's.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::rendezvous {

/// Purpose       Small values under string keys, seen by all ranks.
/// Thread safety Every member may be called from any thread; calls on one client are served one after the other.
/// Errors        kTimeout     wait() or get() found nothing in time; the message lists the missing keys.
///               kPeerLost    the server is gone; the message has its address.
class Store {
 public:
  virtual ~Store() = default;

  virtual void set(std::string_view key, std::string_view value) = 0;

  /// The value; waits until the key exists. [blocking]
  [[nodiscard]] virtual std::string get(std::string_view key, std::chrono::milliseconds timeout) = 0;

  /// Adds to a decimal counter (0 when absent) and returns the new value.
  virtual int64_t add(std::string_view key, int64_t delta) = 0;

  /// Sets `desired` if the value equals `expected` (or the key is absent and `expected` is empty); returns the value
  /// afterwards. An absent key with a non-empty `expected` stays absent, and `expected` is returned, as c10d does.
  virtual std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired) = 0;

  /// Whether all keys exist, now.
  [[nodiscard]] virtual bool check(std::span<const std::string> keys) = 0;

  /// Returns when all keys exist. [blocking]
  virtual void wait(std::span<const std::string> keys, std::chrono::milliseconds timeout) = 0;

  /// Whether there was one.
  virtual bool delete_key(std::string_view key) = 0;
  /// Keys that hold a value; queues are not counted.
  [[nodiscard]] virtual int64_t num_keys() = 0;

  // What follows exists in c10d's TCPStore since 2.8 or 2.11. Stores that lack it throw kUnavailable naming the
  // operation; multi_get and multi_set fall back to one call for each key.

  /// Adds bytes at the end of the value (empty when absent).
  virtual void append(std::string_view key, std::string_view value);
  /// The values of all keys; waits until all exist. [blocking]
  [[nodiscard]] virtual std::vector<std::string> multi_get(std::span<const std::string> keys,
                                                           std::chrono::milliseconds timeout);
  virtual void multi_set(std::span<const std::string> keys, std::span<const std::string> values);
  /// First in, first out. Queues are apart from values, though check() and wait() see a queue that is not empty.
  virtual void queue_push(std::string_view queue, std::string_view value);
  /// The oldest value; waits until there is one. [blocking]
  [[nodiscard]] virtual std::string queue_pop(std::string_view queue, std::chrono::milliseconds timeout);
  [[nodiscard]] virtual int64_t queue_len(std::string_view queue);
  [[nodiscard]] virtual std::vector<std::string> list_keys();
  /// Returns when `world_size` calls with this key have been made. [blocking]
  virtual void barrier(std::string_view key, int64_t world_size, std::chrono::milliseconds timeout);
};

/// A store in this process, for ranks as threads and for tests.
[[nodiscard]] std::shared_ptr<Store> make_memory_store();

/// All keys get "prefix/" in front.
[[nodiscard]] std::shared_ptr<Store> make_prefix_store(std::string prefix, std::shared_ptr<Store> store);

/// A client of a TCPStore server (ours, torchrun's, or rank 0's). [blocking] Connects within `timeout`, with retries
/// while nothing listens yet. `host` is a name or an address, an IPv6 one with or without brackets; each address of a
/// name is tried.
/// Errors   kTimeout     nothing listened in time; the message has the last reason.
///          kPeerLost    something answered that does not speak the protocol, or hung up.
///          kConfig      the name has no address, or the port is not in 1..65535.
[[nodiscard]] std::shared_ptr<Store> connect_tcp_store(const std::string& host, int port,
                                                       std::chrono::milliseconds timeout);

/// The server side: listens (127.0.0.1 unless told otherwise) and serves on a thread of its own until destroyed.
///
/// Limits   keys 8 KiB, values 8 MiB, 131072 keys in one call (c10d's own limits); 64 MiB for one message, 1 GiB in
///          all. A connection that passes one, or sends anything else, is closed; the others do not notice.
/// Errors   kIo    the address cannot be listened on; the message has address, port and the system's reason.
class TcpStoreServer {
 public:
  struct Options {
    std::string address = "127.0.0.1";  ///< where to listen; "::" or "0.0.0.0" only when other hosts take part
    int port = 0;                       ///< 0: the kernel picks a free one
    int listen_fd = -1;                 ///< take over this listening socket; address and port are then not looked at
  };
  virtual ~TcpStoreServer() = default;
  [[nodiscard]] virtual int port() const = 0;
  /// The very data the server serves, without a socket.
  [[nodiscard]] virtual std::shared_ptr<Store> local() = 0;
};
[[nodiscard]] std::unique_ptr<TcpStoreServer> start_tcp_store_server(const TcpStoreServer::Options& options);

/// Key under which the launcher publishes the first death among the workers, as one readable line ("rank 3 (pid 411):
/// SIGKILL"). Ranks that wait for each other without shared memory yet look at it, so that nobody waits for the dead.
inline constexpr std::string_view kDeathNoticeKey = "trireme/death_notice";

/// Key under which the launcher publishes the latest hang that it has found, as it tells it: lines of text.
inline constexpr std::string_view kHangNoticeKey = "trireme/hang_notice";

/// get() that gives up early: throws kPeerLost with the launcher's line when a death notice appears while the key is
/// awaited. `root` is the store the notice is in (no prefix); `what` names the operation in the message.
[[nodiscard]] std::string get_unless_dead(Store& store, Store& root, std::string_view key,
                                          std::chrono::milliseconds timeout, std::string_view what);

}  // namespace trireme::rendezvous
