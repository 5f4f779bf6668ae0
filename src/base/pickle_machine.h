// The stack machine that a pickle is a program for. Private to the pickle reader: pickle_machine.cpp has the opcodes of plain data,
// pickle_objects.cpp those that would look classes up and call them.
#pragma once

#include <charconv>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/pickle_reader.h"
#include "base/str.h"

namespace trireme::pickle {

/// One use.
class Machine {
 public:
  Machine(Document& document, std::string_view bytes, const Limits& limits)
      : document_(document), bytes_(bytes), limits_(limits) {}

  /// The offset and what is wrong there; empty when all went well.
  std::string run();

 private:
  class Wrong : public std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  [[noreturn]] static void fail(const std::string& words) { throw Wrong(words); }

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
  void push_long(std::string_view raw);
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
  void push_object(std::string name, const std::vector<Value*>& parts);
  void global(std::string_view module, std::string_view name);
  /// What a call of this global makes; kObject: nothing that is plain.
  static Kind plain_kind(std::string_view name);
  static bool is_plain(std::string_view name) { return plain_kind(name) != Kind::kObject || name == "_codecs.encode"; }

  /// callable(*arguments), for the few callables that only stand for data.
  void call(const Value& callable, Value& arguments);
  /// Bytes that Python wrote as text of the code points 0 to 255.
  static std::string latin1(std::string_view utf8);

  void step(uint8_t op);

  bool number(uint8_t op);
  void push_bool(bool value) {
    Value& made = make(Kind::kBool);
    made.integer = value ? 1 : 0;
    push(made);
  }
  void long_text(std::string_view text);
  void push_float(double real) {
    Value& value = make(Kind::kFloat);
    value.real = real;
    push(value);
  }
  void push_float(std::string_view text);

  bool text(uint8_t op);

  bool container(uint8_t op);
  /// Adds to the container on top of the stack. An object takes items too: a subclass of list or dict does.
  void fill(const std::vector<Value*>& items, Kind kind);

  bool object(uint8_t op);

  bool machine(uint8_t op);
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

}  // namespace trireme::pickle
