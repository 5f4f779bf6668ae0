#include "base/pickle_reader.h"

#include "base/pickle_machine.h"
#include "base/pickle_opcodes.h"
#include "base/str.h"

namespace trireme::pickle {

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
