#include "cli/simulate_flags.h"

#include <CLI/CLI.hpp>

#include "base/str.h"
#include "cli/flag_errors.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

/// Those that say what follows from a model and its cluster.
constexpr const char* kDurations[] = {
    "--micro-batches",      "--forward-only",  "--forward-ms",       "--backward-ms", "--backward-input-ms",
    "--backward-weight-ms", "--stage-factors", "--message-mb",       "--link-gb-s",   "--link-latency-us",
    "--activations-mb",     "--checkpoint-mb", "--state-gb",         "--replicas",    "--gradients-mb",
    "--topology",           "--domain",        "--domain-link-gb-s", "--nic-gb-s",    "--nic-latency-us",
    "--compare-topologies", "--spine-share",   "--optimizer-ms"};
constexpr const char* kOfModels[] = {"--cluster",  "--global-batch", "--seq-len",     "--precision",
                                     "--software", "--like",         "--micro-batch", "--zero"};

/// A flag that would have no effect is refused.
void check_together(const CLI::App& app, const SimulateRequest& request) {
  const bool model = app.count("--model") > 0;
  for (const char* flag : kDurations) {
    if (!model || app.count(flag) == 0) continue;
    throw Error(ErrorKind::kConfig, str("[cli.simulate] ", flag,
                                        " and --model: with a model it follows from model, cluster and "
                                        "batch. Leave one of them out."));
  }
  for (const char* flag : kOfModels) {
    if (model || app.count(flag) == 0) continue;
    throw Error(ErrorKind::kConfig, str("[cli.simulate] ", flag, " goes with --model. Name a model too."));
  }
  if (model && (request.base.training.cluster.empty() || request.base.training.global_batch == 0)) {
    throw Error(ErrorKind::kConfig, "[cli.simulate] --model needs --cluster and --global-batch. Give both.");
  }
}

