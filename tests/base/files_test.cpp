// Oracle: closed form. Whatever stops a writer, its file holds the old text or the new one; and of two folders with one name, the one
// that others could have made or filled is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/log.h"
#include "base/own_folder.h"
#include "base/replace_file.h"
#include "support/temp_dir.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::string read(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Files of this process cannot grow beyond `bytes` while this lives: what a full disk looks like.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : before_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit = {bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    signal(SIGXFSZ, before_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit old_{};
  void (*before_)(int);
};

TEST(ReplaceFile, AFullDiskLeavesWhatWasThere) {
  const test::TempDir folder;
  const std::string path = folder / "config.json";
  replace_file(path, "old", "test");
  EXPECT_EQ(read(path), "old");
  {
    const FileSizeLimit limit(4096);
    try {
      replace_file(path, std::string(5000, 'x'), "test");
      ADD_FAILURE() << "it was written";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kIo);
      EXPECT_THAT(error.what(), testing::StartsWith("[test] cannot write " + path));
    }
  }
  EXPECT_EQ(read(path), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);  // nothing is left beside it
}

TEST(ReplaceFile, WhatAKilledWriterLeftIsInNobodysWay) {
  const test::TempDir folder;
  const std::string path = folder / "config.json";
  std::ofstream(path + ".new") << "half of";
  replace_file(path, "new", "test");
  EXPECT_EQ(read(path), "new");
  EXPECT_FALSE(fs::exists(path + ".new"));
}

TEST(OwnFolder, OnlyWhatNobodyElseMayWriteIsTaken) {
  const test::TempDir folder;
  const std::string path = folder / "own";
  EXPECT_EQ(make_own_folder(path), "");
  struct stat info{};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700U);
  EXPECT_EQ(make_own_folder(path), "");  // and again
  ASSERT_EQ(chmod(path.c_str(), 0777), 0);
  EXPECT_THAT(make_own_folder(path), testing::HasSubstr("only this user"));
  ASSERT_EQ(chmod(path.c_str(), 0700), 0);
  fs::create_directory_symlink(path, folder / "link");
  EXPECT_THAT(make_own_folder(folder / "link"), testing::HasSubstr("only this user"));
  std::ofstream(folder / "file") << "";
  EXPECT_THAT(make_own_folder(folder / "file"), testing::HasSubstr("only this user"));
  EXPECT_THAT(make_own_folder(folder / "missing/own"), testing::HasSubstr("No such file"));
  if (getuid() != 0) GTEST_SKIP() << "only root can give a folder to somebody else; the other cases have passed";
  ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0);
  EXPECT_THAT(make_own_folder(path), testing::HasSubstr("only this user"));
}

TEST(LogFilter, AComponentThatNobodyHasIsRefusedWithTheNearest) {
  try {
    log::set_filter("info,com=debug");
    ADD_FAILURE() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), testing::HasSubstr("unknown component 'com'; did you mean 'comm'?"));
  }
  log::set_filter("info,comm.host=debug");
  EXPECT_TRUE(log::enabled(log::Level::kDebug, "comm.host"));
  EXPECT_FALSE(log::enabled(log::Level::kDebug, "comm"));
  log::set_filter("info");
}

}  // namespace
}  // namespace trireme
