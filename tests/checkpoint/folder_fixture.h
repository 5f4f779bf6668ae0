// Checkpoints whose every byte follows from their step, so that a mixture of two saves would be noticed.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/folder/folder.h"

namespace trireme::checkpoint {

inline std::vector<float> values_of(int64_t step, size_t count) {
  return std::vector<float>(count, static_cast<float>(step));
}

/// `note` goes into the index, which grows with it.
inline std::string write_step(const std::string& root, int64_t step, size_t count = 1000, int keep_last = 2,
                              const std::string& note = {}) {
  const std::vector<float> values = values_of(step, count);
  Contents contents{step, {}, {{"note", note}, {"step", std::to_string(step)}}};
  contents.tensors.push_back(
      {"w", safetensors::Dtype::kF32, {static_cast<int64_t>(count)}, std::as_bytes(std::span(values))});
  return write_checkpoint(root, contents, keep_last);
}

inline void expect_whole(const ReadCheckpoint& read) {
  const auto bytes = read.tensors.at("w").view.bytes;
  const std::vector<float> want = values_of(read.step, bytes.size() / sizeof(float));
  EXPECT_FALSE(want.empty());
  EXPECT_EQ(std::memcmp(bytes.data(), want.data(), bytes.size()), 0);
  EXPECT_EQ(read.metadata.at("step"), std::to_string(read.step));
}

/// The newest one is whole; its step, or -1 when there is none.
inline int64_t expect_whole_latest(const std::string& root) {
  const auto read = read_latest(root);
  if (!read.has_value()) return -1;
  expect_whole(*read);
  return read->step;
}

inline int num_leftovers(const std::string& root) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    count += entry.path().filename().string().starts_with(".tmp-") ? 1 : 0;
  }
  return count;
}

/// One line, whose words these are: who, which file, why, and that what was saved before is still there.
inline void expect_clear(const std::string& message, const std::string& path, const std::string& reason,
                         const std::string& advice) {
  using testing::HasSubstr;
  EXPECT_THAT(message,
              testing::AllOf(testing::StartsWith("[checkpoint.save] "), HasSubstr(path), HasSubstr(": cannot "),
                             HasSubstr(reason), HasSubstr(advice), testing::Not(HasSubstr("\n"))));
}

}  // namespace trireme::checkpoint
