// Oracle: the addresses of this program's own functions; for damage, that every cut or changed file gives a word and nothing else.
#include "memory/track/elf_symbols.h"

#include <gtest/gtest.h>
#include <link.h>

#include <fstream>
#include <iterator>
#include <random>

#include "support/temp_dir.h"

extern "C" [[gnu::noinline]] int elf_symbols_test_marker(int x) { return x + 1; }

namespace trireme::memory {
namespace {

TEST(ElfSymbols, FindsAFunctionByAnyAddressInIt) {
  const auto symbols = ElfSymbols::read("/proc/self/exe");
  ASSERT_TRUE(symbols.ok()) << symbols.reason();
  const uint64_t address = reinterpret_cast<uintptr_t>(&elf_symbols_test_marker) - _r_debug.r_map->l_addr;
  EXPECT_EQ(symbols.value().function_at(address), "elf_symbols_test_marker");
  EXPECT_EQ(symbols.value().function_at(address + 1), "elf_symbols_test_marker");
  EXPECT_EQ(symbols.value().function_at(0), "");
}

TEST(ElfSymbols, SaysWhatIsWrongWithAFile) {
  EXPECT_NE(ElfSymbols::read("/nowhere/at/all").reason().find("cannot be opened"), std::string::npos);
  EXPECT_NE(ElfSymbols::read("/proc/self/cmdline").reason().find("is not an ELF file"), std::string::npos);
}

TEST(ElfSymbols, SurvivesCutAndChangedFiles) {
  std::ifstream self("/proc/self/exe", std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(self)), {});
  const test::TempDir folder;
  const std::string path = folder.path() + "/damaged";
  std::mt19937_64 random(7);
  int read = 0;
  for (int trial = 0; trial < 60; ++trial) {
    std::string bytes = whole;
    if (trial % 3 == 0) bytes.resize(random() % bytes.size());
    // In the header and in the table of sections, which are what is believed or not.
    const size_t table = whole.size() < size_t{64} * 40 ? 0 : whole.size() - size_t{64} * 40;
    for (int i = 0; i < 8; ++i) {
      const size_t at = trial % 2 == 0 ? random() % 64 : table + random() % (size_t{64} * 40);
      if (at < bytes.size()) bytes[at] = static_cast<char>(random());
    }
    std::ofstream(path, std::ios::binary) << bytes;
    const auto symbols = ElfSymbols::read(path);
    if (!symbols.ok()) {
      EXPECT_FALSE(symbols.reason().empty());
      continue;
    }
    ++read;
    for (int i = 0; i < 100; ++i) (void)symbols.value().function_at(random() % (2 * whole.size()));
  }
  EXPECT_LT(read, 60);
}

}  // namespace
}  // namespace trireme::memory
