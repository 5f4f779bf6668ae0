#include "cli/plan_search_flags.h"

#include <CLI/CLI.hpp>

#include "cli/flag_errors.h"
#include "plan/constraint_text.h"

namespace trireme::cli {

void add_search_flags(CLI::App& app, SearchFlags& f) {
  add_plan_flags(app, f.what);
  const auto degree = [&app](const char* name, std::vector<int64_t>& values, const char* text) {
    app.add_option(name, values, text)
        ->delimiter(',')
        ->check(whole_number(1, 1'000'000'000))
        ->group("What may be searched (one value fixes it; a list: 1,2,4)");
  };
  plan::Constraints& c = f.constraints;
  degree("--dp", c.dp, "data-parallel degrees");
  degree("--tp", c.tp, "tensor-parallel degrees");
  degree("--pp", c.pp, "pipeline degrees");
  degree("--cp", c.cp, "context-parallel degrees");
  degree("--ep", c.ep, "expert-parallel degrees");
  degree("--micro-batch", c.micro_batch, "samples of one replica in one forward");
  degree("--virtual-stages", c.virtual_stages, "model chunks of one pipeline rank; 1 = not interleaved");
  const char* const limits = "Limits";
  app.add_option("--zero", c.zero_stage, "ZeRO stages: 0 none, 1 optimizer state, 2 and gradients, 3 and weights")
      ->delimiter(',')
      ->check(whole_number(0, 3))
      ->group(limits);
  app.add_option("--recompute", f.recompute, "none, selective, full")
      ->delimiter(',')
      ->check(one_of({"none", "selective", "full"}))
      ->group(limits);
  app.add_flag("--even-stages", c.even_stages,
               "split the layers evenly over the pipeline, as programs do that cannot be told otherwise")
      ->group(limits);
  app.add_option("--schedule", c.schedule, "1f1b, interleaved, zb1p, zb2p, zbv; default: all")
      ->delimiter(',')
      ->check(one_of({"1f1b", "interleaved", "zb1p", "zb2p", "zbv"}))
      ->group(limits);
  app.add_option("--max-tp", c.tp_within.most, "no larger tensor-parallel degree")
      ->check(whole_number(1, 1'000'000'000))
      ->group(limits);
  app.add_option("--max-pp", c.pp_within.most, "no larger pipeline degree")
      ->check(whole_number(1, 1'000'000'000))
      ->group(limits);
  app.add_option("--max-cp", c.cp_within.most, "no larger context-parallel degree")
      ->check(whole_number(1, 1'000'000'000))
      ->group(limits);
  app.add_flag("--tp-across-hosts", c.tp_across_hosts, "also tensor parallel beyond one link domain")->group(limits);
  app.add_option("--spare", f.spare_percent, "percent of a device's memory that stays free; default 10")
      ->check(number_within(0, 99))
      ->group(limits);
  app.add_option("--constraint", f.words,
                 "in words: \"pp <= 8\", \"micro-batch >= 2\", \"10 % spare\", \"no tp across nodes\", \"no zero "
                 "bubble\"; several, or "
                 "separated by ';'")
      ->group(limits);
  app.add_flag("--runnable", c.runnable, "only what Trireme's own runtime has today: data-parallel replicas")
      ->group(limits);
  const char* const more = "Axes that are not searched unless they are named (beside plans without them)";
  app.add_option("--bucket-mb", f.bucket_mb,
                 "MiB of gradients that are reduced together, in place of the profile's own")
      ->delimiter(',')
      ->check(whole_number(1, 1'000'000))
      ->group(more);
  app.add_option("--shard-ranks", c.shard_ranks, "ZeRO 3 within so many ranks, copies between them (hybrid sharding)")
      ->delimiter(',')
      ->check(whole_number(2, 1'000'000'000))
      ->group(more);
  app.add_flag("--offload-optimizer", c.offload_optimizer, "optimizer state and step on the host")->group(more);
  app.add_flag("--offload-activations", c.offload_activations, "activations to the host's memory until backward")
      ->group(more);
  app.add_option("--compress", c.compression, "gradients sent in this share of their bytes (0.25)")
      ->delimiter(',')
      ->check(number_within(0.001, 1))
      ->group(more);
  const char* const output = "Output";
  app.add_option("--top", f.top, "how many layouts to show, the fastest plan of each; default 4")
      ->check(whole_number(1, 1000))
      ->group(output);
  app.add_flag("--pareto", f.pareto, "plans of which no other is both faster and smaller")->group(output);
  app.add_option("--explain", f.explain,
                 "time or memory: each term with its formula and values; constants: what they rest on, with source")
      ->check(one_of({"time", "memory", "constants"}))
      ->group(output);
  app.add_option(
         "--price", f.price,
         "price of one device for an hour: adds the cost of a step and of 1e12 tokens; default: the cluster file's")
      ->check(number_within(0, 1e9))
      ->group(output);
  app.add_flag("--json", f.as_json, "the same as JSON on standard output")->group(output);
}

void settle(SearchFlags& flags) {
  plan::Constraints& c = flags.constraints;
  for (const std::string& name : flags.recompute) {
    c.recompute.push_back(name == "none"   ? plan::Recompute::kNone
                          : name == "full" ? plan::Recompute::kFull
                                           : plan::Recompute::kSelective);
  }
  c.spare = flags.spare_percent / 100;
  for (const int64_t mb : flags.bucket_mb) c.bucket_bytes.push_back(mb << 20);
  for (const std::string& text : flags.words) add_constraints(c, text);
}

}  // namespace trireme::cli
