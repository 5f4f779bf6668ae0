#include "base/pickle_reader.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/pickle_opcodes.h"
#include "base/pickle_text.h"
#include "base/str.h"

namespace trireme::pickle {

/// The stack machine that a pickle is a program for. One use.
class Machine {
 public:
  Machine(Document& document, std::string_view bytes, const Limits& limits)
      : document_(document), bytes_(bytes), limits_(limits) {}

  /// The offset and what is wrong there; empty when all went well.
  std::string run() {
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
      return str("byte ", opcode_at_, ": ", wrong.words);
    }
    return {};
  }

 private:
  struct Wrong {
    std::string words;
  };
  [[noreturn]] static void fail(std::string words) { throw Wrong{std::move(words)}; }

  // --- bytes
  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_)
      fail(str("cut off: ", count, " bytes are announced and ", bytes_.size() - at_, " are there"));
    const std::string_view out = bytes_.substr(at_, count);
    at_ += count;
    return out;
  }
  uint8_t byte() { return static_cast<uint8_t>(take(1)[0]); }
  uint64_t little_endian(size_t count) {
    uint64_t value = 0;
    const std::string_view raw = take(count);
    for (size_t i = count; i-- > 0;) value = value << 8 | static_cast<uint8_t>(raw[i]);
    return value;
  }
  std::string_view line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) fail("cut off: a line has no end");
    const std::string_view out = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return out.ends_with('\r') ? out.substr(0, out.size() - 1) : out;
  }

  // --- values
  Value& make(Kind kind) {
    if (document_.values_.size() >= limits_.max_values) fail(str("more than ", limits_.max_values, " values"));
    document_.values_.emplace_back().kind = kind;
    return document_.values_.back();
  }
  std::string_view keep(std::string text) { return document_.texts_.emplace_back(std::move(text)); }
  void push(Value& value) { stack_.push_back(&value); }
  void push_text(Kind kind, std::string_view text) {
    Value& value = make(kind);
    value.text = text;
    push(value);
  }
  void push_int(int64_t integer) {
    Value& value = make(Kind::kInt);
    value.integer = integer;
    push(value);
  }
  void push_long(std::string_view raw) {
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
  Value* pop() {
    if (stack_.size() <= floor()) fail("the stack is empty");
    Value* value = stack_.back();
    stack_.pop_back();
    return value;
  }
  Value& top(Kind kind, const char* words) {
    if (stack_.size() <= floor() || !stack_.back()->is(kind)) fail(words);
    return *stack_.back();
  }
  [[nodiscard]] size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  void add(Value& container, const Value* item) {
    container.items.push_back(item);
    if (item->depth >= container.depth) container.depth = item->depth + 1;
    if (container.depth > limits_.max_depth) fail(str("nested deeper than ", limits_.max_depth));
  }
  /// What lies above the last mark; takes the mark off too.
  std::vector<Value*> above_mark() {
    if (marks_.empty()) fail("there is no mark");
    std::vector<Value*> out(stack_.begin() + static_cast<ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return out;
  }
  void push_container(Kind kind, const std::vector<Value*>& items) {
    if (kind == Kind::kDict && items.size() % 2 != 0) fail("a dict has a key without a value");
    Value& value = make(kind);
    value.items.reserve(items.size());
    for (const Value* item : items) add(value, item);
    push(value);
  }
  void push_last(size_t count) {  // TUPLE1 to TUPLE3
    std::vector<Value*> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    push_container(Kind::kTuple, items);
  }

  // --- memo
  void put(uint64_t index) {
    if (stack_.empty()) fail("nothing to remember");
    if (index >= limits_.max_values) fail(str("memo entry ", index, " is beyond all bounds"));
    if (index >= memo_.size()) memo_.resize(index + 1);
    memo_[index] = stack_.back();
  }
  void get(uint64_t index) {
    if (index >= memo_.size() || memo_[index] == nullptr) fail(str("memo entry ", index, " is not there"));
    stack_.push_back(memo_[index]);
  }
  static uint64_t index_of(std::string_view text) {
    uint64_t index = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
    if (error != std::errc{} || end != text.data() + text.size()) fail("a memo entry has no number");
    return index;
  }

  // --- what would be objects
  void push_object(std::string name, const std::vector<Value*>& parts) {
    if (!limits_.allow_objects)
      fail(str("'", name.substr(0, 200), "' would be constructed, and only plain data is read"));
    push_container(Kind::kObject, parts);
    stack_.back()->text = keep(std::move(name));
  }
  void global(std::string_view module, std::string_view name) {
    Value& value = make(Kind::kObject);
    value.text = keep(str(module, ".", name));
    if (!limits_.allow_objects && !is_plain(value.text)) {
      fail(str("'", value.text.substr(0, 200), "' would be looked up, and only plain data is read"));
    }
    push(value);
  }
  /// What a call of this global makes; kObject: nothing that is plain.
  static Kind plain_kind(std::string_view name) {
    constexpr std::string_view kPython2 = "__builtin__.";
    constexpr std::string_view kPython3 = "builtins.";
    if (name == "collections.OrderedDict" || name == "collections.defaultdict") return Kind::kDict;
    if (name.starts_with("torch.jit._pickle.build_")) return Kind::kList;
    if (name.starts_with(kPython2)) name.remove_prefix(kPython2.size());
    if (name.starts_with(kPython3)) name.remove_prefix(kPython3.size());
    if (name == "set" || name == "frozenset") return Kind::kSet;
    if (name == "bytearray" || name == "bytes") return Kind::kBytes;
    return Kind::kObject;
  }
  static bool is_plain(std::string_view name) { return plain_kind(name) != Kind::kObject || name == "_codecs.encode"; }

  /// callable(*arguments), for the few callables that only stand for data.
  void call(const Value& callable, Value& arguments) {
    if (!callable.is(Kind::kObject)) fail("something that is no global would be called");
    const std::string_view name = callable.text;
    const Kind kind = callable.items.empty() ? plain_kind(name) : Kind::kObject;
    const Value* first = arguments.items.empty() ? nullptr : arguments.items.front();
    if (name == "_codecs.encode" && first != nullptr && first->is(Kind::kStr)) {
      return push_text(Kind::kBytes, keep(latin1(first->text)));
    }
    if (kind == Kind::kBytes && (first == nullptr || first->is(Kind::kBytes) || first->is(Kind::kStr))) {
      return push_text(Kind::kBytes, first == nullptr        ? std::string_view{}
                                     : first->is(Kind::kStr) ? keep(latin1(first->text))
                                                             : first->text);
    }
    // A defaultdict's argument is its factory, an OrderedDict's of Python 2 a list of pairs.
    const bool is_pairs = kind == Kind::kDict && first != nullptr && first->is(Kind::kList);
    if (kind == Kind::kDict && !is_pairs) return push(make(Kind::kDict));
    if (kind != Kind::kObject && kind != Kind::kBytes &&
        (first == nullptr || first->is_sequence() || first->is(Kind::kSet))) {
      Value& value = make(kind);
      if (first != nullptr) {
        for (const Value* item : first->items) {
          if (!is_pairs) {
            add(value, item);
          } else if (item->is_sequence() && item->items.size() == 2) {
            add(value, item->items[0]);
            add(value, item->items[1]);
          }
        }
      }
      return push(value);
    }
    push_object(std::string(name), {&arguments});
  }
  /// Bytes that Python wrote as text of the code points 0 to 255.
  static std::string latin1(std::string_view utf8) {
    std::string out;
    for (size_t i = 0; i < utf8.size(); ++i) {
      const auto c = static_cast<uint8_t>(utf8[i]);
      const bool pair = (c == 0xc2 || c == 0xc3) && i + 1 < utf8.size();
      out += pair ? static_cast<char>((c & 3U) << 6 | (static_cast<uint8_t>(utf8[i + 1]) & 0x3fU)) : utf8[i];
      if (pair) ++i;
    }
    return out;
  }

  void step(uint8_t op) {
    if (stack_.size() > limits_.max_values) fail("the stack is beyond all bounds");
    if (!number(op) && !text(op) && !container(op) && !object(op) && !machine(op)) {
      fail(str("unknown opcode ", static_cast<int>(op), ": no pickle, or damaged"));
    }
  }

  bool number(uint8_t op) {
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
  void push_bool(bool value) {
    Value& made = make(Kind::kBool);
    made.integer = value ? 1 : 0;
    push(made);
  }
  void long_text(std::string_view text) {
    if (text == "00" || text == "01") return push_bool(text == "01");
    if (text.ends_with('L')) text.remove_suffix(1);
    const std::optional<std::string> raw = long_bytes(text);
    if (!raw) fail("an integer is no number");
    push_long(raw->size() <= 8 ? std::string_view(*raw) : keep(*raw));
  }
  void push_float(double real) {
    Value& value = make(Kind::kFloat);
    value.real = real;
    push(value);
  }
  void push_float(std::string_view text) {
    double real = 0;
    if (text.starts_with('+')) text.remove_prefix(1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), real);
    if (error == std::errc::invalid_argument || end != text.data() + text.size()) fail("a float is no number");
    push_float(real);
  }

  bool text(uint8_t op) {
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

  bool container(uint8_t op) {
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
  /// Adds to the container on top of the stack. An object takes items too: a subclass of list or dict does.
  void fill(const std::vector<Value*>& items, Kind kind) {
    if (stack_.size() <= floor()) fail("items without a container");
    Value& container = *stack_.back();
    if (!container.is(kind) && !container.is(Kind::kObject)) fail("items for something that takes no such items");
    if (kind == Kind::kDict && items.size() % 2 != 0) fail("a dict has a key without a value");
    for (const Value* item : items) add(container, item);
  }

  bool object(uint8_t op) {
    switch (op) {
      case kGlobal: {
        const std::string_view module = line();
        global(module, line());
        return true;
      }
      case kStackGlobal: {
        const Value* name = pop();
        const Value* module = pop();
        if (!name->is(Kind::kStr) || !module->is(Kind::kStr)) fail("a global has no name");
        global(module->text, name->text);
        return true;
      }
      case kReduce:
      case kNewObj: {
        Value* arguments = pop();
        const Value* callable = pop();
        if (!arguments->is(Kind::kTuple)) fail("arguments are no tuple");
        call(*callable, *arguments);
        return true;
      }
      case kNewObjEx: {
        Value* keywords = pop();
        Value* arguments = pop();
        const Value* callable = pop();
        if (!callable->is(Kind::kObject)) fail("something that is no global would be called");
        push_object(std::string(callable->text), {arguments, keywords});
        return true;
      }
      case kInst: {
        const std::string_view module = line();
        const std::string_view name = line();
        push_object(str(module, ".", name), above_mark());
        return true;
      }
      case kObj: {
        std::vector<Value*> parts = above_mark();
        if (parts.empty() || !parts.front()->is(Kind::kObject)) fail("something that is no global would be called");
        const std::string name(parts.front()->text);
        parts.erase(parts.begin());
        push_object(name, parts);
        return true;
      }
      case kBuild: {
        const Value* state = pop();
        if (stack_.size() <= floor()) fail("a state without an object");
        if (stack_.back()->is(Kind::kObject)) add(*stack_.back(), state);
        return true;
      }
      case kPersId:
        push_object(str("persistent id ", line().substr(0, 200)), {});
        return true;
      case kBinPersId:
        push_object("persistent id", {pop()});
        return true;
      case kExt1:
        push_object(str("extension ", little_endian(1)), {});
        return true;
      case kExt2:
        push_object(str("extension ", little_endian(2)), {});
        return true;
      case kExt4:
        push_object(str("extension ", little_endian(4)), {});
        return true;
      case kNextBuffer:
        push_object("buffer outside the pickle", {});
        return true;
      case kReadOnlyBuffer:
        return true;
      default:
        return false;
    }
  }

  bool machine(uint8_t op) {
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
  /// MEMOIZE counts what is there.
  [[nodiscard]] size_t num_memoized() const { return memo_.size(); }

  Document& document_;
  std::string_view bytes_;
  Limits limits_;
  size_t at_ = 0;
  size_t opcode_at_ = 0;
  std::vector<Value*> stack_;
  std::vector<size_t> marks_;
  std::vector<Value*> memo_;
};

const Value* Value::find(std::string_view key) const {
  if (kind != Kind::kDict) return nullptr;
  for (size_t i = items.size(); i >= 2; i -= 2) {
    if (items[i - 2]->is(Kind::kStr) && items[i - 2]->text == key) return items[i - 1];
  }
  return nullptr;
}

int64_t Value::int_or(int64_t otherwise) const {
  return kind == Kind::kInt || kind == Kind::kBool ? integer : otherwise;
}

std::string_view Value::str() const { return kind == Kind::kStr || kind == Kind::kBytes ? text : std::string_view{}; }

Result<std::shared_ptr<const Document>> read(std::shared_ptr<const std::string> bytes, const Limits& limits) {
  if (bytes->empty()) return Reason{"byte 0: the file is empty"};
  if (bytes->size() > limits.max_bytes) {
    return Reason{str("byte 0: ", bytes->size(), " bytes are more than the ", limits.max_bytes, " that are read")};
  }
  auto document = std::make_shared<Document>();
  Machine machine(*document, *bytes, limits);
  std::string wrong = machine.run();
  if (!wrong.empty()) return Reason{std::move(wrong)};
  // Values point into these bytes.
  document->bytes_ = std::move(bytes);
  return std::shared_ptr<const Document>(std::move(document));
}

bool looks_like_pickle(std::string_view head) {
  if (head.size() < 2) return false;
  if (static_cast<uint8_t>(head[0]) == kProto) {
    constexpr std::string_view kFirst =
        "}](NcKMJX\x8c\x95\x8a\x8f)G\x88\x89"
        "C"
        "\x8e"
        "BVU";
    return head[1] >= 2 && head[1] <= 5 && (head.size() == 2 || kFirst.find(head[2]) != std::string_view::npos);
  }
  // Protocol 0 writes (dp0, (lp0 or (tp0; protocol 1 }q, ]q.
  if (head[0] == '(' && (head[1] == 'd' || head[1] == 'l')) return head.size() > 2 && head[2] == 'p';
  if (head[0] == '}' || head[0] == ']') return head[1] == 'q' && head.size() > 2 && head[2] == '\0';
  return false;
}

}  // namespace trireme::pickle
