#include "cli/flag_errors.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/nearest.h"
#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

[[noreturn]] void fail(const std::string& component, const std::string& command, const std::string& what) {
  throw Error(ErrorKind::kConfig, str("[", component, "] ", what, " '", command, " --help' lists all flags."));
}

std::vector<std::string> long_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      if (name.find('_') == std::string::npos) names.push_back("--" + name);  // else the other spelling of one of them
    }
  }
  return names;
}

/// Those that are listed; a name of its own group, "", is not for users.
std::vector<std::string> subcommands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (!command->get_group().empty()) names.push_back(command->get_name());
  }
  return names;
}

/// The option that CLI11's text is about: the longest name in it, since --set is also the beginning of --settle.
const CLI::Option* option_in(const CLI::App& app, const std::string& text) {
  const CLI::Option* found = nullptr;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (text.find(name) == std::string::npos) continue;
    if (found == nullptr || name.size() > found->get_name().size()) found = option;
  }
  return found;
}

std::string kind_of_value(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (type.starts_with("INT") || type.starts_with("UINT")) return "a whole number";
  if (type.starts_with("FLOAT")) return "a number";
  return type.empty() || type.starts_with("TEXT") ? "a value" : type;
}

/// As the user said it: the flag, and the variable where the value came from that.
std::string said(const CLI::Option& option) {
  const std::string variable = option.get_envname();
  const char* value = variable.empty() ? nullptr : std::getenv(variable.c_str());
  if (value == nullptr || option.results() != std::vector<std::string>{value}) return option.get_name();
  return str(option.get_name(), " (environment ", variable, ")");
}

std::string about(const CLI::Option& option, const CLI::ParseError& error) {
  const std::string text = error.what();
  if (error.get_name() == "ValidationError") return said(option) + text.substr(text.find(": ") + 1);
  const std::vector<std::string>& given = option.results();
  if (error.get_name() == "ArgumentMismatch" && given.size() > 1) {
    return str(said(option), " was given ", given.size(), " times (", join(given), "); once is allowed.");
  }
  if (error.get_name() == "ArgumentMismatch" && given.empty()) {
    return str(option.get_name(), " has no value; ", kind_of_value(option), " is required.");
  }
  if (option.get_items_expected_max() == 0) return str(option.get_name(), " is a switch and takes no value.");
  return str(said(option), " is '", join(given), "'; ", kind_of_value(option), " is required.");
}

/// CLI11's "A excludes B" or "A requires B" in our words; empty for other errors.
std::string about_two(const CLI::ParseError& error) {
  const std::string text = error.what();
  const bool exclude = error.get_name() == "ExcludesError";
  if (!exclude && error.get_name() != "RequiresError") return {};
  const std::string_view between = exclude ? " excludes " : " requires ";
  const size_t at = text.find(between);
  if (at == std::string::npos) return {};
  const std::string first = text.substr(0, at);
  const std::string second = text.substr(at + between.size());
  return exclude ? str(first, " and ", second, " exclude each other; give one of them.")
                 : str(first, " goes with ", second, ", which is not given.");
}

}  // namespace

void throw_unknown_flag(const std::string& word, const std::vector<std::string>& known, const std::string& component,
                        const std::string& command) {
  std::string name = word.substr(0, word.find('='));
  std::replace(name.begin() + 1, name.end(), '_', '-');
  const std::string hint = did_you_mean(name, known);
  fail(component, command, str("unknown flag '", word, "'", hint.empty() ? "." : hint));
}

void throw_flag_error(const CLI::App& app, const CLI::ParseError& error, const std::string& component,
                      const std::string& command) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  if (!parsed.empty()) {
    const CLI::App& inner = *parsed.front();
    throw_flag_error(inner, error, str(component, ".", inner.get_name()), str(command, " ", inner.get_name()));
  }
  // Behind a prefix command's own flags stands a program with its words.
  const std::vector<std::string> extra = app.get_prefix_command() ? std::vector<std::string>{} : app.remaining();
  const auto flag = std::find_if(extra.begin(), extra.end(), [](const auto& word) { return word.starts_with('-'); });
  if (flag != extra.end()) throw_unknown_flag(*flag, long_names(app), component, command);
  const std::vector<std::string> commands = subcommands(app);
  if (!extra.empty() && commands.empty()) {
    fail(component, command,
         str("'", extra.front(), "' is one word too many; flags and their values are all it takes."));
  }
  if (!extra.empty()) {
    const std::string hint = did_you_mean(extra.front(), commands);
    fail(component, command,
         str("there is no '", command, " ", extra.front(), "'", hint, hint.empty() ? ". " : " ", "One of ",
             join(commands), " is required."));
  }
  if (error.get_name() == "RequiredError" && !commands.empty()) {
    fail(component, command, str("one of ", join(commands), " is required behind '", command, "'."));
  }
  if (const std::string two = about_two(error); !two.empty()) fail(component, command, two);
  const CLI::Option* option = option_in(app, error.what());
  fail(component, command, option != nullptr ? about(*option, error) : str(error.what(), "."));
}

bool parsed_for_help(CLI::App& app, const std::vector<std::string>& args, const std::string& component,
                     const std::string& command) {
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));  // CLI11 takes them from the back
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return true;
  } catch (const CLI::ParseError& error) {
    throw_flag_error(app, error, component, command);
  }
  return false;
}

std::function<std::string(const std::string&)> whole_number(int64_t min, int64_t max) {
  return [min, max](const std::string& text) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc{} && end == text.data() + text.size();
    if (whole && value >= min && value <= max) return std::string{};
    return str("is '", text, "'; a whole number from ", grouped(min), " to ", grouped(max), " is required.");
  };
}

std::function<std::string(const std::string&)> one_of(std::vector<std::string> words) {
  return [words = std::move(words)](const std::string& text) {
    if (std::find(words.begin(), words.end(), text) != words.end()) return std::string{};
    return str("is '", text, "'; one of ", join(words), " is required.");
  };
}

std::function<std::string(const std::string&)> file_name() {
  return [](const std::string& text) {
    return text.empty() ? std::string("is empty; the name of a file is required.") : std::string{};
  };
}

std::function<std::string(const std::string&)> number_within(double min, double max) {
  return [min, max](const std::string& text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool number = error == std::errc{} && end == text.data() + text.size();
    if (number && value >= min && value <= max) return std::string{};
    return str("is '", text, "'; a number from ", min, " to ", max, " is required.");
  };
}

}  // namespace trireme::cli
