#include "base/pickle_writer.h"

#include <bit>

#include "base/pickle_opcodes.h"
#include "trireme/base/error.h"

namespace trireme::pickle {
namespace {

void append_little_endian(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

/// Bytes of the UTF-8 character that begins here; 0: none does.
size_t character_at(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool surrogate = first == 0xed && byte(1) >= 0xa0;
  const bool too_high = first == 0xf4 && byte(1) >= 0x90;
  return overlong || surrogate || too_high ? 0 : length;
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
    const size_t length = character_at(value);
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

void Writer::finish() {
  TRIREME_CHECK(open_.empty(), "a pickle is finished with a container open");
  out_ += static_cast<char>(kStop);
}

}  // namespace trireme::pickle
