#include "base/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::safetensors {
namespace {

struct DtypeRow {
  Dtype dtype;
  std::string_view name;
  size_t bytes;
};
constexpr DtypeRow kDtypes[] = {
    {Dtype::kBool, "BOOL", 1}, {Dtype::kU8, "U8", 1},   {Dtype::kI8, "I8", 1},   {Dtype::kI16, "I16", 2},
    {Dtype::kI32, "I32", 4},   {Dtype::kI64, "I64", 8}, {Dtype::kF16, "F16", 2}, {Dtype::kBf16, "BF16", 2},
    {Dtype::kF32, "F32", 4},   {Dtype::kF64, "F64", 8},
};

// Product of the shape and the element size; false when it does not fit 63 bits or a dimension is negative.
bool byte_count(std::span<const int64_t> shape, size_t element, uint64_t* bytes) {
  uint64_t product = element;
  for (const int64_t dim : shape) {
    if (dim < 0) return false;
    if (__builtin_mul_overflow(product, static_cast<uint64_t>(dim), &product)) return false;
  }
  *bytes = product;
  return product <= static_cast<uint64_t>(INT64_MAX);
}

[[noreturn]] void damaged(std::string_view file, const std::string& what) {
  throw Error(ErrorKind::kIo,
              str("[base.safetensors] ", file, ": ", what, ". The file is damaged or not safetensors."));
}

struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
};

int64_t dimension(const nlohmann::json& value, std::string_view file, const std::string& name) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    damaged(file,
            str("tensor '", name, "' has the number ", value.dump(), " where a non-negative integer is required"));
  }
  return static_cast<int64_t>(value.get<uint64_t>());
}

TensorView parse_entry(const nlohmann::json& entry, std::span<const std::byte> data, std::string_view file,
                       const std::string& name, Range* range) {
  const auto member = [&](const char* key) -> const nlohmann::json& {
    if (!entry.is_object() || !entry.contains(key)) damaged(file, str("tensor '", name, "' has no '", key, "'"));
    return entry.at(key);
  };
  TensorView view;
  const nlohmann::json& dtype = member("dtype");
  const auto* row = std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const DtypeRow& candidate) {
    return dtype.is_string() && dtype.get_ref<const std::string&>() == candidate.name;
  });
  if (row == std::end(kDtypes)) damaged(file, str("tensor '", name, "' has the unknown dtype ", dtype.dump()));
  view.dtype = row->dtype;
  const nlohmann::json& shape = member("shape");
  if (!shape.is_array()) damaged(file, str("tensor '", name, "' has the shape ", shape.dump(), ", which is no list"));
  for (const nlohmann::json& dim : shape) view.shape.push_back(dimension(dim, file, name));
  const nlohmann::json& offsets = member("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) {
    damaged(file, str("tensor '", name, "' has data_offsets ", offsets.dump(), "; [begin, end] is required"));
  }
  range->begin = static_cast<uint64_t>(dimension(offsets[0], file, name));
  range->end = static_cast<uint64_t>(dimension(offsets[1], file, name));
  if (range->begin > range->end || range->end > data.size()) {
    damaged(file, str("tensor '", name, "' lies at [", range->begin, ", ", range->end, ") of ", data.size(), " bytes"));
  }
  uint64_t want = 0;
  if (!byte_count(view.shape, row->bytes, &want) || want != range->end - range->begin) {
    damaged(file, str("tensor '", name, "' of dtype ", row->name, " and shape [", join(view.shape), "] has ",
                      range->end - range->begin, " bytes"));
  }
  view.bytes = data.subspan(range->begin, want);
  return view;
}

// nlohmann keeps the last of equal keys; a file with two tensors of one name must not pass.
nlohmann::json parse_header(std::string_view text, std::string_view file) {
  std::set<std::string> top_keys;
  const auto callback = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    if (event == nlohmann::json::parse_event_t::key && depth == 1) {
      const std::string key = parsed.get<std::string>();
      if (!top_keys.insert(key).second) damaged(file, str("the name '", key, "' appears twice"));
    }
    // A shallow limit: headers are three levels deep, and deeper ones would be attacks on the stack.
    if (depth > 4) damaged(file, "the header is nested deeper than a safetensors header can be");
    return true;
  };
  try {
    return nlohmann::json::parse(text, callback);
  } catch (const nlohmann::json::exception& error) {
    damaged(file, str("the header is no JSON (", error.what(), ")"));
  }
}

}  // namespace

