#include "diagnose/job/json_values.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <nlohmann/json.hpp>

#include "base/fd.h"
#include "base/str.h"

namespace trireme::diagnose {
namespace {

using pickle::Kind;
using pickle::Value;

struct Tree {
  std::deque<Value> values;
  std::deque<std::string> texts;
};

/// Builds the tree from nlohmann's events; its own document would need ten times the memory.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(Tree& tree, size_t bytes, size_t max_values) : tree_(tree), bytes_(bytes), max_values_(max_values) {}

  bool null() override { return put(Kind::kNone) != nullptr; }
  bool boolean(bool value) override { return put_int(Kind::kBool, value ? 1 : 0); }
  bool number_integer(number_integer_t value) override { return put_int(Kind::kInt, value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= INT64_MAX) return put_int(Kind::kInt, static_cast<int64_t>(value));
    return number_float(static_cast<double>(value), {});
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    Value* made = put(Kind::kFloat);
    if (made != nullptr) made->real = value;
    return made != nullptr;
  }
  bool string(string_t& text) override { return put_text(text) != nullptr; }
  bool binary(binary_t& /*bytes*/) override { return false; }
  bool start_object(size_t /*size*/) override { return open(Kind::kDict); }
  bool key(string_t& text) override { return put_text(text) != nullptr; }
  bool end_object() override { return close(); }
  bool start_array(size_t /*size*/) override { return open(Kind::kList); }
  bool end_array() override { return close(); }
  bool parse_error(size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    const bool at_end = position >= bytes_;
    wrong_ = str("byte ", position, ": ", at_end ? "cut off in the middle of the JSON" : "no JSON");
    return false;
  }

  [[nodiscard]] const std::string& wrong() const { return wrong_; }
  [[nodiscard]] const Value* root() const { return root_; }

 private:
  static constexpr size_t kDeepest = 1000;

  Value* put(Kind kind) {
    if (tree_.values.size() >= max_values_) {
      wrong_ = str("byte 0: more than ", max_values_, " values");
      return nullptr;
    }
    Value& value = tree_.values.emplace_back();
    value.kind = kind;
    if (open_.empty()) {
      root_ = &value;
    } else {
      open_.back()->items.push_back(&value);
    }
    return &value;
  }
  bool put_int(Kind kind, int64_t integer) {
    Value* value = put(kind);
    if (value != nullptr) value->integer = integer;
    return value != nullptr;
  }
  Value* put_text(string_t& text) {
    Value* value = put(Kind::kStr);
    if (value != nullptr) value->text = tree_.texts.emplace_back(std::move(text));
    return value;
  }
  bool open(Kind kind) {
    if (open_.size() >= kDeepest) {
      wrong_ = str("byte 0: nested deeper than ", kDeepest);
      return false;
    }
    Value* value = put(kind);
    if (value != nullptr) open_.push_back(value);
    return value != nullptr;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Tree& tree_;
  size_t bytes_;
  size_t max_values_;
  std::vector<Value*> open_;
  const Value* root_ = nullptr;
  std::string wrong_;
};

}  // namespace

Result<std::shared_ptr<const Value>> read_json_values(std::string_view text, size_t max_values) {
  auto tree = std::make_shared<Tree>();
  Builder builder(*tree, text.size(), max_values);
  const bool good = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (!good || builder.root() == nullptr) return Reason{builder.wrong().empty() ? "byte 0: no JSON" : builder.wrong()};
  return std::shared_ptr<const Value>(tree, builder.root());
}

std::string read_whole_file(const std::string& path, size_t most) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status{};
  if (!fd || fstat(fd.get(), &status) != 0) throw Error(ErrorKind::kIo, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) throw Error(ErrorKind::kIo, "not a regular file");
  const auto size = static_cast<size_t>(status.st_size);
  if (size > most) {
    throw Error(ErrorKind::kIo, str(grouped(status.st_size), " bytes; at most ", grouped(static_cast<int64_t>(most)),
                                    " of such a file are read"));
  }
  std::string out(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t got = read(fd.get(), out.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(ErrorKind::kIo, std::strerror(errno));
    if (got == 0) break;  // cut short while we read
    done += static_cast<size_t>(got);
  }
  out.resize(done);
  return out;
}

}  // namespace trireme::diagnose
