// Writes plain data as a Python pickle of protocol 2, which every Python since 2.3 reads.
//
// The writer streams: a dump of a million events costs no more memory than what has not been taken yet.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::pickle {

/// Purpose     One value, written in the order in which it is read: a container is opened, filled and ended; in a dict, keys and values take
///             turns.
/// Invariants  finish() is called once, when every container has been ended; TRIREME_CHECK holds the caller to both.
/// Cost        appends to `out`, some bytes more than the data.
class Writer {
 public:
  explicit Writer(std::string& out);

  void none();
  void boolean(bool value);
  void integer(int64_t value);
  void real(double value);
  /// Bytes that are no UTF-8 become U+FFFD: Python would refuse the whole file.
  void text(std::string_view value);
  void begin_dict();
  void begin_list();
  void begin_tuple();
  void end();
  void finish();
  /// Of the value written last (a container when it has been ended): recall(remember()) writes it once more in at most 5 bytes, and Python reads
  /// both as one object. At most 2^32 values.
  [[nodiscard]] uint32_t remember();
  void recall(uint32_t index);

 private:
  enum class Open : uint8_t { kDict, kList, kTuple };
  void begin(Open kind);

  std::string& out_;
  std::vector<Open> open_;
  uint32_t num_remembered_ = 0;
};

}  // namespace trireme::pickle
