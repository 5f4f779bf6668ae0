// Readers of outside files, and the list of them. A reader recognises by content, never by a file's name.
//
// Two kinds. A LineReader sees every line of every text file and picks what it knows, so that a Slurm log with NCCL lines, a kernel log and a
// traceback in it serves three readers. A FileReader takes a file whole (pickles, JSON) when its beginning says so.
//
// Every reader holds: no more memory than a bound of its own, whatever the file; no exception for any content; nothing printed.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/line_source.h"
#include "diagnose/report.h"

namespace trireme::diagnose {

class LineReader {
 public:
  virtual ~LineReader() = default;
  /// "NCCL log": what a file is called in which it found something.
  [[nodiscard]] virtual const char* kind() const = 0;
  /// Before the lines of a file. `file` is how evidence names it.
  virtual void begin_file(const std::string& file) = 0;
  /// A line matters to this reader only if one of these words is in it; none: every line does. At least two bytes each, literals. Of logs of
  /// gigabytes a reader with words sees next to nothing, one without sees all of it.
  [[nodiscard]] virtual std::vector<std::string_view> keywords() const { return {}; }
  /// The next line matters whatever is in it: this one began a table, say.
  [[nodiscard]] virtual bool wants_next() const { return false; }
  virtual void line(const Line& line) = 0;
  /// After them: whether the file was of its kind, at least in part.
  [[nodiscard]] virtual bool end_file() = 0;
  /// After all files: its findings and facts.
  virtual void finish(Report& report) = 0;
};

class FileReader {
 public:
  virtual ~FileReader() = default;
  [[nodiscard]] virtual const char* kind() const = 0;
  /// `head` is the file's first bytes, at most kHeadBytes.
  [[nodiscard]] virtual bool recognises(std::string_view head) const = 0;
  /// `path` can be opened. The word that is returned becomes the file's note: why it could be read in part only; empty when all is well. A
  /// trireme::Error becomes the note too.
  [[nodiscard]] virtual std::string read(const std::string& path, const std::string& file) = 0;
  virtual void finish(Report& report) = 0;
};

inline constexpr size_t kHeadBytes = size_t{64} << 10;

struct Readers {
  std::vector<std::unique_ptr<LineReader>> lines;
  std::vector<std::unique_ptr<FileReader>> files;
};

/// Those for outputs of tools and NCCL logs. readers.cpp is the list; a new reader is one row there.
[[nodiscard]] Readers all_readers();

/// Reads the files with all readers and adds what they say. "-" is standard input. A folder stands for the files below it, at most 10,000 of
/// them, 8 folders deep, in the order of their names; links are not followed there.
///
/// A file that cannot be read, is empty, binary of an unknown kind, compressed or UTF-16 gets a note that says so; nothing is thrown for it.
void read_files(const std::vector<std::string>& paths, Readers& readers, Report& report);

/// The same for text that is in memory: the output of a tool. `name` is how evidence names it.
void read_text(std::string_view text, const std::string& name, Readers& readers, Report& report);

/// Findings and facts of all readers, once, after all files.
void finish(Readers& readers, Report& report);

}  // namespace trireme::diagnose
