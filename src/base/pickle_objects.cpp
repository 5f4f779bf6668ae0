#include "base/pickle_machine.h"
#include "base/pickle_opcodes.h"

namespace trireme::pickle {

void Machine::push_object(std::string name, const std::vector<Value*>& parts) {
  if (!limits_.allow_objects)
    fail(str("'", name.substr(0, 200), "' would be constructed, and only plain data is read"));
  push_container(Kind::kObject, parts);
  stack_.back()->text = keep(std::move(name));
}

void Machine::global(std::string_view module, std::string_view name) {
  Value& value = make(Kind::kObject);
  value.text = keep(str(module, ".", name));
  if (!limits_.allow_objects && !is_plain(value.text)) {
    fail(str("'", value.text.substr(0, 200), "' would be looked up, and only plain data is read"));
  }
  push(value);
}

Kind Machine::plain_kind(std::string_view name) {
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

void Machine::call(const Value& callable, Value& arguments) {
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

std::string Machine::latin1(std::string_view utf8) {
  std::string out;
  for (size_t i = 0; i < utf8.size(); ++i) {
    const auto c = static_cast<uint8_t>(utf8[i]);
    const bool pair = (c == 0xc2 || c == 0xc3) && i + 1 < utf8.size();
    out += pair ? static_cast<char>((c & 3U) << 6 | (static_cast<uint8_t>(utf8[i + 1]) & 0x3fU)) : utf8[i];
    if (pair) ++i;
  }
  return out;
}

bool Machine::object(uint8_t op) {
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

}  // namespace trireme::pickle
