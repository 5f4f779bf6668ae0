#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <new>

#include "base/fd.h"
#include "base/str.h"
#include "diagnose/reader.h"
#include "diagnose/word_index.h"
#include "trireme/base/error.h"

namespace trireme::diagnose {
namespace {

namespace fs = std::filesystem;

/// A stream that gives its first bytes twice: pipes cannot be wound back. `error` is errno where not even one can be read.
std::string read_head(int fd, int& error) {
  error = 0;
  std::string head(kHeadBytes, '\0');
  size_t size = 0;
  while (size < head.size()) {
    const ssize_t got = read(fd, head.data() + size, head.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error = errno;
    if (got <= 0) break;
    size += static_cast<size_t>(got);
  }
  head.resize(size);
  return head;
}

/// Why these first bytes are no text; empty when they may be.
std::string not_text(std::string_view head) {
  if (head.starts_with("\x1f\x8b")) return "compressed with gzip; run: gunzip -c FILE | trireme ... -";
  if (head.starts_with("\x28\xb5\x2f\xfd")) return "compressed with zstd; run: zstd -dc FILE | trireme ... -";
  if (head.starts_with("\xfd"
                       "7zXZ"))
    return "compressed with xz; run: xz -dc FILE | trireme ... -";
  if (head.starts_with("\xff\xfe") || head.starts_with("\xfe\xff")) {
    return "UTF-16 text; run: iconv -f UTF-16 -t UTF-8 FILE | trireme ... -";
  }
  if (head.starts_with("\x7f"
                       "ELF"))
    return "a program or core file, which is not read";
  if (head.find_first_not_of('\0') == std::string_view::npos) {
    return "nothing but NUL bytes where it begins: its blocks were never written (a crash, a full disk)";
  }
  // A log may hold a hole of NUL bytes, which a crash leaves; a binary file has them and other control codes everywhere.
  size_t strange = 0;
  size_t lines = 0;
  for (size_t i = 0; i < head.size(); ++i) {
    const auto byte = static_cast<unsigned char>(head[i]);
    if (byte == '\n') ++lines;
    const bool in_hole = byte == 0 && i > 0 && head[i - 1] == '\0';
    if (byte < 0x20 && (byte < 0x07 || byte > 0x0D) && byte != 0x1B && !in_hole) ++strange;
  }
  if (strange > 8 && strange > lines) return "binary data of a kind that is not known";
  return {};
}

/// Purpose  Gives each line to those readers that care for it.
class Dispatch {
 public:
  explicit Dispatch(Readers& readers) : readers_(readers.lines) {
    for (size_t i = 0; i < readers_.size(); ++i) {
      const std::vector<std::string_view> words = readers_[i]->keywords();
      // A reader beyond the index's 64 sees every line, as one without words.
      if (words.empty() || i >= kMostIndexed) continue;
      for (const std::string_view word : words) index_->add(word, static_cast<unsigned>(i));
      by_words_ |= uint64_t{1} << i;
    }
  }

  void line(const Line& line) {
    const uint64_t found = by_words_ == 0 ? 0 : index_->owners_in(line.text, by_words_);
    for (size_t i = 0; i < readers_.size(); ++i) {
      const bool indexed = i < kMostIndexed && (by_words_ >> i & 1) != 0;
      if (!indexed || (found >> i & 1) != 0 || readers_[i]->wants_next()) readers_[i]->line(line);
    }
  }

 private:
  static constexpr size_t kMostIndexed = 64;
  std::vector<std::unique_ptr<LineReader>>& readers_;
  std::unique_ptr<WordIndex> index_ = std::make_unique<WordIndex>();
  uint64_t by_words_ = 0;
};

class OneFile {
 public:
  OneFile(Readers& readers, Report& report, std::string file) : readers_(readers), report_(report) {
    note_.file = std::move(file);
  }
  ~OneFile() { report_.files.push_back(std::move(note_)); }
  OneFile(const OneFile&) = delete;
  OneFile& operator=(const OneFile&) = delete;

  void read(int fd, const std::string& path) {
    int error = 0;
    const std::string head = read_head(fd, error);
    if (head.empty()) {
      note_.note = error == 0 ? "empty" : std::strerror(error);
      return;
    }
    for (auto& reader : readers_.files) {
      if (!path.empty() && reader->recognises(head)) return whole(*reader, path);
    }
    note_.note = not_text(head);
    if (!note_.note.empty()) return;
    text([&](const std::function<bool(const Line&)>& each) { return head_then_rest(fd, head, each); });
  }

  void read(std::string_view content) {
    if (content.empty()) {
      note_.note = "empty";
      return;
    }
    text([&](const std::function<bool(const Line&)>& each) { return split_lines(content, each); });
  }

  void fail(std::string why) { note_.note = std::move(why); }

 private:
  LinesRead head_then_rest(int fd, const std::string& head, const std::function<bool(const Line&)>& each) const {
    // What can be wound back is read from its start; of a pipe the head is put in front.
    if (lseek(fd, 0, SEEK_SET) == 0) return read_lines(fd, note_.file, each);
    return read_lines(fd, note_.file, each, head);
  }

  void whole(FileReader& reader, const std::string& path) {
    note_.kinds.emplace_back(reader.kind());
    note_.note = reader.read(path, note_.file);
  }

  template <typename ReadAll>
  void text(const ReadAll& read_all) {
    for (auto& reader : readers_.lines) reader->begin_file(note_.file);
    Dispatch dispatch(readers_);
    LinesRead read;
    try {
      read = read_all([&](const Line& line) {
        dispatch.line(line);
        return true;
      });
    } catch (const Error& error) {
      note_.note = error.what();
    }
    for (auto& reader : readers_.lines) {
      if (reader->end_file()) note_.kinds.emplace_back(reader->kind());
    }
    if (!note_.note.empty()) return;
    if (note_.kinds.empty()) {
      note_.note = str("nothing that is known in its ", grouped(read.lines), read.lines == 1 ? " line" : " lines");
    } else if (read.cut_lines > 0) {
      note_.note = str(grouped(read.cut_lines), " lines are longer than ", kLongestLine >> 10,
                       " KiB; what follows in them was not read");
    }
  }

  Readers& readers_;
  Report& report_;
  FileNote note_;
};

void read_one(const std::string& path, Readers& readers, Report& report) {
  OneFile one(readers, report, path);
  try {
    const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    if (!fd) return one.fail(std::strerror(errno));
    struct stat status{};
    if (fstat(fd.get(), &status) != 0) return one.fail(std::strerror(errno));
    // A pipe that the shell made ("<(dmesg)") waits for its writer; a device may never end.
    if (S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode) || S_ISSOCK(status.st_mode))
      return one.fail("a device or socket, not a file");
    if (S_ISFIFO(status.st_mode)) fcntl(fd.get(), F_SETFL, 0);
    one.read(fd.get(), S_ISREG(status.st_mode) ? path : "");
  } catch (const Error& error) {
    one.fail(error.what());
  } catch (const std::bad_alloc&) {
    one.fail("there is not enough memory to read it");
  }
}

void read_folder(const std::string& path, Readers& readers, Report& report) {
  constexpr size_t kMostFiles = 10'000;
  constexpr int kDeepest = 8;
  std::vector<std::string> files;
  std::error_code error;
  bool more = false;
  auto entries = fs::recursive_directory_iterator(path, fs::directory_options::skip_permission_denied, error);
  for (; !error && entries != fs::recursive_directory_iterator(); entries.increment(error)) {
    if (entries.depth() >= kDeepest) entries.disable_recursion_pending();
    std::error_code ignored;
    if (!fs::is_regular_file(entries->symlink_status(ignored))) continue;
    if (files.size() == kMostFiles) {
      more = true;
      break;
    }
    files.push_back(entries->path().string());
  }
  std::sort(files.begin(), files.end());
  if (error) report.files.push_back({path, {}, error.message()});
  if (more)
    report.files.push_back({path, {}, str("more than ", grouped(kMostFiles), " files; the rest was not looked at")});
  if (files.empty() && !error) report.files.push_back({path, {}, "a folder without files"});
  for (const std::string& file : files) read_one(file, readers, report);
}

}  // namespace

void read_files(const std::vector<std::string>& paths, Readers& readers, Report& report) {
  for (const std::string& path : paths) {
    std::error_code error;
    if (path == "-") {
      OneFile one(readers, report, "standard input");
      try {
        one.read(STDIN_FILENO, "");
      } catch (const Error& bad) {
        one.fail(bad.what());
      }
    } else if (fs::is_directory(path, error)) {
      read_folder(path, readers, report);
    } else {
      read_one(path, readers, report);
    }
  }
}

void read_text(std::string_view text, const std::string& name, Readers& readers, Report& report) {
  OneFile(readers, report, name).read(text);
}

void finish(Readers& readers, Report& report) {
  for (auto& reader : readers.lines) reader->finish(report);
  for (auto& reader : readers.files) reader->finish(report);
  report.sort();
}

}  // namespace trireme::diagnose
