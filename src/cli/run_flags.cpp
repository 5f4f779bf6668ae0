#include "cli/run_flags.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/str.h"
#include "cli/flag_errors.h"
#include "cli/run_spec.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

/// "--a-b" in both spellings, with the default from PET_A_B as torchrun has it.
class FlagAdder {
 public:
  explicit FlagAdder(CLI::App& app) : app_(app) {}

  template <typename Value>
  CLI::Option* value(const std::string& name, Value& place, const char* short_name = "") {
    return finish(name, app_.add_option(names(name, short_name), place));
  }
  CLI::Option* toggle(const std::string& name, bool& place, const char* short_name = "") {
    return finish(name, app_.add_flag(names(name, short_name), place));
  }
  [[nodiscard]] const std::vector<std::string>& all() const { return all_; }

 private:
  static std::string names(const std::string& name, const char* short_name) {
    std::string underscored = name;
    std::replace(underscored.begin() + 2, underscored.end(), '-', '_');
    std::string text = name;
    if (underscored != name) text += "," + underscored;
    if (*short_name != '\0') text += str(",", short_name);
    return text;
  }
  CLI::Option* finish(const std::string& name, CLI::Option* option) {
    std::string variable = "PET_";
    for (const char c : name.substr(2)) {
      variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    all_.push_back(name);
    return option->envname(variable);
  }
  CLI::App& app_;
  std::vector<std::string> all_;
};

std::vector<std::string> add_flags(CLI::App& app, RunFlags& f) {
  app.prefix_command();
  app.set_help_flag();
  FlagAdder add(app);
  add.value("--nproc-per-node", f.nproc_per_node);
  add.value("--nnodes", f.nnodes);
  add.value("--rdzv-backend", f.rdzv_backend);
  add.value("--rdzv-endpoint", f.rdzv_endpoint);
  add.value("--rdzv-id", f.rdzv_id);
  add.value("--rdzv-conf", f.rdzv_conf);
  add.toggle("--standalone", f.standalone);
  add.value("--max-restarts", f.max_restarts);
  add.value("--monitor-interval", f.monitor_interval);
  add.value("--start-method", f.start_method);
  add.value("--event-log-handler", f.event_log_handler);
  add.value("--role", f.role);
  add.toggle("--module", f.module, "-m");
  add.toggle("--no-python", f.no_python);
  add.toggle("--run-path", f.run_path);
  add.value("--log-dir", f.log_dir);
  add.value("--run-dir", f.run_dir);
  add.value("--redirects", f.redirects, "-r");
  add.value("--tee", f.tee, "-t");
  add.value("--local-ranks-filter", f.local_ranks_filter);
  add.value("--duplicate-stdout-filters", f.duplicate_stdout_filters);
  add.value("--duplicate-stderr-filters", f.duplicate_stderr_filters);
  add.value("--node-rank", f.node_rank);
  add.value("--master-addr", f.master_addr);
  add.value("--master-port", f.master_port);
  add.value("--local-addr", f.local_addr);
  add.value("--logs-specs", f.logs_specs);
  add.value("--numa-binding", f.numa_binding);
  add.value("--signals-to-handle", f.signals_to_handle);
  add.value("--shutdown-timeout", f.shutdown_timeout)->envname("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
  add.value("--grace", f.grace)->envname("TRIREME_GRACE");
  add.value("--report-grace", f.report_grace)->envname("TRIREME_REPORT_GRACE");
  add.toggle("--virtual-local-rank", f.virtual_local_rank);
  add.toggle("--use-env", f.use_env);
  add.toggle("--dry-run", f.dry_run)->envname("");
  add.toggle("--json", f.json)->envname("");
  add.toggle("--help", f.help, "-h")->envname("");
  return add.all();
}

void refuse_what_is_missing(const RunFlags& f) {
  const auto not_yet = [](const std::string& flag, const std::string& instead) {
    throw Error(ErrorKind::kConfig, str("[cli.run] ", flag, " is not there yet. ", instead));
  };
  if (f.nnodes != "1" && f.nnodes != "1:1") {
    not_yet(str("--nnodes ", f.nnodes), "trireme run starts ranks on one host only: leave it out or give 1.");
  }
  if (f.node_rank != 0) not_yet("--node-rank above 0", "trireme run starts ranks on one host only.");
  if (!f.rdzv_conf.empty()) not_yet("--rdzv-conf", "Leave it out: the store of one host has nothing to configure.");
  if (!f.rdzv_backend.empty() && f.rdzv_backend != "c10d" && f.rdzv_backend != "static") {
    not_yet(str("--rdzv-backend ", f.rdzv_backend), "Use c10d or static, which mean the same on one host.");
  }
  if (!f.local_addr.empty()) not_yet("--local-addr", "--master-addr says where the store listens.");
  if (!f.numa_binding.empty()) not_yet("--numa-binding", "Bind in the program, or start it through numactl.");
  if (f.virtual_local_rank) not_yet("--virtual-local-rank", "Set CUDA_VISIBLE_DEVICES from LOCAL_RANK in the program.");
  if (!f.logs_specs.empty()) not_yet("--logs-specs", "--log-dir, --redirects and --local-ranks-filter choose.");
  if (!f.event_log_handler.empty() && f.event_log_handler != "null") not_yet("--event-log-handler", "Leave it out.");
  if (!f.duplicate_stdout_filters.empty()) not_yet("--duplicate-stdout-filters", "grep the log files instead.");
  if (!f.duplicate_stderr_filters.empty()) not_yet("--duplicate-stderr-filters", "grep the log files instead.");
  if (!f.start_method.empty() && f.start_method != "spawn") {
    not_yet(str("--start-method ", f.start_method), "Ranks are programs here and are always executed afresh (spawn).");
  }
  if (!f.monitor_interval.empty()) {
    log::info("cli", "--monitor-interval has no effect: the kernel tells the launcher of a death, nothing is polled");
  }
}

}  // namespace

void wrong_flag(const std::string& what) {
  throw Error(ErrorKind::kConfig, str("[cli.run] ", what, " 'trireme run --help' lists all flags."));
}

RunRequest parse_run_flags(const std::vector<std::string>& args) {
  CLI::App app;
  RunFlags flags;
  const std::vector<std::string> known = add_flags(app, flags);
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));  // CLI11 takes them from the back
  } catch (const CLI::ParseError& error) {
    throw_flag_error(app, error, "cli.run", "trireme run");
  }
  RunRequest request;
  request.help = flags.help;
  request.dry_run = flags.dry_run;
  request.json = flags.json;
  if (request.help) return request;
  std::vector<std::string> rest = app.remaining();
  // What stands behind a "--" is a program, whatever its name.
  const bool separated = !rest.empty() && rest.front() == "--";
  if (separated) rest.erase(rest.begin());
  if (!rest.empty() && rest.front().starts_with('-') && !separated) {
    throw_unknown_flag(rest.front(), known, "cli.run", "trireme run");
  }
  refuse_what_is_missing(flags);
  if (flags.json && !flags.dry_run) {
    wrong_flag("--json goes with --dry-run; how a run ended is in failure.json of its run folder.");
  }
  request.spec = make_job_spec(flags, std::move(rest));
  return request;
}

std::vector<std::string> run_flag_names() {
  CLI::App app;
  RunFlags flags;
  return add_flags(app, flags);
}

}  // namespace trireme::cli
