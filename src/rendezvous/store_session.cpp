#include "rendezvous/store_session.h"

#include <algorithm>
#include <vector>

#include "base/log.h"

namespace trireme::rendezvous {

using wire::Query;

bool StoreSession::receive(std::string_view bytes) {
  in_ += bytes;
  return in_.size() < wire::kMaxMessageBytes;
}

void StoreSession::sent(size_t bytes) {
  out_sent_ += bytes;
  if (out_sent_ < out_.size()) return;
  out_.clear();
  out_sent_ = 0;
}

bool StoreSession::progress() {
  size_t done = 0;
  Outcome outcome = Outcome::kDone;
  while (outcome == Outcome::kDone && unread().size() < kMaxUnreadBytes && in_.size() - done >= in_needed_) {
    wire::Reader reader(std::string_view(in_).substr(done));
    outcome = run_one(reader);
    if (outcome == Outcome::kDone) {
      done += reader.position();
      in_needed_ = 1;
    } else if (outcome == Outcome::kIncomplete) {
      in_needed_ = reader.needed();
      if (reader.bad() || in_needed_ > wire::kMaxMessageBytes) outcome = Outcome::kClose;
    }
  }
  in_.erase(0, done);
  return outcome != Outcome::kClose;
}

void StoreSession::release(uint64_t wait_number) {
  // A wait that was cancelled in the meantime has had its answer.
  if (waiter_ == 0 || wait_number != wait_number_) return;
  waiter_ = 0;
  out_.push_back(static_cast<char>(wire::kStopWaiting));
}

void StoreSession::drop_wait() {
  if (waiter_ != 0) table_.cancel(waiter_);
  waiter_ = 0;
}

StoreTable::OnReady StoreSession::on_ready() {
  return [told = wait_over_, number = ++wait_number_] { told(number); };
}

bool StoreSession::room_for(size_t bytes) {
  if (table_.bytes() + bytes <= max_bytes_) return true;
  log::error("rendezvous", "the store holds ", table_.bytes(), " bytes and takes no more than ", max_bytes_,
             "; the connection that asked for more is closed");
  return false;
}

StoreSession::Outcome StoreSession::run_one(wire::Reader& in) {
  uint8_t code = 0;
  if (!in.number(code)) return Outcome::kIncomplete;
  const auto query = static_cast<Query>(code);
  if (!greeted_) {
    if (query != Query::kValidate) return Outcome::kClose;
    uint32_t magic = 0;
    if (!in.number(magic)) return Outcome::kIncomplete;
    greeted_ = magic == wire::kMagic;
    return greeted_ ? Outcome::kDone : Outcome::kClose;
  }
  wire::Writer out;
  const Outcome outcome = answer(query, in, out);
  if (outcome == Outcome::kDone) out_ += out.bytes();
  return outcome;
}

StoreSession::Outcome StoreSession::answer(Query query, wire::Reader& in, wire::Writer& out) {
  switch (query) {
    case Query::kPing: {
      uint32_t nonce = 0;
      if (!in.number(nonce)) return Outcome::kIncomplete;
      out.number(nonce);
      return Outcome::kDone;
    }
    case Query::kNumKeys:
      out.number(table_.size());
      return Outcome::kDone;
    case Query::kListKeys: {
      const std::vector<std::string> keys = table_.list();
      out.number(static_cast<int64_t>(keys.size()));
      for (const std::string& key : keys) out.text(key);
      return Outcome::kDone;
    }
    case Query::kCancelWait:
      drop_wait();
      out.number(wire::kWaitCanceled);
      return Outcome::kDone;
    case Query::kCheck:
    case Query::kWait:
    case Query::kMultiGet:
    case Query::kMultiSet:
      return answer_many(query, in, out);
    case Query::kSet:
    case Query::kCompareSet:
    case Query::kGet:
    case Query::kAdd:
    case Query::kDeleteKey:
    case Query::kAppend:
    case Query::kQueuePush:
    case Query::kQueuePop:
    case Query::kQueueLen:
    case Query::kBarrier:
      return answer_one(query, in, out);
    case Query::kValidate:
      break;
  }
  return Outcome::kClose;
}

/// The requests with one key.
StoreSession::Outcome StoreSession::answer_one(Query query, wire::Reader& in, wire::Writer& out) {
  std::string key;
  std::string first;
  std::string second;
  int64_t number = 0;
  if (!in.key(key)) return Outcome::kIncomplete;
  switch (query) {
    case Query::kSet:
      if (!in.value(first)) return Outcome::kIncomplete;
      if (!room_for(first.size())) return Outcome::kClose;
      table_.set(key, first);
      return Outcome::kDone;
    case Query::kCompareSet:
      if (!in.value(first) || !in.value(second)) return Outcome::kIncomplete;
      if (!room_for(second.size())) return Outcome::kClose;
      out.text(table_.compare_set(key, first, second));
      return Outcome::kDone;
    case Query::kGet:
      out.text(table_.find(key).value_or(std::string{}));
      return Outcome::kDone;
    case Query::kAdd: {
      if (!in.number(number)) return Outcome::kIncomplete;
      if (!room_for(0)) return Outcome::kClose;
      const auto sum = table_.add(key, number);
      if (!sum) return Outcome::kClose;  // as c10d: there is no answer for "that is not a number"
      out.number(*sum);
      return Outcome::kDone;
    }
    case Query::kDeleteKey:
      out.number(static_cast<int64_t>(table_.erase(key) ? 1 : 0));
      return Outcome::kDone;
    case Query::kAppend:
      if (!in.value(first)) return Outcome::kIncomplete;
      if (!room_for(first.size())) return Outcome::kClose;
      table_.append(key, first);
      return Outcome::kDone;
    case Query::kQueuePush:
      if (!in.value(first)) return Outcome::kIncomplete;
      if (!room_for(first.size())) return Outcome::kClose;
      table_.queue_push(key, first);
      return Outcome::kDone;
    case Query::kQueuePop: {
      const StoreTable::Popped popped = table_.queue_pop(key);
      out.number(popped.size_before);
      if (popped.size_before > 0) out.text(popped.value);
      return Outcome::kDone;
    }
    case Query::kQueueLen:
      out.number(table_.queue_len(key));
      return Outcome::kDone;
    case Query::kBarrier: {
      if (!in.number(number)) return Outcome::kIncomplete;
      if (!room_for(0)) return Outcome::kClose;
      drop_wait();
      const auto waiter = table_.barrier(key, number, on_ready());
      if (!waiter) return Outcome::kClose;
      waiter_ = *waiter;
      if (*waiter == 0) out.number(wire::kStopWaiting);
      return Outcome::kDone;
    }
    default:
      return Outcome::kClose;
  }
}

/// The requests with several keys.
StoreSession::Outcome StoreSession::answer_many(Query query, wire::Reader& in, wire::Writer& out) {
  uint64_t count = 0;
  if (!in.count(count)) return Outcome::kIncomplete;
  std::vector<std::string> keys;
  std::vector<std::string> values;
  size_t bytes = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (!in.key(keys.emplace_back())) return Outcome::kIncomplete;
    if (query == Query::kMultiSet && !in.value(values.emplace_back())) return Outcome::kIncomplete;
    if (query == Query::kMultiSet) bytes += values.back().size();
  }
  switch (query) {
    case Query::kCheck:
      out.number(static_cast<uint8_t>(table_.check(keys) ? wire::kReady : 1));
      return Outcome::kDone;
    case Query::kWait:
      drop_wait();
      waiter_ = table_.wait(keys, on_ready());
      if (waiter_ == 0) out.number(wire::kStopWaiting);
      return Outcome::kDone;
    case Query::kMultiGet:
      for (const std::string& key : keys) {
        out.text(table_.find(key).value_or(std::string{}));
        if (out.bytes().size() > wire::kMaxMessageBytes) return Outcome::kClose;
      }
      return Outcome::kDone;
    default:
      if (!room_for(bytes)) return Outcome::kClose;
      for (size_t i = 0; i < keys.size(); ++i) table_.set(keys[i], values[i]);
      return Outcome::kDone;
  }
}

}  // namespace trireme::rendezvous
