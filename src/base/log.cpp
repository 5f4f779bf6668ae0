#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "base/nearest.h"
#include "trireme/base/error.h"

namespace trireme::log {
namespace {

// Those that log, and the folders of src/ that may: a filter for another name would never be noticed.
constexpr std::array<std::string_view, 19> kComponents = {
    "base",     "plan",     "balance",   "rendezvous", "profile",           "launch", "comm",       "comm.host",
    "comm.shm", "diagnose", "precision", "memory",     "memory.leak_watch", "data",   "checkpoint", "optim",
    "parallel", "cli",      "train"};

constexpr std::array<std::string_view, 6> kLevelNames = {"trace", "debug", "info", "warn", "error", "off"};

struct Filter {
  Level fallback = Level::kInfo;
  std::map<std::string, Level, std::less<>> components;
};

Level parse_level(std::string_view text, std::string_view whole) {
  for (size_t i = 0; i < kLevelNames.size(); ++i) {
    if (text == kLevelNames[i]) return static_cast<Level>(i);
  }
  throw Error(ErrorKind::kConfig,
              str("[base.log] TRIREME_LOG='", whole, "': unknown level '", text,
                  "'; levels are trace, debug, info, warn, error, off. Example: TRIREME_LOG=info,comm=debug"));
}

Filter parse_filter(std::string_view text) {
  Filter filter;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    if (part.empty()) continue;
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) {
      filter.fallback = parse_level(part, text);
    } else {
      const std::string component(part.substr(0, equals));
      if (std::find(kComponents.begin(), kComponents.end(), component) == kComponents.end()) {
        const std::vector<std::string> known(kComponents.begin(), kComponents.end());
        throw Error(ErrorKind::kConfig, str("[base.log] TRIREME_LOG='", text, "': unknown component '", component, "'",
                                            did_you_mean(component, known), "; components are ", join(kComponents),
                                            ". Example: TRIREME_LOG=info,comm=debug"));
      }
      filter.components[component] = parse_level(part.substr(equals + 1), text);
    }
  }
  return filter;
}

class Logger {
 public:
  Logger() : sink_(std::make_shared<spdlog::logger>("trireme", std::make_shared<spdlog::sinks::stderr_sink_mt>())) {
    sink_->set_level(spdlog::level::trace);
    sink_->set_pattern("%H:%M:%S.%e %L %v");
    sink_->flush_on(spdlog::level::trace);
    const char* env = std::getenv("TRIREME_LOG");
    if (env == nullptr) return;
    try {
      filter_ = parse_filter(env);
    } catch (const Error& error) {
      // The first log line must not be able to end the program: say what is wrong and go on with the default.
      sink_->error("{} (using info)", error.what());
    }
  }

  bool enabled(Level level, std::string_view component) {
    const std::shared_lock lock(mutex_);
    // 'comm=debug' also covers 'comm.host': the longest dotted prefix decides.
    std::string_view name = component;
    while (!name.empty()) {
      if (const auto it = filter_.components.find(name); it != filter_.components.end()) return level >= it->second;
      const size_t dot = name.rfind('.');
      name = dot == std::string_view::npos ? std::string_view{} : name.substr(0, dot);
    }
    return level >= filter_.fallback;
  }

  void set_filter(Filter filter) {
    const std::unique_lock lock(mutex_);
    filter_ = std::move(filter);
  }

  void write(Level level, std::string_view component, const std::string& text) {
    const auto spd_level = static_cast<spdlog::level::level_enum>(static_cast<int>(level));
    const int rank = rank_.load(std::memory_order_relaxed);
    if (rank >= 0) {
      sink_->log(spd_level, "[{}] rank {}: {}", component, rank, text);
    } else {
      sink_->log(spd_level, "[{}] {}", component, text);
    }
  }

  void set_rank(int rank) { rank_.store(rank, std::memory_order_relaxed); }

 private:
  std::shared_ptr<spdlog::logger> sink_;
  std::shared_mutex mutex_;
  Filter filter_;
  std::atomic<int> rank_{-1};
};

// Leaked on purpose: destructors of other statics may still log.
Logger& logger() {
  static auto* instance = new Logger;
  return *instance;
}

}  // namespace

bool enabled(Level level, std::string_view component) noexcept { return logger().enabled(level, component); }
void write(Level level, std::string_view component, const std::string& text) { logger().write(level, component, text); }
void set_rank(int rank) noexcept { logger().set_rank(rank); }
void set_filter(std::string_view filter) { logger().set_filter(parse_filter(filter)); }
void require_good_filter() {
  if (const char* env = std::getenv("TRIREME_LOG")) (void)parse_filter(env);
}

}  // namespace trireme::log
