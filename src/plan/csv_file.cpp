#include "plan/csv_file.h"

#include <algorithm>

#include "base/printable.h"
#include "base/read_file.h"
#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::plan {

namespace {

[[noreturn]] void refuse(const std::string& file, int line, const std::string& what) {
  throw Error(ErrorKind::kConfig, str("[plan.csv] ", file, ":", line, ": ", what));
}

/// One record; false at the end of the text. Lines count in `line`.
bool next_record(std::string_view text, size_t& at, int& line, const std::string& file, CsvRow& row) {
  if (at >= text.size()) return false;
  row.line = line;
  row.fields.assign(1, "");
  while (at < text.size()) {
    const char c = text[at];
    std::string& field = row.fields.back();
    if (c == '"') {
      if (!field.empty())
        refuse(file, line, "a quote inside an unquoted field. Quote the whole field and double the quote.");
      const int begin = line;
      for (++at;; ++at) {
        if (at >= text.size()) refuse(file, begin, "this quote is never closed.");
        if (text[at] == '"') {
          if (at + 1 < text.size() && text[at + 1] == '"')
            ++at;
          else
            break;
        }
        if (text[at] == '\n') ++line;
        field += text[at];
      }
      ++at;
      if (at < text.size() && text[at] != ',' && text[at] != '\n' && text[at] != '\r')
        refuse(file, line, "text after the closing quote of a field.");
      continue;
    }
    ++at;
    if (c == ',') {
      row.fields.emplace_back();
    } else if (c == '\n') {
      ++line;
      return true;
    } else if (c == '\r' && (at >= text.size() || text[at] == '\n')) {
      continue;
    } else {
      field += c;
    }
  }
  return true;
}

/// Names and notes of a table go to terminals, which obey what looks like a command of theirs. Line ends and tabs are harmless.
void require_printable(const CsvRow& row, const std::string& file) {
  for (size_t i = 0; i < row.fields.size(); ++i) {
    std::string text = row.fields[i];
    std::erase_if(text, [](char c) { return c == '\t' || c == '\n' || c == '\r'; });
    if (find_control(text) != std::string::npos)
      refuse(file, row.line, str("field ", i + 1, " has a control character. Take it out."));
  }
}

}  // namespace

int CsvFile::column(std::string_view wanted) const {
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] == wanted) return static_cast<int>(i);
  }
  return -1;
}

CsvFile parse_csv(std::string_view text, const std::string& name) {
  CsvFile file{.name = name, .columns = {}, .rows = {}};
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  size_t at = 0;
  int line = 1;
  CsvRow row;
  if (!next_record(text, at, line, name, row))
    refuse(name, 1, "the file is empty; its first line must name the columns.");
  require_printable(row, name);
  file.columns = row.fields;
  for (size_t i = 0; i < file.columns.size(); ++i) {
    if (file.column(file.columns[i]) != static_cast<int>(i))
      refuse(name, 1, str("column '", file.columns[i], "' stands there twice."));
  }
  while (next_record(text, at, line, name, row)) {
    if (row.fields.size() == 1 && row.fields[0].empty()) continue;
    if (row.fields.size() != file.columns.size()) {
      refuse(name, row.line,
             str("this row has ", row.fields.size(), " fields, the first line names ", file.columns.size(),
                 " columns. A field with commas must be quoted."));
    }
    require_printable(row, name);
    file.rows.push_back(row);
  }
  return file;
}

CsvFile read_csv(const std::string& path) {
  return parse_csv(read_file(path, "plan.csv", "a table of measurements (CSV)"), path);
}

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace trireme::plan
