// Oracle: the functions of this file, whose names the test knows; and a table of names that were seen in stacks of LibTorch programs.
#include "memory/track/call_site.h"

#include <gtest/gtest.h>

#include <array>

using trireme::memory::Frame;

[[gnu::noinline]] Frame frame_of_my_caller_by_name() {
  std::array<void*, 4> stack = {};
  const size_t depth = trireme::memory::capture_stack(stack);
  return depth > 0 ? trireme::memory::describe_frame(stack[0]) : Frame{};
}

namespace {

TEST(CallSite, NamesFunctionsOfTheProgramThoughTheyAreNotExported) {
  const Frame frame = frame_of_my_caller_by_name();
  EXPECT_EQ(frame.function, "frame_of_my_caller_by_name()");
  EXPECT_NE(frame.module.find("memory_unit"), std::string::npos) << frame.module;
  EXPECT_NE(frame.text().find("frame_of_my_caller_by_name() (memory_unit+0x"), std::string::npos) << frame.text();
}

TEST(CallSite, TellsLibrariesFromTheUsersCode) {
  const auto of = [](const char* function, const char* module) {
    Frame frame;
    frame.function = function;
    frame.module = module;
    return trireme::memory::is_of_libraries(frame);
  };
  EXPECT_TRUE(of("at::native::add(at::Tensor const&)", "/x/libtorch_cpu.so"));
  EXPECT_TRUE(of("", "/lib/x86_64-linux-gnu/libc.so.6"));
  EXPECT_TRUE(of("torch::nn::LinearImpl::forward(at::Tensor const&)", "/home/u/prog"));
  EXPECT_TRUE(of("void std::__invoke<f(torch::nn::Linear)>(int)", "/home/u/prog"));
  EXPECT_TRUE(of("trireme::parallel::DistributedDataParallel<Net>::forward<at::Tensor&>(at::Tensor&)", "/home/u/prog"));
  EXPECT_FALSE(of("train_step(torch::nn::Sequential&)", "/home/u/prog"));
  EXPECT_FALSE(of("game::Agent::act(at::Tensor const&)", "/home/u/libagent.so"));
  EXPECT_FALSE(of("(anonymous namespace)::loop()", "/home/u/prog"));
  EXPECT_FALSE(of("", "/home/u/prog"));
}

}  // namespace
