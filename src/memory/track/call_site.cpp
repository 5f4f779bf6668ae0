#include "memory/track/call_site.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/library_function.h"
#include "memory/track/elf_symbols.h"

namespace trireme::memory {
namespace {

constexpr size_t kMostFrames = 64;

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 && text ? text.get() : name;
}

// The dynamic loader knows exported functions only; a program exports none.
std::string symbol_from_file(const std::string& module, uint64_t offset) {
  static std::mutex mutex;
  static std::map<std::string, std::optional<ElfSymbols>> read;
  const std::lock_guard lock(mutex);
  auto it = read.find(module);
  if (it == read.end()) {
    Result<ElfSymbols> symbols = ElfSymbols::read(module);
    it = read.emplace(module, symbols.ok() ? std::optional(std::move(symbols).value()) : std::nullopt).first;
  }
  const std::optional<ElfSymbols>& symbols = it->second;
  return symbols ? symbols->function_at(offset) : std::string{};
}

}  // namespace

std::string Frame::text() const {
  std::ostringstream out;
  if (!function.empty()) out << function << " (";
  out << std::filesystem::path(module).filename().string() << "+0x" << std::hex << offset;
  if (!function.empty()) out << ')';
  return out.str();
}

size_t HashStack::operator()(const Stack& stack) const noexcept {
  uint64_t hash = 0x9e3779b97f4a7c15;
  for (const void* frame : stack) hash = (hash ^ reinterpret_cast<uintptr_t>(frame)) * 0xff51afd7ed558ccd;
  return hash ^ (hash >> 32);
}

[[gnu::noinline]] size_t capture_stack(std::span<void*> out) noexcept {
  std::array<void*, kMostFrames> all;
  const std::span<void*> found(all.data(),
                               static_cast<size_t>(std::max(0, backtrace(all.data(), static_cast<int>(all.size())))));
  // Not "all but the first": a sanitizer's backtrace() adds a frame of its own.
  const auto caller = std::ranges::find(found, __builtin_return_address(0));
  const auto count = std::min(static_cast<size_t>(found.end() - caller), out.size());
  std::copy_n(caller, count, out.begin());
  return count;
}

Frame describe_frame(const void* return_address) {
  Frame frame;
  // The call is before the address it returns to, which may already be of the next function.
  const void* call = static_cast<const char*>(return_address) - 1;
  Dl_info info = {};
  link_map* map = nullptr;
  if (dladdr1(call, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 || map == nullptr) {
    frame.offset = reinterpret_cast<uintptr_t>(call);
    return frame;
  }
  const bool program = map->l_name == nullptr || *map->l_name == '\0';
  std::error_code ignored;
  frame.module = program ? std::filesystem::read_symlink("/proc/self/exe", ignored).string() : map->l_name;
  frame.offset = reinterpret_cast<uintptr_t>(call) - map->l_addr;
  const std::string symbol = info.dli_sname != nullptr
                                 ? info.dli_sname
                                 : symbol_from_file(program ? "/proc/self/exe" : frame.module, frame.offset);
  if (!symbol.empty()) frame.function = demangled(symbol);
  return frame;
}

bool is_of_libraries(const Frame& frame) {
  static constexpr std::array<std::string_view, 12> kModules = {"libtorch", "libc10",     "libgomp",  "libstdc++",
                                                                "libc.so",  "libpthread", "ld-linux", "libm.so",
                                                                "libgcc_s", "libtrireme", "libcuda",  "libmkl"};
  const std::string module = std::filesystem::path(frame.module).filename().string();
  if (std::any_of(kModules.begin(), kModules.end(), [&](std::string_view name) { return module.starts_with(name); }))
    return true;
  return is_library_function(frame.function);
}

size_t user_frame(std::span<void* const> stack) {
  for (size_t i = 0; i < stack.size(); ++i) {
    if (!is_of_libraries(describe_frame(stack[i]))) return i;
  }
  return 0;
}

}  // namespace trireme::memory
