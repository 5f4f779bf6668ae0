// The bytes of c10d's TCPStore protocol. Numbers are in host order; a text is its length (u64) and its bytes.
//
// A connection starts with kValidate and kMagic. Requests (r = reply):
//   kSet key value          | kCompareSet key expected desired, r value  | kGet key, r value (empty when absent)
//   kAdd key i64, r i64     | kCheck n key*n, r u8 0 yes 1 no            | kWait n key*n, r u8 kStopWaiting, when all
//   exist kNumKeys, r i64         | kDeleteKey key, r i64                      | kAppend key value kMultiGet n key*n, r
//   value*n | kMultiSet n (key value)*n             | kCancelWait, r u8 kWaitCanceled kPing u32, r u32        |
//   kQueuePush key value                       | kQueuePop key, r i64 length [value] kQueueLen key, r i64    |
//   kListKeys, r i64 n, key*n                  | kBarrier key i64, r u8 kStopWaiting
// Clients of c10d put "/" in front of every key but "init/", which counts those that connected.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace trireme::rendezvous::wire {

enum class Query : uint8_t {
  kValidate,
  kSet,
  kCompareSet,
  kGet,
  kAdd,
  kCheck,
  kWait,
  kNumKeys,
  kDeleteKey,
  kAppend,
  kMultiGet,
  kMultiSet,
  kCancelWait,
  kPing,
  kQueuePush,
  kQueuePop,
  kQueueLen,
  kListKeys,
  kBarrier,
};

inline constexpr uint32_t kMagic = 0x3C85F7CE;
inline constexpr uint8_t kReady = 0;
inline constexpr uint8_t kStopWaiting = 0;
inline constexpr uint8_t kWaitCanceled = 1;
inline constexpr char kKeyPrefix[] = "/";

inline constexpr size_t kMaxKeyBytes = size_t{8} * 1024;
inline constexpr size_t kMaxValueBytes = size_t{8} * 1024 * 1024;
inline constexpr size_t kMaxKeys = size_t{128} * 1024;
inline constexpr size_t kMaxMessageBytes = size_t{64} * 1024 * 1024;

/// Builds a message.
class Writer {
 public:
  template <typename Number>
  void number(Number value) {
    char bytes[sizeof(Number)];
    std::memcpy(bytes, &value, sizeof(Number));
    bytes_.append(bytes, sizeof(Number));
  }
  void query(Query query) { number(static_cast<uint8_t>(query)); }
  void text(std::string_view text) {
    number(static_cast<uint64_t>(text.size()));
    bytes_.append(text);
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Reads a message that may not be there as a whole yet, and whose sender is not trusted.
///
/// Every function returns false when bytes are missing, then needed() says how many the message has at least; or when
/// a length passes its limit, then bad() is true.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <typename Number>
  [[nodiscard]] bool number(Number& value) {
    if (!have(sizeof(Number))) return false;
    std::memcpy(&value, bytes_.data() + position_, sizeof(Number));
    position_ += sizeof(Number);
    return true;
  }
  [[nodiscard]] bool key(std::string& text) { return limited(text, kMaxKeyBytes); }
  [[nodiscard]] bool value(std::string& text) { return limited(text, kMaxValueBytes); }
  [[nodiscard]] bool count(uint64_t& count) {
    if (!number(count)) return false;
    if (count > kMaxKeys) bad_ = true;
    return !bad_;
  }

  [[nodiscard]] bool bad() const { return bad_; }
  [[nodiscard]] size_t needed() const { return needed_; }
  [[nodiscard]] size_t position() const { return position_; }

 private:
  [[nodiscard]] bool have(size_t size) {
    needed_ = position_ + size;
    return bytes_.size() - position_ >= size;
  }
  [[nodiscard]] bool limited(std::string& text, size_t limit) {
    uint64_t size = 0;
    if (!number(size)) return false;
    if (size > limit) {
      bad_ = true;
      return false;
    }
    if (!have(size)) return false;
    text.assign(bytes_.substr(position_, size));
    position_ += size;
    return true;
  }

  std::string_view bytes_;
  size_t position_ = 0;
  size_t needed_ = 0;
  bool bad_ = false;
};

}  // namespace trireme::rendezvous::wire
