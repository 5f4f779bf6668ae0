// Starts `trireme run` in a folder of its own, with a tag by which every process of the job is found.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/subprocess.h"

namespace trireme::testing {

inline std::string trireme_binary() { return TRIREME_BIN_DIR "/trireme"; }
inline std::string rank_program() { return TRIREME_BIN_DIR "/launch_rank"; }

class JobTest : public ::testing::Test {
 protected:
  JobTest() {
    std::string name = "/tmp/trireme-launch-test-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~JobTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  [[nodiscard]] Subprocess::Options options() const {
    Subprocess::Options options;
    options.env.insert(tag_.variable());
    options.folder = folder_;
    return options;
  }
  /// trireme run --run-dir <folder>/run FLAGS PROGRAM...
  [[nodiscard]] std::vector<std::string> command(const std::vector<std::string>& rest) const {
    std::vector<std::string> all{trireme_binary(), "run", "--run-dir", run_dir()};
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  }
  [[nodiscard]] Finished run(const std::vector<std::string>& rest) const {
    return run_program(command(rest), options());
  }
  [[nodiscard]] std::unique_ptr<Subprocess> start(const std::vector<std::string>& rest) const {
    return std::make_unique<Subprocess>(command(rest), options());
  }

  [[nodiscard]] std::string run_dir() const { return folder_ + "/run"; }
  [[nodiscard]] std::string read(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  [[nodiscard]] nlohmann::json failure() const {
    return nlohmann::json::parse(read("run/failure.json"), nullptr, false);
  }

  Tag tag_;
  std::string folder_;
};

}  // namespace trireme::testing
