#include "diagnose/line_source.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "trireme/base/error.h"

namespace trireme::diagnose {
namespace {

using Lines = std::vector<std::pair<int64_t, std::string>>;

Lines lines_of(std::string_view text) {
  Lines lines;
  split_lines(text, [&](const Line& line) {
    lines.emplace_back(line.number, std::string(line.text));
    return true;
  });
  return lines;
}

/// Splits without blocks, one byte at a time: the oracle.
Lines plain(std::string_view text) {
  Lines lines;
  std::string piece;
  int64_t number = 1;
  bool given = false;
  const auto give = [&] {
    lines.emplace_back(number, std::exchange(piece, {}));
    given = true;
  };
  for (const char c : text) {
    if (c == '\r') {
      if (!piece.empty()) give();
    } else if (c == '\n') {
      if (!piece.empty() || !given) give();
      given = false;
      ++number;
    } else {
      piece += c;
    }
  }
  if (!piece.empty()) give();
  return lines;
}

// Oracle: written out by hand.
TEST(LineSource, EndsLinesAsEditorsCountThem) {
  EXPECT_EQ(lines_of("a\nb"), (Lines{{1, "a"}, {2, "b"}}));
  EXPECT_EQ(lines_of("a\r\n\r\nb\r\n"), (Lines{{1, "a"}, {2, ""}, {3, "b"}}));
  EXPECT_EQ(lines_of("10 %\r20 %\rdone\nnext\n"), (Lines{{1, "10 %"}, {1, "20 %"}, {1, "done"}, {2, "next"}}));
  EXPECT_EQ(lines_of(""), Lines{});
  EXPECT_EQ(lines_of("\n\n"), (Lines{{1, ""}, {2, ""}}));
  EXPECT_EQ(lines_of(std::string_view("a\0b\n\xff\xfe\n", 7)), (Lines{{1, std::string("a\0b", 3)}, {2, "\xff\xfe"}}));
}

// Oracle: written out by hand: the header that nvidia-smi underlines.
TEST(LineSource, RemovesTerminalEscapes) {
  EXPECT_EQ(lines_of("\t\x1b[4mGPU0\tGPU1\x1b[0m\n\x1b"), (Lines{{1, "\tGPU0\tGPU1"}, {2, ""}}));
}

// Oracle: the limit that the header promises; what follows the limit is skipped and the next line is whole.
TEST(LineSource, KeepsNoMoreThanTheLimitOfALine) {
  const std::string text = std::string(3 * kLongestLine, 'x') + "\nshort\n";
  std::vector<std::pair<size_t, bool>> sizes;
  const LinesRead read = split_lines(text, [&](const Line& line) {
    sizes.emplace_back(line.text.size(), line.cut);
    return true;
  });
  EXPECT_EQ(sizes, (std::vector<std::pair<size_t, bool>>{{kLongestLine, true}, {5, false}}));
  EXPECT_EQ(read.lines, 2);
  EXPECT_EQ(read.cut_lines, 1);
  EXPECT_FALSE(read.ends_in_line);
  EXPECT_EQ(read.bytes, static_cast<int64_t>(text.size()));
}

// Oracle: a splitter of one byte at a time gives the same lines, for 200 random texts that are read from a descriptor in blocks of 1 to 9 bytes
// (a pipe whose writer is this test) and from memory.
TEST(LineSource, BlocksDoNotMatter) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    std::string text;
    const size_t size = random() % 60;
    for (size_t i = 0; i < size; ++i) text += "\r\nab\0"[random() % 5];
    ASSERT_EQ(lines_of(text), plain(text)) << testing::PrintToString(text);

    Lines lines;
    const size_t head = random() % (text.size() + 1);
    const Fd file(memfd_create("lines", MFD_CLOEXEC));
    ASSERT_EQ(write(file.get(), text.data() + head, text.size() - head), static_cast<ssize_t>(text.size() - head));
    ASSERT_EQ(lseek(file.get(), 0, SEEK_SET), 0);
    read_lines(
        file.get(), "lines",
        [&](const Line& line) {
          lines.emplace_back(line.number, std::string(line.text));
          return true;
        },
        std::string_view(text).substr(0, head));
    ASSERT_EQ(lines, plain(text)) << testing::PrintToString(text) << " head " << head;
  }
}

// Oracle: the caller's own count.
TEST(LineSource, StopsWhenTold) {
  int seen = 0;
  split_lines("a\nb\nc\n", [&](const Line&) { return ++seen < 2; });
  EXPECT_EQ(seen, 2);
}

// Oracle: the kernel's answer for a descriptor that cannot be read.
TEST(LineSource, SaysWhyReadingFailed) {
  const Fd file(open("/", O_RDONLY | O_CLOEXEC));
  try {
    read_lines(file.get(), "here", [](const Line&) { return true; });
    FAIL() << "a folder was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_STREQ(error.what(), "[diagnose.read] here: Is a directory.");
  }
}

}  // namespace
}  // namespace trireme::diagnose
