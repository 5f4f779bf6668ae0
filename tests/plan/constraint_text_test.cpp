// Oracle: the constraints that each sentence means, set by hand, and the message of one that means none.
#include "plan/constraint_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Constraints of(const char* text) {
  Constraints constraints;
  add_constraints(constraints, text);
  return constraints;
}

std::string message_of(const char* text) {
  try {
    (void)of(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "accepted";
}

TEST(ConstraintText, SaysWhatFlagsSay) {
  EXPECT_DOUBLE_EQ(of("20 % spare").spare, 0.2);
  EXPECT_DOUBLE_EQ(of("spare 5%").spare, 0.05);
  EXPECT_TRUE(of("tp across nodes").tp_across_hosts);
  Constraints across;
  across.tp_across_hosts = true;
  add_constraints(across, "No TP across hosts");
  EXPECT_FALSE(across.tp_across_hosts);
  EXPECT_THAT(of("no zero bubble").schedule, ElementsAre("1f1b", "interleaved"));
  EXPECT_THAT(of("no interleaving").virtual_stages, ElementsAre(1));
  EXPECT_THAT(of("no recomputation").recompute, ElementsAre(Recompute::kNone));
  EXPECT_THAT(of("zero < 3").zero_stage, ElementsAre(0, 1, 2));
  EXPECT_THAT(of("no zero").zero_stage, ElementsAre(0));
  EXPECT_THAT(of("tp = 2, 4").tp, ElementsAre(2, 4));
  EXPECT_TRUE(of("even stages").even_stages);
  EXPECT_TRUE(of("runnable").runnable);
}

TEST(ConstraintText, BoundsNarrow) {
  const Constraints c = of("pp <= 8; pp>=2;PP<6 ; micro_batch > 1; no cp");
  EXPECT_EQ(c.pp_within.least, 2);
  EXPECT_EQ(c.pp_within.most, 5);
  EXPECT_EQ(c.micro_batch_within.least, 2);
  EXPECT_EQ(c.cp_within.most, 1);
  EXPECT_TRUE(c.pp_within.holds(5));
  EXPECT_FALSE(c.pp_within.holds(6) || c.pp_within.holds(1));
}

TEST(ConstraintText, NamesWhatIsNotUnderstood) {
  for (const char* text : {"", "pp", "pp <=", "pp <= 0", "pp <= x", "pp <= 2,4", "qq = 3", "no", "no dp", "120 % spare",
                           "tp = 2,", "zero = 4", "no tp across", "pp <= 8;", "pp = 99999999999999999999"}) {
    EXPECT_THAT(message_of(text), HasSubstr("is not understood; one of these is required: 'pp <= 8'")) << text;
  }
  EXPECT_THAT(message_of("zero = 1; zero = 2"), HasSubstr("leaves nothing of what the other flags allow: 1"));
}

}  // namespace
}  // namespace trireme::plan
