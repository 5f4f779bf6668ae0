// One client's side of the TCPStore protocol without its socket: bytes in, bytes out.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "rendezvous/store_table.h"
#include "rendezvous/wire.h"

namespace trireme::rendezvous {

/// Purpose     understands what one client sends, which is not to be trusted, and builds the answers.
/// Invariants  at most one wait is open; a wait is answered once, by release() or by its cancellation.
/// Threads     one; only the call-back runs elsewhere, under the table's lock.
class StoreSession {
 public:
  /// Told that the wait with this number may be released.
  using WaitOver = std::function<void(uint64_t wait_number)>;

  /// `max_bytes`: what the table may hold; a request that passes it ends the session.
  StoreSession(StoreTable& table, size_t max_bytes, WaitOver wait_over)
      : table_(table), max_bytes_(max_bytes), wait_over_(std::move(wait_over)) {}
  ~StoreSession() { drop_wait(); }
  StoreSession(const StoreSession&) = delete;
  StoreSession& operator=(const StoreSession&) = delete;

  /// Bytes from the client. False: it holds back a message that is too long, take no more before progress().
  bool receive(std::string_view bytes);
  /// Answers all requests that are complete, while fewer than kMaxUnreadBytes wait to be read. False: the client broke
  /// the protocol or a limit.
  [[nodiscard]] bool progress();
  /// Whether progress() would find something to look at.
  [[nodiscard]] bool has_requests() const { return in_.size() >= in_needed_; }
  /// Ends the wait with this number, if it is still the one that is open.
  void release(uint64_t wait_number);

  /// What the client is to get, and how much of it has been sent.
  [[nodiscard]] std::string_view unread() const { return std::string_view(out_).substr(out_sent_); }
  void sent(size_t bytes);

  [[nodiscard]] bool greeted() const { return greeted_; }

  /// Answers that a client has not read yet; above it, its requests wait.
  static constexpr size_t kMaxUnreadBytes = size_t{16} * 1024 * 1024;

 private:
  enum class Outcome { kDone, kIncomplete, kClose };

  Outcome run_one(wire::Reader& in);
  Outcome answer(wire::Query query, wire::Reader& in, wire::Writer& out);
  Outcome answer_one(wire::Query query, wire::Reader& in, wire::Writer& out);
  Outcome answer_many(wire::Query query, wire::Reader& in, wire::Writer& out);
  [[nodiscard]] bool room_for(size_t bytes);
  [[nodiscard]] StoreTable::OnReady on_ready();
  void drop_wait();

  StoreTable& table_;
  size_t max_bytes_;
  WaitOver wait_over_;
  bool greeted_ = false;
  StoreTable::WaiterId waiter_ = 0;
  uint64_t wait_number_ = 0;  ///< tells the wait of now from earlier ones whose call-back is still under way
  std::string in_;
  size_t in_needed_ = 1;  ///< parsing again is useless before this many bytes are there
  std::string out_;
  size_t out_sent_ = 0;
};

}  // namespace trireme::rendezvous