size_t size_of(Dtype dtype) noexcept {
  for (const DtypeRow& row : kDtypes) {
    if (row.dtype == dtype) return row.bytes;
  }
  return 0;
}

std::string_view to_string(Dtype dtype) noexcept {
  for (const DtypeRow& row : kDtypes) {
    if (row.dtype == dtype) return row.name;
  }
  return "unknown";
}

std::string make_header(std::span<const TensorBytes> tensors, const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    const char* between = "";
    for (const auto& [key, value] : metadata) {
      json += str(between, json_quote(key), ":", json_quote(value));
      between = ",";
    }
    json += '}';
  }
  std::set<std::string_view> names;
  uint64_t offset = 0;
  for (const TensorBytes& tensor : tensors) {
    uint64_t want = 0;
    if (tensor.name == "__metadata__" || !names.insert(tensor.name).second) {
      throw Error(ErrorKind::kInvalidArgument, str("[base.safetensors.write] the tensor name '", tensor.name,
                                                   "' is reserved or appears twice; names must be unique."));
    }
    if (!byte_count(tensor.shape, size_of(tensor.dtype), &want) || want != tensor.bytes.size()) {
      throw Error(
          ErrorKind::kInvalidArgument,
          str("[base.safetensors.write] tensor '", tensor.name, "' of dtype ", to_string(tensor.dtype), " and shape [",
              join(tensor.shape), "] was given ", tensor.bytes.size(), " bytes; ", want, " are required."));
    }
    if (json.size() > 1) json += ',';
    json += json_quote(tensor.name);
    json += ":{\"dtype\":\"";
    json += to_string(tensor.dtype);
    json += "\",\"shape\":[";
    for (size_t i = 0; i < tensor.shape.size(); ++i) json += (i > 0 ? "," : "") + std::to_string(tensor.shape[i]);
    json += "],\"data_offsets\":[" + std::to_string(offset) + ',' + std::to_string(offset + want) + "]}";
    offset += want;
  }
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  if (json.size() > kMaxHeaderBytes) {
    throw Error(ErrorKind::kInvalidArgument,
                str("[base.safetensors.write] ", tensors.size(), " tensors need a header of ", json.size(),
                    " bytes; readers accept at most ", kMaxHeaderBytes, ". Write several files."));
  }
  std::string out(8, '\0');
  for (size_t i = 0; i < 8; ++i) out[i] = static_cast<char>((static_cast<uint64_t>(json.size()) >> (8 * i)) & 0xFFU);
  return out + json;
}

FileView parse(std::span<const std::byte> file_bytes, std::string_view file) {
  if (file_bytes.size() < 8) damaged(file, str("it has ", file_bytes.size(), " bytes; at least 8 are required"));
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < 8; ++i) header_bytes |= static_cast<uint64_t>(file_bytes[i]) << (8 * i);
  if (header_bytes > kMaxHeaderBytes || header_bytes > file_bytes.size() - 8) {
    damaged(file, str("its header claims ", header_bytes, " bytes of a file of ", file_bytes.size()));
  }
  const std::string_view text(reinterpret_cast<const char*>(file_bytes.data()) + 8, header_bytes);
  if (text.empty() || text.front() != '{') damaged(file, "its header does not start with '{'");
  const nlohmann::json header = parse_header(text, file);
  const std::span<const std::byte> data = file_bytes.subspan(8 + header_bytes);

  FileView view;
  std::vector<Range> ranges;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) damaged(file, "__metadata__ is no object");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) damaged(file, str("the metadata '", key, "' is no text"));
        view.metadata.emplace(key, value.get<std::string>());
      }
      continue;
    }
    Range range;
    view.tensors.emplace(name, parse_entry(entry, data, file, name, &range));
    ranges.push_back(range);
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  uint64_t filled = 0;
  for (const Range& range : ranges) {
    if (range.begin != filled)
      damaged(file, str("its tensors leave a gap or overlap at byte ", filled, " of the data"));
    filled = range.end;
  }
  if (filled != data.size()) damaged(file, str("its tensors fill ", filled, " of ", data.size(), " bytes of data"));
  return view;
}

}  // namespace trireme::safetensors
