// Oracle: the files of cgroups v1 and v2 as the kernel writes them, laid out in a folder.
#include "comm/transport/wait_policy.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "support/temp_dir.h"

namespace trireme::comm {
namespace {

class QuotaCores : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = mount_ / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  double cores(const std::string& membership) {
    std::istringstream text(membership);
    return quota_cores(text, mount_.path());
  }

 private:
  test::TempDir mount_;
};

TEST_F(QuotaCores, AreThoseOfTheProcessesOwnGroupInVersion2) {
  // The real root has no cpu.max.
  write("system.slice/cpu.max", "max 100000");
  write("system.slice/job7.service/cpu.max", "150000 100000");
  EXPECT_EQ(cores("0::/system.slice/job7.service\n"), 1.5);
  EXPECT_EQ(cores("0::/system.slice\n"), 0);
  EXPECT_EQ(cores("0::/\n"), 0);
}

TEST_F(QuotaCores, AreTheLeastOfAllGroupsAbove) {
  write("a/cpu.max", "200000 100000");
  write("a/b/cpu.max", "400000 100000");
  write("a/b/c/cpu.max", "max 100000");
  EXPECT_EQ(cores("0::/a/b/c\n"), 2);
}

TEST_F(QuotaCores, OfAContainerAreAtItsRoot) {
  write("cpu.max", "300000 100000");
  EXPECT_EQ(cores("0::/\n"), 3);
  EXPECT_EQ(cores("0::/docker/0123abcd\n"), 3);  // the host's path, which is not there
}

TEST_F(QuotaCores, AreFoundInVersion1) {
  write("cpu,cpuacct/batch/job/cpu.cfs_quota_us", "50000");
  write("cpu,cpuacct/batch/job/cpu.cfs_period_us", "100000");
  write("cpu,cpuacct/batch/cpu.cfs_quota_us", "-1");
  write("cpu,cpuacct/batch/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cores("5:cpuset:/x\n4:cpu,cpuacct:/batch/job\n0::/y\n"), 0.5);
  EXPECT_EQ(cores("4:cpu,cpuacct:/batch\n"), 0);
}

TEST_F(QuotaCores, NonsenseIsNoLimit) {
  write("a/cpu.max", "lots of");
  EXPECT_EQ(cores("0::/a\n"), 0);
  EXPECT_EQ(cores("nothing of the kind"), 0);
  EXPECT_EQ(cores(""), 0);
}

}  // namespace
}  // namespace trireme::comm
