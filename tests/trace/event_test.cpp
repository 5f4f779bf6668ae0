// Oracle: closed form.
#include "trace/chrome_event.h"

#include <gtest/gtest.h>

#include "trace/activity.h"
#include "trace/event_splitter.h"
#include "trace/flops.h"

namespace trireme::trace {
namespace {

std::string padded(const std::string& text) { return text + std::string(kPadding, ' '); }

TEST(ParseUs, KeepsEveryNanosecond) {
  const auto ns = [](std::string_view text) {
    int64_t value = INT64_MIN;
    return parse_us(text, value) ? value : INT64_MIN;
  };
  EXPECT_EQ(ns("5199432184865.331"), 5'199'432'184'865'331);
  EXPECT_EQ(ns("0"), 0);
  EXPECT_EQ(ns("-0.001"), -1);
  EXPECT_EQ(ns("12.3456"), 12'346);
  EXPECT_EQ(ns("12.3454"), 12'345);
  EXPECT_EQ(ns("1e3"), 1'000'000);
  EXPECT_EQ(ns("2.5E-1"), 250);
  for (const char* bad : {"", "-", ".", "x", "1x", "1.2.3", "1e300", "99999999999999999999", "nan", "inf", " 1"})
    EXPECT_EQ(ns(bad), INT64_MIN) << bad;
}

TEST(Event, ReadsFieldsInAnyOrderAndType) {
  EventParser parser;
  ChromeEvent event;
  const std::string text = padded(
      R"({"args": {"a": {"b": 1}}, "tid": "stream 7", "ts": "12.5", "name": "q\"\u00e9\\", "pid": 3, "ph": "X", "dur": 1.001, "id": 9})");
  ASSERT_EQ(parser.parse(std::string_view(text).substr(0, text.size() - kPadding), event), "");
  EXPECT_EQ(event.phase, 'X');
  EXPECT_EQ(event.name, "q\"\xC3\xA9\\");
  EXPECT_EQ(event.time_ns, 12'500);
  EXPECT_EQ(event.duration_ns, 1001);
  EXPECT_EQ(event.pid, "3");
  EXPECT_EQ(event.tid, "\"stream 7\"");
  EXPECT_EQ(event.args, R"({"a": {"b": 1}})");
  EXPECT_EQ(event.id, "9");
}

TEST(Event, BytesThatAreNotUtf8AreReplaced) {
  EventParser parser;
  ChromeEvent event;
  const std::string text = padded("{\"ph\": \"X\", \"name\": \"a\xff\xc3(\xe2\x82\xac\"}");
  ASSERT_EQ(parser.parse(std::string_view(text).substr(0, text.size() - kPadding), event), "");
  EXPECT_EQ(event.name,
            "a?"
            "?(\xe2\x82\xac");
  EXPECT_EQ(clean_utf8("\xc0\xaf\xed\xa0\x80\xf5\x80ok"),
            "???"
            "??"
            "??ok");
}

TEST(Event, CollectiveArguments) {
  EventParser parser;
  const std::string args = padded(
      R"({"Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 512, "Group size": 8, "dtype": "BFloat16", "Process Group Name": 0,
          "Process Group Description": "default_pg", "Process Group Ranks": "[0, 2, ...]", "Seq": 7, "Src Rank": "3", "External id": 55, "Rank": 2})");
  const CollectiveArgs got = parser.collective_args(std::string_view(args).substr(0, args.size() - kPadding));
  EXPECT_EQ(got.op, "allreduce");
  EXPECT_EQ(got.in_elements, 1024);
  EXPECT_EQ(got.group, "0");
  EXPECT_EQ(got.group_size, 8);
  EXPECT_EQ(got.sequence, 7);
  EXPECT_EQ(got.source, 3);
  EXPECT_EQ(got.external_id, 55);
  EXPECT_EQ(got.rank, 2);
}

TEST(Activity, KnowsThePublishedNames) {
  const auto is = [](const char* category, const char* name, EventKind kind, Activity activity = Activity::kCompute) {
    const EventClass got = classify(category, name);
    EXPECT_EQ(got.kind, kind) << category << " " << name;
    if (kind == EventKind::kHost || kind == EventKind::kDevice) {
      EXPECT_EQ(got.activity, activity) << category << " " << name;
    }
  };
  is("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", EventKind::kDevice,
     Activity::kCommunication);
  is("Kernel", "ncclKernel_AllGather_RING_LL_Sum_int8_t", EventKind::kDevice, Activity::kCommunication);
  is("kernel", "void vllm::cross_device_reduce_1stage<bfloat16, 8>", EventKind::kDevice, Activity::kCommunication);
  is("kernel", "ampere_sgemm_128x64_tn", EventKind::kDevice);
  is("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", EventKind::kDevice, Activity::kCopy);
  is("cpu_op", "aten::mm", EventKind::kHost);
  is("Operator", "aten::mm", EventKind::kHost);
  is("cpu_op", "c10d::allreduce_", EventKind::kHost, Activity::kCommunication);
  is("cpu_op", "record_param_comms", EventKind::kDescription);
  is("user_annotation", "gloo:all_reduce", EventKind::kHost, Activity::kCommunication);
  is("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", EventKind::kHost,
     Activity::kDataWait);
  is("user_annotation", "[pl][profile][_TrainingEpochLoop].train_dataloader_next", EventKind::kHost,
     Activity::kDataWait);
  is("user_annotation", "Optimizer.step#SGD.step", EventKind::kIgnored);
  is("gpu_user_annotation", "ProfilerStep#3", EventKind::kIgnored);
  is("python_function", "torch/utils/data/dataloader.py(631): __next__", EventKind::kHost, Activity::kDataWait);
  is("python_function", "train.py(3): main", EventKind::kIgnored);
  is("cuda_runtime", "cudaLaunchKernel", EventKind::kIgnored);
  is("user_annotation", "ProfilerStep#12", EventKind::kStep);
  EXPECT_EQ(classify("user_annotation", "ProfilerStep#12").step, 12);
  is("user_annotation", "ProfilerStep#x", EventKind::kIgnored);
}

TEST(Activity, CollectivesByTheirLetters) {
  EXPECT_EQ(collective_op("ncclDevKernel_AllReduce_Sum_f32_RING_LL"), CollectiveOp::kAllReduce);
  EXPECT_EQ(collective_op("_allgather_base"), CollectiveOp::kAllGather);
  EXPECT_EQ(collective_op("_reduce_scatter_base"), CollectiveOp::kReduceScatter);
  EXPECT_EQ(collective_op("gloo:all_to_all"), CollectiveOp::kAllToAll);
  EXPECT_EQ(collective_op("ncclDevKernel_Reduce_Sum"), CollectiveOp::kReduce);
  EXPECT_EQ(collective_op("ncclDevKernel_SendRecv"), CollectiveOp::kOther);
  EXPECT_EQ(collective_op("send"), CollectiveOp::kSend);
  EXPECT_EQ(dtype_bytes("c10::BFloat16"), 2);
  EXPECT_EQ(dtype_bytes("Float"), 4);
  EXPECT_EQ(dtype_bytes("tensor of what"), 0);
}

OperatorArgs shapes(std::vector<std::vector<int64_t>> dims, std::vector<std::string> concrete = {}) {
  return {std::move(dims), {}, std::move(concrete)};
}

// Oracle: two FLOPs for each multiply and add of the definition.
TEST(Flops, OfEachOperator) {
  EXPECT_EQ(flops_of("aten::mm", shapes({{3, 5}, {5, 7}})), 2.0 * 3 * 5 * 7);
  EXPECT_EQ(flops_of("aten::addmm", shapes({{7}, {3, 5}, {5, 7}})), 2.0 * 3 * 5 * 7);
  EXPECT_EQ(flops_of("aten::bmm", shapes({{4, 3, 5}, {4, 5, 7}})), 2.0 * 4 * 3 * 5 * 7);
  // 2 samples, 3 channels of 8x10, 6 filters of 3x5 (stride 2 and 1, padding 1 and 2, no dilation): 4x10 positions.
  const std::vector<std::string> settings = {"", "", "", "[2, 1]", "[1, 2]", "[1, 1]", "False", "[0, 0]", "1"};
  const double forward = 2.0 * 2 * 4 * 10 * 6 * 3 * 3 * 5;
  EXPECT_EQ(flops_of("aten::convolution", shapes({{2, 3, 8, 10}, {6, 3, 3, 5}, {6}}, settings)), forward);
  // Transposed: each of the 8x10 inputs meets each weight.
  std::vector<std::string> transposed = settings;
  transposed[6] = "True";
  EXPECT_EQ(flops_of("aten::convolution", shapes({{2, 3, 8, 10}, {3, 6, 3, 5}, {6}}, transposed)),
            2.0 * 2 * 8 * 10 * 3 * 6 * 3 * 5);
  // Two groups: weights have half the channels.
  EXPECT_EQ(flops_of("aten::convolution", shapes({{2, 4, 8, 10}, {6, 2, 3, 5}, {6}}, settings)),
            2.0 * 2 * 4 * 10 * 6 * 2 * 3 * 5);
  std::vector<std::string> backward = {
      "", "", "", "[6]", "[2, 1]", "[1, 2]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, True]"};
  const std::vector<std::vector<int64_t>> grads = {{2, 6, 4, 10}, {2, 3, 8, 10}, {6, 3, 3, 5}};
  EXPECT_EQ(flops_of("aten::convolution_backward", shapes(grads, backward)), 2 * forward);
  backward[10] = "[False, True, True]";
  EXPECT_EQ(flops_of("aten::convolution_backward", shapes(grads, backward)), forward);
  // 2 samples, 4 heads, 16 queries, 24 keys of 8 values.
  const std::vector<std::vector<int64_t>> qkv = {{2, 4, 16, 8}, {2, 4, 24, 8}, {2, 4, 24, 8}};
  const double attention = 2.0 * 2 * 4 * 16 * 24 * (8 + 8);
  EXPECT_EQ(flops_of("aten::_scaled_dot_product_flash_attention", shapes(qkv)), attention);
  EXPECT_EQ(
      flops_of("aten::_scaled_dot_product_flash_attention_backward", shapes({{2, 4, 16, 8}, qkv[0], qkv[1], qkv[2]})),
      2 * attention);
}

TEST(Flops, NothingWhereShapesAreMissingOrDoNotFit) {
  EXPECT_FALSE(flops_of("aten::mm", {}));
  EXPECT_FALSE(flops_of("aten::mm", shapes({{3, 5}, {6, 7}})));
  EXPECT_FALSE(
      flops_of("aten::convolution", shapes({{2, 3, 8}, {6, 3, 3}}, {"", "", "", "[0]", "[0]", "[1]", "False"})));
  EXPECT_FALSE(counts_flops("aten::linear"));
  EXPECT_FALSE(counts_flops("aten::conv2d"));
}

}  // namespace
}  // namespace trireme::trace
