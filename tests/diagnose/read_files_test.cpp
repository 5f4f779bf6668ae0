#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "diagnose/reader.h"
#include "support/temp_dir.h"

namespace trireme::diagnose {
namespace {

using testing::HasSubstr;

/// Counts lines with "mark" in them.
class MarkReader : public LineReader {
 public:
  [[nodiscard]] const char* kind() const override { return "marks"; }
  void begin_file(const std::string& file) override {
    file_ = file;
    here_ = 0;
  }
  void line(const Line& line) override {
    if (line.text.find("mark") == std::string_view::npos) return;
    ++here_;
    last_line_ = line.number;
  }
  [[nodiscard]] bool end_file() override { return here_ > 0; }
  void finish(Report& report) override {
    report.findings.push_back({.code = "mark", .cause = file_, .evidence = {{file_, last_line_, ""}}});
  }

 private:
  std::string file_;
  int here_ = 0;
  int64_t last_line_ = 0;
};

class StarReader : public FileReader {
 public:
  [[nodiscard]] const char* kind() const override { return "star"; }
  [[nodiscard]] bool recognises(std::string_view head) const override { return head.starts_with("***"); }
  [[nodiscard]] std::string read(const std::string& /*path*/, const std::string& /*file*/) override {
    return "read in part";
  }
  void finish(Report& /*report*/) override {}
};

Readers mark_readers() {
  Readers readers;
  readers.lines.push_back(std::make_unique<MarkReader>());
  readers.files.push_back(std::make_unique<StarReader>());
  return readers;
}

void write_file(const std::string& path, std::string_view content) { std::ofstream(path, std::ios::binary) << content; }

FileNote note_of(const std::string& path) {
  Readers readers = mark_readers();
  Report report;
  read_files({path}, readers, report);
  return report.files.empty() ? FileNote{} : report.files.front();
}

// Oracle: the word for each kind of file, by hand.
TEST(ReadFiles, SaysWhatIsWrongWithAFile) {
  const test::TempDir folder;
  const auto file = [&](std::string_view content) {
    const std::string path = folder.path() + "/file";
    write_file(path, content);
    return note_of(path).note;
  };
  EXPECT_EQ(file(""), "empty");
  EXPECT_THAT(file("\x1f\x8b\x08..."), HasSubstr("gunzip -c"));
  EXPECT_THAT(file(std::string_view("\xff\xfeG\0P\0", 6)), HasSubstr("UTF-16"));
  EXPECT_THAT(file(std::string(5000, '\0')), HasSubstr("NUL bytes"));
  std::string binary;
  for (int i = 0; i < 1000; ++i) binary += static_cast<char>(i * 37 % 251);
  EXPECT_THAT(file(binary), HasSubstr("binary"));
  EXPECT_EQ(file("one\ntwo\n"), "nothing that is known in its 2 lines");
  EXPECT_EQ(file("*** star"), "read in part");
  EXPECT_EQ(file("a mark\n"), "");
  EXPECT_EQ(file(std::string("line\n") + std::string(40, '\0') + "\na mark\n"), "")
      << "a log with a hole is still read";
  EXPECT_EQ(note_of(folder.path() + "/missing").note, "No such file or directory");
  EXPECT_EQ(note_of("/proc/self/mem").note, "Input/output error") << "a disk that fails has no empty files";
  EXPECT_EQ(note_of("/dev/zero").note, "a device or socket, not a file");
  EXPECT_THAT(file("mark" + std::string(100'000, 'x')), HasSubstr("longer than 64 KiB"));
}

// Oracle: by hand: every file below the folder once, in the order of names, links and pipes not.
TEST(ReadFiles, ReadsFolders) {
  const test::TempDir folder;
  ASSERT_EQ(mkdir((folder.path() + "/sub").c_str(), 0700), 0);
  write_file(folder.path() + "/b", "mark\n");
  write_file(folder.path() + "/sub/a", "mark\n");
  ASSERT_EQ(symlink("/", (folder.path() + "/all").c_str()), 0);
  ASSERT_EQ(mkfifo((folder.path() + "/pipe").c_str(), 0600), 0);
  Readers readers = mark_readers();
  Report report;
  read_files({folder.path()}, readers, report);
  std::vector<std::string> names;
  for (const FileNote& note : report.files) names.push_back(note.file.substr(folder.path().size()));
  EXPECT_EQ(names, (std::vector<std::string>{"/b", "/sub/a"}));
}

// Oracle: the lines that a pipe's writer wrote, of which the first are read twice.
TEST(ReadFiles, ReadsPipes) {
  const test::TempDir folder;
  const std::string path = folder.path() + "/pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int keep = open(path.c_str(), O_RDWR | O_CLOEXEC);
  std::thread writer([&] {
    const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    const std::string block = std::string(99, 'x') + "\n";
    for (int i = 0; i < 3000; ++i) {
      if (write(fd, block.data(), block.size()) < 0) break;
    }
    (void)!write(fd, "mark\n", 5);
    close(fd);
    close(keep);  // only now: without a reader a write would end this process
  });
  Readers readers = mark_readers();
  Report report;
  read_files({path}, readers, report);
  writer.join();
  finish(readers, report);
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings[0].evidence[0].line, 3001);
}

// Oracle: a sparse file of 256 MiB with one line at its end: the line is found and the process has not grown by more than 16 MiB.
TEST(ReadFiles, ReadsLargeFilesInBoundedMemory) {
  const test::TempDir folder;
  const std::string path = folder.path() + "/log";
  {
    std::ofstream out(path, std::ios::binary);
    for (int i = 0; i < 10'000; ++i) out << "a line of text\n";
    out.seekp(int64_t{256} << 20);
    out << "\nmark\n";
  }
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  Readers readers = mark_readers();
  Report report;
  read_files({path}, readers, report);
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 16 << 10) << "KiB";
  ASSERT_EQ(report.files.size(), 1U);
  EXPECT_EQ(report.files[0].kinds, std::vector<std::string>{"marks"});
  finish(readers, report);
  EXPECT_EQ(report.findings.at(0).evidence[0].line, 10'002);
}

}  // namespace
}  // namespace trireme::diagnose
