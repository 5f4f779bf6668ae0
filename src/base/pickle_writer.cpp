#include "base/pickle_writer.h"

#include <bit>

#include "base/pickle_opcodes.h"
#include "base/utf8.h"
#include "trireme/base/error.h"

namespace trireme::pickle {
namespace {

void append_little_endian(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

}  // namespace

Writer::Writer(std::string& out) : out_(out) {
  out_ += static_cast<char>(kProto);
  out_ += '\x02';
}

void Writer::none() { out_ += static_cast<char>(kNoneOp); }

void Writer::boolean(bool value) { out_ += static_cast<char>(value ? kNewTrue : kNewFalse); }

void Writer::integer(int64_t value) {
  if (value >= 0 && value <= 0xff) {
    out_ += static_cast<char>(kBinInt1);
    append_little_endian(out_, static_cast<uint64_t>(value), 1);
  } else if (value >= INT32_MIN && value <= INT32_MAX) {
    out_ += static_cast<char>(kBinInt);
    append_little_endian(out_, static_cast<uint64_t>(value), 4);
  } else {
    out_ += static_cast<char>(kLong1);
    out_ += '\x08';
    append_little_endian(out_, static_cast<uint64_t>(value), 8);
  }
}

void Writer::real(double value) {
  out_ += static_cast<char>(kBinFloat);
  const auto bits = std::bit_cast<uint64_t>(value);
  for (int shift = 56; shift >= 0; shift -= 8)
    out_ += static_cast<char>(bits >> shift);  // big-endian, alone in the format
}

void Writer::text(std::string_view value) {
  out_ += static_cast<char>(kBinUnicode);
  const size_t size_at = out_.size();
  append_little_endian(out_, 0, 4);
  while (!value.empty()) {
    const size_t length = first_utf8_character(value).bytes;
    out_ += length > 0 ? value.substr(0, length) : std::string_view("\xef\xbf\xbd");
    value.remove_prefix(length > 0 ? length : 1);
  }
  const size_t size = out_.size() - size_at - 4;
  TRIREME_CHECK(size <= UINT32_MAX, "a text of 4 GiB in a pickle");
  for (size_t i = 0; i < 4; ++i) out_[size_at + i] = static_cast<char>(size >> (8 * i));
}

void Writer::begin(Open kind) {
  open_.push_back(kind);
  if (kind == Open::kDict) out_ += static_cast<char>(kEmptyDict);
  if (kind == Open::kList) out_ += static_cast<char>(kEmptyList);
  out_ += static_cast<char>(kMark);
}

void Writer::begin_dict() { begin(Open::kDict); }
void Writer::begin_list() { begin(Open::kList); }
void Writer::begin_tuple() { begin(Open::kTuple); }

void Writer::end() {
  TRIREME_CHECK(!open_.empty(), "a pickle ends what was not begun");
  const Open kind = open_.back();
  open_.pop_back();
  out_ += static_cast<char>(kind == Open::kDict ? kSetItems : kind == Open::kList ? kAppends : kTupleOp);
}

uint32_t Writer::remember() {
  out_ += static_cast<char>(kLongBinPut);
  append_little_endian(out_, num_remembered_, 4);
  return num_remembered_++;
}

void Writer::recall(uint32_t index) {
  TRIREME_CHECK(index < num_remembered_, "a pickle recalls what was not remembered");
  const bool is_short = index <= 0xff;
  out_ += static_cast<char>(is_short ? kBinGet : kLongBinGet);
  append_little_endian(out_, index, is_short ? 1 : 4);
}

void Writer::finish() {
  TRIREME_CHECK(open_.empty(), "a pickle is finished with a container open");
  out_ += static_cast<char>(kStop);
}

}  // namespace trireme::pickle
