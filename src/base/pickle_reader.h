// Reads Python pickles, protocols 0 to 5, as plain data. Nothing is ever executed: no class is looked up, no function called.
//
// Dumps come from other people's machines (PyTorch's flight recorder, memory snapshots), so the reader believes nothing: sizes, depth,
// memo and number of values are bounded, and what is wrong is told by its offset. Source of the format: Lib/pickletools.py of CPython.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/result.h"

namespace trireme::pickle {

enum class Kind : uint8_t {
  kNone,
  kBool,    ///< integer is 0 or 1
  kInt,     ///< integer
  kBigInt,  ///< does not fit in 64 bits: `text` is little-endian two's complement, `real` its nearest double
  kFloat,   ///< real
  kStr,     ///< text, UTF-8 as the file has it (lone surrogates possible)
  kBytes,   ///< text; bytearray too
  kList,    ///< items
  kTuple,   ///< items
  kSet,     ///< items, in the file's order, doubles possible; frozenset too
  kDict,    ///< items: key, value, key, value, ...; a key that comes again wins
  kObject,  ///< something that unpickling would construct: `text` is "module.name", items what it would be given
};

/// One value. It belongs to its Document, and may contain itself: whoever walks all of it bounds the depth.
struct Value {
  Kind kind = Kind::kNone;
  uint32_t depth = 0;  ///< of a container: at least that of what it held when it was filled, plus one
  int64_t integer = 0;
  double real = 0;
  std::string_view text = {};
  std::vector<const Value*> items = {};

  [[nodiscard]] bool is(Kind other) const { return kind == other; }
  [[nodiscard]] bool is_sequence() const { return kind == Kind::kList || kind == Kind::kTuple; }
  /// The value of a string key of a dict; null when there is none or this is no dict.
  [[nodiscard]] const Value* find(std::string_view key) const;
  /// The integer of kInt or kBool, else `otherwise`.
  [[nodiscard]] int64_t int_or(int64_t otherwise) const;
  /// The text of kStr or kBytes, else "".
  [[nodiscard]] std::string_view str() const;
};

struct Limits {
  size_t max_bytes = size_t{1} << 30;
  size_t max_values = size_t{16} << 20;  ///< about 72 bytes each, beside their text and items
  uint32_t max_depth = 1000;             ///< Python's own default for recursion
  bool allow_objects = true;             ///< false: the first global or persistent id is an error that names it
};

class Document;
[[nodiscard]] Result<std::shared_ptr<const Document>> read(std::shared_ptr<const std::string> bytes,
                                                           const Limits& limits);

/// Values, and the bytes that their texts point into.
class Document {
 public:
  [[nodiscard]] const Value& root() const { return *root_; }
  [[nodiscard]] size_t num_values() const { return values_.size(); }
  /// Bytes of the pickle up to and with STOP; a file may go on after it.
  [[nodiscard]] size_t bytes_read() const { return bytes_read_; }

 private:
  friend class Machine;
  friend Result<std::shared_ptr<const Document>> read(std::shared_ptr<const std::string> bytes, const Limits& limits);
  std::shared_ptr<const std::string> bytes_;
  std::deque<Value> values_;
  std::deque<std::string> texts_;
  const Value* root_ = nullptr;
  size_t bytes_read_ = 0;
};

/// Plain data and what is equal to it: set, frozenset, bytearray, bytes through _codecs.encode, OrderedDict, defaultdict, and the typed
/// lists of torch.jit. Every other global becomes a kObject.
///
/// Cost    linear in the bytes; the values stay below `limits`.
/// Reason  "byte OFFSET: WORDS": cut off, an unknown opcode, a memo entry that is not there, too deep, too many values.
[[nodiscard]] Result<std::shared_ptr<const Document>> read(std::shared_ptr<const std::string> bytes,
                                                           const Limits& limits = {});

/// Whether these first bytes of a file look like a pickle of protocol 2 to 5, or like one of protocol 0 or 1 that is a dict, list or tuple.
[[nodiscard]] bool looks_like_pickle(std::string_view head);

}  // namespace trireme::pickle
