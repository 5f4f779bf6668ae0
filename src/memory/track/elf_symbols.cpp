#include "memory/track/elf_symbols.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>

#include "base/str.h"

namespace trireme::memory {
namespace {

/// A symbol table larger than this is not read into a training process: 64 MiB are 2.8 million functions.
constexpr uint64_t kMostBytes = uint64_t{64} << 20;

template <typename T>
bool read_array(std::ifstream& file, uint64_t file_bytes, uint64_t offset, uint64_t bytes, T& out) {
  if (offset > file_bytes || bytes > file_bytes - offset || bytes > kMostBytes) return false;
  out.resize(bytes / sizeof(out[0]));
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size() * sizeof(out[0])));
  return file.good();
}

}  // namespace

Result<ElfSymbols> ElfSymbols::read(const std::string& path) {
  const auto no = [&](const char* why) { return Reason{str(path, ": ", why)}; };
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return no("cannot be opened");
  const auto file_bytes = static_cast<uint64_t>(file.tellg());
  Elf64_Ehdr header = {};
  file.seekg(0);
  file.read(reinterpret_cast<char*>(&header), sizeof(header));
  if (!file || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return no("is not an ELF file");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
    return no("is not 64-bit little-endian");
  if (header.e_shentsize != sizeof(Elf64_Shdr)) return no("has section headers of another size");
  std::vector<Elf64_Shdr> sections;
  if (!read_array(file, file_bytes, header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr), sections)) {
    return no("has section headers outside the file");
  }
  for (const uint32_t wanted : {uint32_t{SHT_SYMTAB}, uint32_t{SHT_DYNSYM}}) {
    const auto table =
        std::find_if(sections.begin(), sections.end(), [&](const Elf64_Shdr& s) { return s.sh_type == wanted; });
    if (table == sections.end() || table->sh_link >= sections.size()) continue;
    const Elf64_Shdr& names = sections[table->sh_link];
    std::vector<Elf64_Sym> raw;
    ElfSymbols result;
    if (!read_array(file, file_bytes, table->sh_offset, table->sh_size, raw) ||
        !read_array(file, file_bytes, names.sh_offset, names.sh_size, result.names_)) {
      return no("has a symbol table outside the file, or of more than 64 MiB");
    }
    result.names_ += '\0';
    for (const Elf64_Sym& symbol : raw) {
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_value == 0 || symbol.st_name >= result.names_.size())
        continue;
      result.symbols_.push_back({symbol.st_value, symbol.st_value + symbol.st_size, symbol.st_name});
    }
    if (result.symbols_.empty()) continue;
    std::sort(result.symbols_.begin(), result.symbols_.end(),
              [](const Symbol& a, const Symbol& b) { return a.begin < b.begin; });
    return result;
  }
  return no("has no symbols of functions");
}

std::string ElfSymbols::function_at(uint64_t address) const {
  auto next = std::upper_bound(symbols_.begin(), symbols_.end(), address,
                               [](uint64_t a, const Symbol& s) { return a < s.begin; });
  if (next == symbols_.begin()) return {};
  const Symbol& symbol = *std::prev(next);
  // Hand-written assembly has functions of size 0: they reach to the next.
  if (symbol.end != symbol.begin && address >= symbol.end) return {};
  return names_.c_str() + symbol.name;
}

}  // namespace trireme::memory
