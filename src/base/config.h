// Settings of a program: each one declared once, with type, default, unit and help; set by flag, environment, file or
// default, in that order of strength; and every value remembers where it came from.
//
// Example of a file (docs/cli.md lists the keys of each command):
//   {"optim": {"learning_rate": 0.1}, "data": {"global_batch": 256}}
// The same by flag: --set optim.learning_rate=0.1; by environment: TRIREME_TRAIN_OPTIM_LEARNING_RATE=0.1.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace trireme {

enum class Origin { kDefault, kFile, kEnvironment, kFlag };  // in order of strength

struct Setting {
  std::string key;           ///< "optim.learning_rate"
  JsonScalar default_value;  ///< its type is the type of the setting
  std::string help;          ///< one line, with the unit
  std::vector<std::string> choices = {};
  double min = -std::numeric_limits<double>::infinity();  ///< inclusive; numbers only
  double max = std::numeric_limits<double>::infinity();
};

/// Invariants     every value has its setting's type and lies within its limits.
/// Thread safety  none; fill it at start, read it afterwards.
/// Errors         kConfig: unknown key (with the nearest known one), wrong type, out of limits; the message starts with
///                the place: "train.json:14", "flag --lr", "environment TRIREME_TRAIN_SEED".
class Config {
 public:
  explicit Config(std::vector<Setting> settings);

  /// JSON text; `file` is used in messages and origins.
  void load_json(std::string_view text, const std::string& file);
  void load_file(const std::string& path);

  /// Reads PREFIX_KEY for each key in upper case with dots as underscores. A variable that starts with the prefix but
  /// names no key is an error. `environment` is a null-terminated list like ::environ.
  void load_environment(std::string_view prefix, const char* const* environment);

  /// "a.b=v", from --set or the like. The text is read as the setting's type.
  void set_assignment(std::string_view assignment, Origin origin, const std::string& place);
  void set_text(std::string_view key, std::string_view text, Origin origin, const std::string& place);
  void set(std::string_view key, JsonScalar value, Origin origin, const std::string& place);

  /// For a file that has kept where its values came from: says so for a value from a file. Other keys are left alone.
  void set_place_in_file(std::string_view key, const std::string& place);

  /// Replaces a default that depends on another setting; stays weaker than file, environment and flags.
  void set_default(std::string_view key, JsonScalar value, const std::string& place);

  [[nodiscard]] bool get_bool(std::string_view key) const;
  [[nodiscard]] int64_t get_int(std::string_view key) const;
  [[nodiscard]] double get_double(std::string_view key) const;
  [[nodiscard]] const std::string& get_string(std::string_view key) const;

  [[nodiscard]] Origin origin(std::string_view key) const;
  /// "flag --lr", "train.json:14", "default".
  [[nodiscard]] const std::string& place(std::string_view key) const;

  [[nodiscard]] const std::vector<Setting>& settings() const { return settings_; }

  /// {"schema": 1, "config": {nested}, "origin": {"optim.learning_rate": "flag --lr", ...}}
  [[nodiscard]] std::string to_json() const;

 private:
  struct Slot {
    const Setting* setting = nullptr;
    JsonScalar value;
    Origin origin = Origin::kDefault;
    std::string place = "default";
  };
  Slot& find(std::string_view key, const std::string& place);
  [[nodiscard]] const Slot& known(std::string_view key) const;
  void assign(std::string_view key, JsonScalar value, Origin origin, const std::string& place);

  std::vector<Setting> settings_;
  std::map<std::string, Slot, std::less<>> slots_;
};

}  // namespace trireme
