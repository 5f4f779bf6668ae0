#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/str.h"
#include "cli/commands.h"
#include "cli/run_flags.h"
#include "cli/shell_word.h"
#include "launch/job.h"

namespace trireme::cli {
namespace {

void print_plan(const std::vector<launch::PlannedRank>& ranks, bool json) {
  nlohmann::json rows = nlohmann::json::array();
  for (const launch::PlannedRank& rank : ranks) {
    if (json) {
      rows.push_back(
          {{"rank", rank.rank}, {"executable", rank.executable}, {"command", rank.command}, {"env", rank.env}});
      continue;
    }
    std::string line = str("rank ", rank.rank, ":");
    for (const auto& [name, value] : rank.env) {
      if (!value.empty()) line += str(" ", name, "=", shell_word(value));
    }
    for (const std::string& word : rank.command) line += " " + shell_word(word);
    std::puts(line.c_str());
  }
  if (!json) return;
  // Words and variables are bytes; JSON is UTF-8.
  const nlohmann::json document = {{"schema", 1}, {"ranks", rows}};
  std::puts(document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

}  // namespace

int cmd_run(const std::vector<std::string>& args) {
  const RunRequest request = parse_run_flags(args);
  if (request.help) {
    std::fputs(run_help(), stdout);
    return 0;
  }
  if (request.dry_run) {
    print_plan(launch::plan_job(request.spec), request.json);
    return 0;
  }
  return launch::run_job(request.spec).exit_code;
}

}  // namespace trireme::cli
