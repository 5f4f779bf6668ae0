// Oracle: the list of what may differ between two ranks' calls that run together, and the text of messages.
#include "comm/transport/call_info.h"

#include <gtest/gtest.h>

#include <vector>

namespace trireme::comm {
namespace {

CallInfo all_reduce_of(const std::vector<int64_t>& dims) {
  CallInfo info;
  info.call = 3;
  info.op = OpKind::kAllReduce;
  info.dtype = DType::kF32;
  info.count = 12;
  info.set_dims(dims);
  return info;
}

TEST(CallInfo, ShapesAreComparedInAllTheirDims) {
  const CallInfo one = all_reduce_of({2, 1, 1, 1, 1, 3, 2});
  EXPECT_TRUE(same_call(one, all_reduce_of({2, 1, 1, 1, 1, 3, 2})));
  // Of equal count, and the same in the five dims that are kept.
  EXPECT_FALSE(same_call(one, all_reduce_of({2, 1, 1, 1, 1, 2, 3})));
  EXPECT_FALSE(same_call(one, all_reduce_of({2, 1, 1, 1, 1, 6})));
  EXPECT_FALSE(same_call(one, all_reduce_of({2, 1, 1, 1, 1, 3, 2, 1})));
  EXPECT_FALSE(same_call(all_reduce_of({2, 1, 1, 1, 6}), all_reduce_of({2, 1, 1, 1, 6, 1})));
  EXPECT_EQ(describe(one), "all_reduce sum f32[2, 1, 1, 1, 1, ... (7 dims)]");
  EXPECT_EQ(describe(all_reduce_of({2, 1, 1, 1, 6})), "all_reduce sum f32[2, 1, 1, 1, 6]");
}

TEST(CallInfo, LabelsAreComparedAndStepsAreNot) {
  CallInfo a = all_reduce_of({12});
  CallInfo b = a;
  b.step = 7;
  EXPECT_TRUE(same_call(a, b));
  a.set_label("bucket 1");
  b.set_label("bucket 2");
  EXPECT_FALSE(same_call(a, b));
}

TEST(CallInfo, ARootIsToldByItsGlobalRank) {
  CallInfo info = all_reduce_of({12});
  info.op = OpKind::kBroadcast;
  info.root = 1;
  EXPECT_EQ(describe(info), "broadcast f32[12] from 1");
  EXPECT_EQ(describe(info, std::vector<int>{4, 5}), "broadcast f32[12] from 5");
}

}  // namespace
}  // namespace trireme::comm
