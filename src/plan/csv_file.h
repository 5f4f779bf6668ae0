// A table of comma-separated values with a line of column names (RFC 4180): quoted fields, doubled quotes, line ends in quotes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::plan {

struct CsvRow {
  int line = 0;  ///< on which the row begins, from 1
  std::vector<std::string> fields;
};

struct CsvFile {
  std::string name;
  std::vector<std::string> columns;
  std::vector<CsvRow> rows;

  /// Index of a column; -1 where there is none.
  [[nodiscard]] int column(std::string_view name) const;
};

/// Errors   kConfig with `file:line`: a row with another number of fields than the first line, a quote that is not closed or stands inside
///          a field, a column twice, no line at all.
[[nodiscard]] CsvFile parse_csv(std::string_view text, const std::string& file);
/// Reads a whole file. Errors   kNotFound where it cannot be opened; those of parse_csv().
[[nodiscard]] CsvFile read_csv(const std::string& path);

/// The field as it is written into a file: quoted where it must be.
[[nodiscard]] std::string csv_field(std::string_view text);

}  // namespace trireme::plan