void add_flags(CLI::App& app, SimulateRequest& request) {
  app.set_help_flag();
  app.allow_extras();
  SimulateCase& base = request.base;
  app.add_option("--schedule", base.schedule);
  app.add_option("--model", base.training.model);
  app.add_option("--cluster", base.training.cluster);
  app.add_option("--global-batch", base.training.global_batch)->check(whole_number(1, 1'000'000'000));
  app.add_option("--seq-len", base.training.sequence)->check(whole_number(1, 1'000'000'000));
  app.add_option("--precision", base.training.precision);
  app.add_option("--software", base.training.software);
  app.add_option("--like", base.training.like);
  app.add_option("--micro-batch", base.micro_batch)->check(whole_number(1, 1'000'000'000));
  app.add_option("--zero", base.zero_stage);
  app.add_option("--stages", base.stages)->check(whole_number(1, 100'000));
  app.add_option("--virtual-stages", base.virtual_stages)->check(whole_number(1, 10'000));
  app.add_option("--micro-batches", base.micro_batches)->check(whole_number(1, 1'000'000));
  app.add_flag("--recompute", base.recompute);
  app.add_flag("--forward-only", base.forward_only);
  app.add_option("--forward-ms", base.forward_ms)->check(number_within(0, 1e12));
  app.add_option("--backward-ms", base.backward_ms)->check(number_within(0, 1e12));
  app.add_option("--backward-input-ms", base.backward_input_ms)->check(number_within(0, 1e12));
  app.add_option("--backward-weight-ms", base.backward_weight_ms)->check(number_within(0, 1e12));
  app.add_option("--stage-factors", base.stage_factors)->delimiter(',');
  app.add_option("--message-mb", base.message_mb)->check(number_within(0, 1e12));
  app.add_option("--link-gb-s", base.link_gb_s)->check(number_within(1e-9, 1e12));
  app.add_option("--link-latency-us", base.link_latency_us)->check(number_within(0, 1e12));
  app.add_flag("--blocking", base.blocking);
  app.add_option("--activations-mb", base.activations_mb)->check(number_within(0, 1e12));
  app.add_option("--checkpoint-mb", base.checkpoint_mb)->check(number_within(0, 1e12));
  app.add_option("--state-gb", base.state_gb)->check(number_within(0, 1e12));
  app.add_option("--replicas", base.replicas)->check(whole_number(1, 1'000'000'000));
  app.add_option("--tensor-parallel", base.tensor_parallel)->check(whole_number(1, 1'000'000'000));
  app.add_option("--gradients-mb", base.gradients_mb)->check(number_within(0, 1e12));
  app.add_option("--topology", base.topology);
  app.add_option("--domain", base.domain)->check(whole_number(1, 1'000'000'000));
  app.add_option("--domain-link-gb-s", base.domain_link_gb_s)->check(number_within(1e-9, 1e12));
  app.add_option("--nic-gb-s", base.nic_gb_s)->check(number_within(1e-9, 1e12));
  app.add_option("--nic-latency-us", base.nic_latency_us)->check(number_within(0, 1e12));
  app.add_option("--spine-share", base.spine_share);
  app.add_option("--optimizer-ms", base.optimizer_ms)->check(number_within(0, 1e12));
  app.add_option("--slow-rank", base.slow_ranks)->delimiter(',');
  app.add_option("--slow-link", base.slow_links)->delimiter(',');
  app.add_option("--compare", request.compare)->delimiter(',');
  app.add_option("--compare-links", request.compare_links)->delimiter(',')->check(number_within(1e-9, 1e12));
  app.add_option("--compare-topologies", request.compare_topologies)->delimiter(',');
  app.add_option("--width", request.width)->check(whole_number(1, 10'000));
  app.add_option("--svg", request.svg)->check(file_name());
  app.add_option("--trace", request.trace)->check(file_name());
  app.add_option("--csv", request.csv)->check(file_name());
  app.add_flag("--json", request.json);
  app.add_flag("--help,-h", request.help);
}

}  // namespace

SimulateRequest parse_simulate_flags(const std::vector<std::string>& args) {
  CLI::App app;
  SimulateRequest request;
  add_flags(app, request);
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));  // CLI11 takes them from the back
  } catch (const CLI::ParseError& error) {
    throw_flag_error(app, error, "cli.simulate", "trireme simulate");
  }
  if (request.help) return request;
  if (app.remaining().empty()) {
    check_together(app, request);
    return request;
  }
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) known.push_back("--" + option->get_lnames().front());
  throw_unknown_flag(app.remaining().front(), known, "cli.simulate", "trireme simulate");
}

const char* simulate_help() {
  return R"(usage: trireme simulate [FLAGS]

One step of a pipeline schedule as a time line: bubble, communication that computation does not hide, memory by rank.
The list of actions that is costed is the one that is executed; it is proven first (no deadlock without buffers).

schedule:
  --schedule NAME|FILE     gpipe, 1f1b, interleaved, zb1p, zb2p, zbv, or a CSV file in the notation of
                           torch.distributed.pipelining; default 1f1b
  --stages N               ranks of the pipeline; default 4
  --virtual-stages N       stages on each rank; default 1, 2 for interleaved and zbv
  --micro-batches N        default 8
  --recompute              every forward once more before its backward
  --forward-only           evaluation

a model on a cluster (all below but what-ifs and output then follows from it):
  --model NAME|FILE        as for 'trireme plan'
  --cluster SPEC           16x8xH100, a known cluster, or a JSON file; all of it is used
  --global-batch N         samples of a step
  --seq-len N              tokens of a sample; default: what the model fixes
  --micro-batch N          samples of one replica in one forward; default 1
  --tensor-parallel N      default 1; replicas are what is left of the cluster
  --zero N                 stage of ZeRO, 0 to 3; default 0
  --precision, --software, --like
                           as for 'trireme plan'

work of one micro-batch on one rank:
  --forward-ms MS          default 10
  --backward-ms MS         half of it for inputs, half for weights; default twice the forward
  --backward-input-ms MS, --backward-weight-ms MS
                           the two halves by themselves
  --stage-factors F,F,...  factor on the times of each stage; default 1
  --optimizer-ms MS        at the end of each rank; default 0

messages between ranks:
  --message-mb MB          of one micro-batch, each way; default 0
  --link-gb-s GB/S         default 25; 0: as fast as you like
  --link-latency-us US     default 10
  --blocking               a send or receive holds its rank until it is over; default: only who needs the data waits

memory of one rank:
  --activations-mb MB      of one micro-batch; default 0
  --checkpoint-mb MB       what is kept of it until it is recomputed; default 0
  --state-gb GB            weights, gradients, optimizer; default 0

replicas (one is simulated, all are alike):
  --replicas N             data-parallel degree; default 1
  --tensor-parallel N      only counts GPUs without a model; default 1
  --gradients-mb MB        of one rank, reduced over the replicas after its last backward; default 0
  --topology NAME          ring, tree, domains, rails; default rails
  --domain N               replicas of one rank that see each other over fast links; default 1
  --domain-link-gb-s GB/S  in a domain, one rank; default 300
  --nic-gb-s GB/S          between domains, one rank's share; default 25
  --nic-latency-us US      of one hop; default 5
  --spine-share F          of the NICs' rate that the spine carries (domains); default 1

what if:
  --slow-rank R=FACTOR,... a rank computes slower: 2=1.3
  --slow-link R=FACTOR,... messages between rank R and R + 1 are slower
  --compare NAME,...       the same with other schedules
  --compare-links GB/S,... the same with other link speeds
  --compare-topologies NAME,...
                           the same with other ways to reduce gradients over the replicas

output:
  --svg FILE               drawing for a browser
  --trace FILE             Chrome trace, for Perfetto
  --csv FILE               the schedule itself
  --width N                characters of a line; default the terminal's
  --json                   the result for programs
  --help, -h               this text

exit code: 0; 2 for wrong flags or a schedule that cannot run
)";
}

}  // namespace trireme::cli
