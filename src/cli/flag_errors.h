// What CLI11 says about a command line, in the form of docs/errors.md: one place for all commands.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): of another library
class App;
class ParseError;
}  // namespace CLI

namespace trireme::cli {

/// Throws kConfig: "[component] WHAT 'command --help' lists all flags." WHAT names the first word that is wrong as it was written, what is
/// required, and for an unknown one the nearest known one.
///
/// component   "train"
/// command     "trireme train"; the name of a subcommand that was given is added
[[noreturn]] void throw_flag_error(const CLI::App& app, const CLI::ParseError& error, const std::string& component,
                                   const std::string& command);

/// Parses `args`. True: help was asked for and has been printed to standard output, and the command is done. Errors as above.
[[nodiscard]] bool parsed_for_help(CLI::App& app, const std::vector<std::string>& args, const std::string& component,
                                   const std::string& command);

/// The same for a word that CLI11 let pass. `known` are all flags in their dashed spelling.
[[noreturn]] void throw_unknown_flag(const std::string& word, const std::vector<std::string>& known,
                                     const std::string& component, const std::string& command);

/// A check for add_option()->check(): "--batch is 'x'; a whole number from 1 to 64 is required."
[[nodiscard]] std::function<std::string(const std::string&)> whole_number(int64_t min, int64_t max);
/// The same for any number; never true of "nan".
[[nodiscard]] std::function<std::string(const std::string&)> number_within(double min, double max);
/// The same for words: "--schedule is 'x'; one of gpipe, 1f1b is required."
[[nodiscard]] std::function<std::string(const std::string&)> one_of(std::vector<std::string> words);
/// The same for the name of a file: "--out is empty; the name of a file is required."
[[nodiscard]] std::function<std::string(const std::string&)> file_name();

}  // namespace trireme::cli
