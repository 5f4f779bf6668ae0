// JSON of others as the values of the pickle reader: one set of functions then reads a dump in either form.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/pickle_reader.h"

namespace trireme::diagnose {

/// Strings, values and lists stay valid as long as the shared pointer lives.
///
/// Cost    one pass; nothing is kept of text that is not valid.
/// Reason  "byte N: WORDS": no JSON, cut off, nested deeper than 1,000, more than `max_values` values.
[[nodiscard]] Result<std::shared_ptr<const pickle::Value>> read_json_values(std::string_view text,
                                                                            size_t max_values = size_t{16} << 20);

/// All of a file of at most `most` bytes. Throws kIo naming what is wrong.
[[nodiscard]] std::string read_whole_file(const std::string& path, size_t most);

}  // namespace trireme::diagnose
