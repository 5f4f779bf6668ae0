// Oracle: closed form, and that cutting the input anywhere changes nothing.
#include "launch/line_splitter.h"

#include <gtest/gtest.h>

namespace trireme::launch {
namespace {

std::string split_in_pieces(std::string_view text, size_t piece) {
  LineSplitter lines("> ");
  std::string out;
  for (size_t i = 0; i < text.size(); i += piece) lines.add(text.substr(i, piece), {}, out);
  lines.finish(out);
  return out;
}

TEST(LineSplitter, CutsAnywhereAlike) {
  const std::string text("one\ntwo\r\n\nbar 1\rbar 2\rbar 3\nnul \0 x\nlast", 40);
  const std::string want("> one\n> two\n> \n> bar 3\n> nul \0 x\n> last\n", 40);
  for (size_t piece = 1; piece <= text.size(); ++piece) EXPECT_EQ(split_in_pieces(text, piece), want) << piece;
}

TEST(LineSplitter, HoldsBackWhatIsNotALineYet) {
  LineSplitter lines("> ");
  std::string out;
  lines.add("half", {}, out);
  EXPECT_EQ(out, "");
  lines.add(" and half\nnext", {}, out);
  EXPECT_EQ(out, "> half and half\n");
}

TEST(LineSplitter, ShowsHugeLinesInPieces) {
  const std::string full(kMaxLineBytes, 'x');
  EXPECT_EQ(split_in_pieces(full + "\nnext\n", 1000), "> " + full + "\n> next\n");
  EXPECT_EQ(split_in_pieces(full + "yz\n", 1000), "> " + full + "\n> yz\n");
}

TEST(LineSplitter, ShowsAProgressBarOnceASecond) {
  using std::chrono::milliseconds;
  LineSplitter lines("> ");
  std::string out;
  const std::chrono::steady_clock::time_point start{std::chrono::seconds(100)};
  for (int i = 0; i <= 25; ++i) lines.add("\r" + std::to_string(i) + "%", start + milliseconds(100 * i), out);
  EXPECT_EQ(out, "> 0%\n> 10%\n> 20%\n");
  lines.finish(out);
  EXPECT_EQ(out, "> 0%\n> 10%\n> 20%\n> 25%\n");
}

}  // namespace
}  // namespace trireme::launch
