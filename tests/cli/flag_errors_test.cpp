// Oracle: the form of a message in docs/errors.md, written out for each kind of mistake.
#include "cli/flag_errors.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

/// What a program with these flags says to a command line; empty when it is content.
std::string said_to(std::vector<std::string> words) {
  CLI::App app("", "prog");
  app.require_subcommand(1);
  int count = 1;
  double rate = 0;
  bool quiet = false;
  std::string name;
  std::vector<int> sizes;
  CLI::App* work = app.add_subcommand("work", "");
  work->add_option("--count,--num_of", count)->check(whole_number(1, 4096));
  work->add_option("--rate", rate)->envname("FLAG_ERRORS_RATE");
  work->add_option("--sizes", sizes)->delimiter(',')->check(whole_number(4, 64));
  work->add_option("--count-name", name)->check(one_of({"whole", "half"}));
  work->add_flag("--quiet", quiet);
  CLI::Option* shape = work->add_option("--shape", name);
  work->add_option("--volume", rate)->excludes(shape);
  work->add_option("--unit", name)->needs(shape);
  app.add_subcommand("rest", "");
  app.add_subcommand("secret")->group("");
  std::reverse(words.begin(), words.end());
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    try {
      throw_flag_error(app, error, "part", "prog");
    } catch (const Error& ours) {
      EXPECT_EQ(ours.kind(), ErrorKind::kConfig);
      return ours.what();
    }
  }
  return {};
}

const std::string kHelp = " 'prog work --help' lists all flags.";

TEST(FlagErrors, LetsGoodLinesPass) {
  EXPECT_EQ(said_to({"work", "--count", "3", "--rate=0.5", "--sizes=4,64", "--quiet", "--count-name", "half"}), "");
}

TEST(FlagErrors, NamesTheFirstUnknownWordAndTheNearestKnownOne) {
  EXPECT_EQ(said_to({"work", "--cuont", "3"}), "[part.work] unknown flag '--cuont'; did you mean '--count'?" + kHelp);
  EXPECT_EQ(said_to({"work", "--cuont=3"}), "[part.work] unknown flag '--cuont=3'; did you mean '--count'?" + kHelp);
  EXPECT_EQ(said_to({"work", "--count_nam", "3"}),
            "[part.work] unknown flag '--count_nam'; did you mean '--count-name'?" + kHelp);
  EXPECT_EQ(said_to({"work", "--zzzzzzzzzzzzzzzzzzzz"}), "[part.work] unknown flag '--zzzzzzzzzzzzzzzzzzzz'." + kHelp);
  EXPECT_EQ(said_to({"work", "more", "--quiet", "words"}),
            "[part.work] 'more' is one word too many; flags and their values are all it takes." + kHelp);
}

TEST(FlagErrors, NamesSubcommands) {
  EXPECT_EQ(said_to({}), "[part] one of work, rest is required behind 'prog'. 'prog --help' lists all flags.");
  EXPECT_EQ(
      said_to({"wrok"}),
      "[part] there is no 'prog wrok'; did you mean 'work'? One of work, rest is required. 'prog --help' lists all "
      "flags.");
  EXPECT_EQ(said_to({"xxxxxx"}),
            "[part] there is no 'prog xxxxxx'. One of work, rest is required. 'prog --help' lists all flags.");
  EXPECT_EQ(said_to({"--count", "3"}), "[part] unknown flag '--count'. 'prog --help' lists all flags.");
}

TEST(FlagErrors, SaysWhatAValueHasToBe) {
  EXPECT_EQ(said_to({"work", "--count-name", "x"}),
            "[part.work] --count-name is 'x'; one of whole, half is required." + kHelp);
  EXPECT_EQ(said_to({"work", "--count", "x"}),
            "[part.work] --count is 'x'; a whole number from 1 to 4,096 is required." + kHelp);
  EXPECT_EQ(said_to({"work", "--count", "0"}),
            "[part.work] --count is '0'; a whole number from 1 to 4,096 is required." + kHelp);
  EXPECT_EQ(said_to({"work", "--sizes", "4,x"}),
            "[part.work] --sizes is 'x'; a whole number from 4 to 64 is required." + kHelp);
  EXPECT_EQ(said_to({"work", "--rate", "fast"}), "[part.work] --rate is 'fast'; a number is required." + kHelp);
  EXPECT_EQ(said_to({"work", "--count"}), "[part.work] --count has no value; a whole number is required." + kHelp);
  EXPECT_EQ(said_to({"work", "--rate", "1", "--rate", "2"}),
            "[part.work] --rate was given 2 times (1, 2); once is allowed." + kHelp);
  EXPECT_EQ(said_to({"work", "--quiet=maybe"}), "[part.work] --quiet is a switch and takes no value." + kHelp);
}

TEST(FlagErrors, NamesBothFlagsThatDoNotGoTogether) {
  EXPECT_EQ(said_to({"work", "--volume", "3", "--shape", "a"}),
            "[part.work] --shape and --volume exclude each other; give one of them." + kHelp);
  EXPECT_EQ(said_to({"work", "--unit", "m"}), "[part.work] --unit goes with --shape, which is not given." + kHelp);
}

TEST(FlagErrors, NamesTheVariableThatAValueCameFrom) {
  setenv("FLAG_ERRORS_RATE", "fast", 1);
  EXPECT_EQ(said_to({"work"}),
            "[part.work] --rate (environment FLAG_ERRORS_RATE) is 'fast'; a number is required." + kHelp);
  EXPECT_EQ(said_to({"work", "--rate", "slow"}), "[part.work] --rate is 'slow'; a number is required." + kHelp);
  unsetenv("FLAG_ERRORS_RATE");
}

}  // namespace
}  // namespace trireme::cli
