#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/str.h"
#include "cli/commands.h"
#include "cli/run_flags.h"
#include "cli/shell_word.h"
#include "launch/job.h"

namespace trireme::cli {
namespace {

void print_json(const std::vector<launch::PlannedRank>& ranks) {
  nlohmann::json rows = nlohmann::json::array();
  for (const launch::PlannedRank& rank : ranks) {
    rows.push_back(
        {{"rank", rank.rank}, {"executable", rank.executable}, {"command", rank.command}, {"env", rank.env}});
  }
  // Words and variables are bytes; JSON is UTF-8.
  const nlohmann::json document = {{"schema", 1}, {"ranks", rows}};
  std::puts(document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

// What all ranks have in common is said once, so that what tells them apart can be seen.
void print_text(const std::vector<launch::PlannedRank>& ranks) {
  const auto common = [&](const std::string& name, const std::string& value) {
    return std::all_of(ranks.begin(), ranks.end(), [&](const launch::PlannedRank& rank) {
      const auto it = rank.env.find(name);
      return it != rank.env.end() && it->second == value;
    });
  };
  std::string text = "every rank\n";
  for (const auto& [name, value] : ranks.front().env) {
    if (!value.empty() && common(name, value)) text += str("  ", name, "=", shell_word(value), "\n");
  }
  for (const launch::PlannedRank& rank : ranks) {
    text += str("rank ", rank.rank, "\n");
    for (const auto& [name, value] : rank.env) {
      if (!value.empty() && !common(name, value)) text += str("  ", name, "=", shell_word(value), "\n");
    }
    text += ' ';
    for (const std::string& word : rank.command) text += " " + shell_word(word);
    text += '\n';
  }
  std::fputs(text.c_str(), stdout);
}

}  // namespace

int cmd_run(const std::vector<std::string>& args) {
  const RunRequest request = parse_run_flags(args);
  if (request.help) {
    std::fputs(run_help(), stdout);
    return 0;
  }
  if (request.dry_run) {
    const std::vector<launch::PlannedRank> ranks = launch::plan_job(request.spec);
    request.json ? print_json(ranks) : print_text(ranks);
    return 0;
  }
  return launch::run_job(request.spec).exit_code;
}

}  // namespace trireme::cli
