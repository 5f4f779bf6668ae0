// Names of functions in an ELF file, from its own symbol table: a program's functions are not exported, so the dynamic loader does not know them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/result.h"

namespace trireme::memory {

/// Purpose  The function that holds an offset of a 64-bit little-endian ELF file.
/// Source   System V ABI, "Symbol Table". `.symtab`; where that was stripped, `.dynsym`.
class ElfSymbols {
 public:
  /// Believes nothing: offsets and sizes are checked against the file. Reason: not ELF, another class, no symbols, damaged.
  [[nodiscard]] static Result<ElfSymbols> read(const std::string& path);

  /// The mangled name of the function at `address` (as in the file: less the load bias); empty: none.
  [[nodiscard]] std::string function_at(uint64_t address) const;

 private:
  struct Symbol {
    uint64_t begin, end;
    uint32_t name;  // offset in names_
  };
  std::vector<Symbol> symbols_;  // by begin
  std::string names_;
};

}  // namespace trireme::memory
