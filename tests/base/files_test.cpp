// Oracle: closed form. Whatever stops a writer, its file holds the old text or the new one; and of two folders with one name, the one
// that others could have made or filled is refused.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/fd.h"
#include "base/log.h"
#include "base/own_folder.h"
#include "base/printable.h"
#include "base/read_file.h"
#include "base/replace_file.h"
#include "support/temp_dir.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

/// A node of the kernel's device `major`, `minor`, where this user may make and open one.
class CharDevice {
 public:
  CharDevice(std::string path, unsigned major, unsigned minor) : path_(std::move(path)) {
    made_ = mknod(path_.c_str(), S_IFCHR | 0600, makedev(major, minor)) == 0;
    made_ = made_ && Fd(open(path_.c_str(), O_WRONLY));
  }
  [[nodiscard]] bool made() const { return made_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool made_ = false;
};

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

// Oracle: the rule. A device stays a device and a pipe a pipe (root could replace them); each fault is one error of its kind.
TEST(ReplaceFile, WritesToDevicesAndPipesAsTheyStand) {
  const test::TempDir folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const auto refused = [](const std::string& path) -> std::string {
    try {
      replace_file(path, "text", "test");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refused(pipe), testing::HasSubstr("cannot write"));  // nobody reads, and nobody waits
  const Fd reader(open(pipe.c_str(), O_RDONLY | O_NONBLOCK));
  ASSERT_TRUE(reader);
  EXPECT_EQ(refused(pipe), "");
  char got[8] = {};
  EXPECT_EQ(::read(reader.get(), got, sizeof got), 4);
  EXPECT_STREQ(got, "text");
  EXPECT_THAT(refused(""), testing::HasSubstr("[test] the name of the file to write is empty"));
  EXPECT_THAT(refused(folder.path()), testing::HasSubstr("Is a directory"));
  EXPECT_EQ(refused("/dev/null"), "");
  struct stat info{};
  ASSERT_EQ(stat("/dev/null", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode));
  const CharDevice full(folder / "full", 1, 7);
  if (!full.made()) GTEST_SKIP() << "no devices can be made here; the other cases have passed";
  EXPECT_THAT(refused(full.path()), testing::HasSubstr("No space left on device"));
  ASSERT_EQ(stat(full.path().c_str(), &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode));
}

// Oracle: what was written comes back; whatever is no such file is refused by what it is, at once and without reading it all.
TEST(ReadFile, ReadsRegularFilesOnly) {
  const test::TempDir folder;
  const std::string path = folder / "a", pipe = folder / "pipe";
  const std::string text = std::string(100'000, 'x') + '\0' + "end";
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(read_file(path, "test", "a file"), text);
  std::ofstream(folder / "empty") << "";
  EXPECT_EQ(read_file(folder / "empty", "test", "a file"), "");
  EXPECT_FALSE(read_file("/proc/self/status", "test", "a file").empty());  // says that it has no bytes
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const auto refused = [](const std::string& name, size_t most = 1 << 20) -> std::string {
    try {
      (void)read_file(name, "test", "a file", most);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kIo);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refused(pipe), "[test] cannot read '" + pipe + "': it is a pipe; a file is required. Check the path.");
  EXPECT_THAT(refused(folder.path()), testing::HasSubstr("it is a folder"));
  EXPECT_THAT(refused("/dev/zero"), testing::HasSubstr("it is a device"));
  EXPECT_THAT(refused(folder / "none"), testing::HasSubstr("No such file or directory"));
  EXPECT_THAT(refused(""), testing::HasSubstr("No such file or directory"));
  EXPECT_THAT(refused(path, 99'999), testing::HasSubstr("it is longer than 99999 bytes"));
  EXPECT_EQ(refused(path, text.size()), "");
}

// Oracle: by hand, from the tables of ASCII and Latin-1. What UTF-8 writes with the same bytes in another place stays.
TEST(Printable, KeepsTerminalsFromObeying) {
  EXPECT_EQ(printable("a\x1b[31mb\x7f\r\n\tc"), "a\\x1b[31mb\\x7f\\x0d\n\tc");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "\\xc2\\x9b"
            "2J");
  EXPECT_EQ(printable("\xc3\xa9\xc2\xa0"), "\xc3\xa9\xc2\xa0");
  EXPECT_EQ(find_control("plain \xc3\x9b"), std::string::npos);
  EXPECT_EQ(find_control("ab\n"), 2u);
  EXPECT_EQ(find_control("a\xc2\x85"), 1u);
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
