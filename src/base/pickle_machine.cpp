#include "base/pickle_machine.h"

#include <bit>
#include <charconv>
#include <optional>

#include "base/pickle_opcodes.h"
#include "base/pickle_text.h"

namespace trireme::pickle {

void Machine::push_long(std::string_view raw) {
  if (raw.size() <= 8) {
    uint64_t bits = !raw.empty() && (raw.back() & 0x80) != 0 ? ~uint64_t{0} : 0;
    for (size_t i = raw.size(); i-- > 0;) bits = bits << 8 | static_cast<uint8_t>(raw[i]);
    return push_int(static_cast<int64_t>(bits));
  }
  Value& value = make(Kind::kBigInt);
  value.text = raw;
  for (size_t i = raw.size(); i-- > 0;) {
    const auto part = static_cast<uint8_t>(raw[i]);
    value.real = value.real * 256 + (i + 1 == raw.size() && part >= 128 ? part - 256.0 : part);
  }
  push(value);
}

void Machine::long_text(std::string_view text) {
  if (text == "00" || text == "01") return push_bool(text == "01");
  if (text.ends_with('L')) text.remove_suffix(1);
  const std::optional<std::string> raw = long_bytes(text);
  if (!raw) fail("an integer is no number");
  push_long(raw->size() <= 8 ? std::string_view(*raw) : keep(*raw));
}

void Machine::push_float(std::string_view text) {
  double real = 0;
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), real);
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) fail("a float is no number");
  push_float(real);
}

std::string Machine::run() {
  try {
    for (;;) {
      opcode_at_ = at_;
      const uint8_t op = byte();
      if (op == kStop) break;
      step(op);
    }
    document_.root_ = pop();
    document_.bytes_read_ = at_;
  } catch (const Wrong& wrong) {
    return str("byte ", opcode_at_, ": ", wrong.what());
  }
  return {};
}

void Machine::step(uint8_t op) {
  if (stack_.size() > limits_.max_values) fail("the stack is beyond all bounds");
  if (!number(op) && !text(op) && !container(op) && !object(op) && !machine(op)) {
    fail(str("unknown opcode ", static_cast<int>(op), ": no pickle, or damaged"));
  }
}

bool Machine::number(uint8_t op) {
  switch (op) {
    case kNoneOp:
      push(make(Kind::kNone));
      return true;
    case kNewTrue:
    case kNewFalse:
      push_bool(op == kNewTrue);
      return true;
    case kBinInt:
      push_int(static_cast<int32_t>(little_endian(4)));
      return true;
    case kBinInt1:
      push_int(byte());
      return true;
    case kBinInt2:
      push_int(static_cast<int64_t>(little_endian(2)));
      return true;
    case kLong1:
      push_long(take(byte()));
      return true;
    case kLong4:
      push_long(take(little_endian(4)));
      return true;
    case kIntText:
    case kLongText:
      long_text(line());
      return true;
    case kFloatText:
      push_float(line());
      return true;
    case kBinFloat: {
      uint64_t bits = 0;
      for (const char c : take(8)) bits = bits << 8 | static_cast<uint8_t>(c);
      push_float(std::bit_cast<double>(bits));
      return true;
    }
    default:
      return false;
  }
}

bool Machine::text(uint8_t op) {
  switch (op) {
    case kShortBinUnicode:
    case kShortBinString:
      push_text(Kind::kStr, take(byte()));
      return true;
    case kBinUnicode:
    case kBinString:
      push_text(Kind::kStr, take(little_endian(4)));
      return true;
    case kBinUnicode8:
      push_text(Kind::kStr, take(little_endian(8)));
      return true;
    case kShortBinBytes:
      push_text(Kind::kBytes, take(byte()));
      return true;
    case kBinBytes:
      push_text(Kind::kBytes, take(little_endian(4)));
      return true;
    case kBinBytes8:
    case kByteArray8:
      push_text(Kind::kBytes, take(little_endian(8)));
      return true;
    case kStringText:
    case kUnicodeText: {
      const std::string_view literal = line();
      std::optional<std::string> decoded = op == kStringText ? unquote(literal) : decode_raw_unicode(literal);
      if (!decoded) fail("a string has a bad quote or escape");
      push_text(Kind::kStr, keep(std::move(*decoded)));
      return true;
    }
    default:
      return false;
  }
}

bool Machine::container(uint8_t op) {
  switch (op) {
    case kEmptyList:
      push(make(Kind::kList));
      return true;
    case kEmptyDict:
      push(make(Kind::kDict));
      return true;
    case kEmptyTuple:
      push(make(Kind::kTuple));
      return true;
    case kEmptySet:
      push(make(Kind::kSet));
      return true;
    case kListOp:
      push_container(Kind::kList, above_mark());
      return true;
    case kDictOp:
      push_container(Kind::kDict, above_mark());
      return true;
    case kTupleOp:
      push_container(Kind::kTuple, above_mark());
      return true;
    case kFrozenSet:
      push_container(Kind::kSet, above_mark());
      return true;
    case kTuple1:
      push_last(1);
      return true;
    case kTuple2:
      push_last(2);
      return true;
    case kTuple3:
      push_last(3);
      return true;
    case kAppend:
      fill({pop()}, Kind::kList);
      return true;
    case kAppends:
      fill(above_mark(), Kind::kList);
      return true;
    case kAddItems:
      fill(above_mark(), Kind::kSet);
      return true;
    case kSetItem: {
      Value* value = pop();
      Value* key = pop();
      fill({key, value}, Kind::kDict);
      return true;
    }
    case kSetItems:
      fill(above_mark(), Kind::kDict);
      return true;
    default:
      return false;
  }
}

void Machine::fill(const std::vector<Value*>& items, Kind kind) {
  if (stack_.size() <= floor()) fail("items without a container");
  Value& container = *stack_.back();
  if (!container.is(kind) && !container.is(Kind::kObject)) fail("items for something that takes no such items");
  if (kind == Kind::kDict && items.size() % 2 != 0) fail("a dict has a key without a value");
  for (const Value* item : items) add(container, item);
}

bool Machine::machine(uint8_t op) {
  constexpr int kNewestProtocol = 5;
  switch (op) {
    case kProto:
      if (const uint8_t protocol = byte(); protocol > kNewestProtocol) {
        fail(str("protocol ", static_cast<int>(protocol), "; 0 to ", kNewestProtocol, " are known"));
      }
      return true;
    case kFrame:
      little_endian(8);
      return true;  // how much the writer buffered; the opcodes go on
    case kMark:
      marks_.push_back(stack_.size());
      return true;
    case kPop:
      if (!marks_.empty() && marks_.back() == stack_.size()) {
        marks_.pop_back();
      } else {
        pop();
      }
      return true;
    case kPopMark:
      above_mark();
      return true;
    case kDup:
      stack_.push_back(pop()), stack_.push_back(stack_.back());
      return true;
    case kPut:
      put(index_of(line()));
      return true;
    case kBinPut:
      put(byte());
      return true;
    case kLongBinPut:
      put(little_endian(4));
      return true;
    case kMemoize:
      put(num_memoized());
      return true;
    case kGet:
      get(index_of(line()));
      return true;
    case kBinGet:
      get(byte());
      return true;
    case kLongBinGet:
      get(little_endian(4));
      return true;
    default:
      return false;
  }
}

}  // namespace trireme::pickle
