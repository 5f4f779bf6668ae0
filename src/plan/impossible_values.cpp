#include "plan/impossible_values.h"

#include <algorithm>

#include "base/str.h"
#include "plan/search_parts.h"

namespace trireme::plan {
namespace {

class Finder {
 public:
  Finder(const Constraints& constraints, const ModelNumbers& model, const TrainingNumbers& training, int64_t devices,
         int64_t common, int domain)
      : c_(constraints),
        model_(model),
        devices_(devices),
        common_(common),
        domain_(domain),
        batch_(static_cast<int64_t>(training.global_batch)),
        sequence_(static_cast<int64_t>(training.sequence)),
        layers_(static_cast<int64_t>(model.layers)) {}

  std::vector<std::string> run() {
    for (const int64_t v : c_.dp) {
      if (all_devices("--dp", v) && alike()) divides("--dp", v, batch_, "global batch of ");
    }
    for (const int64_t v : c_.tp) tensor(v);
    for (const int64_t v : c_.pp) {
      if (all_devices("--pp", v) && layers_ > 0 && v > layers_)
        add(str("--pp ", v, " is more than the ", layers_, " layers"));
    }
    for (const int64_t v : c_.cp) {
      if (each_kind("--cp", v)) divides("--cp", v, sequence_, "sequence length of ");
    }
    for (const int64_t v : c_.ep) experts(v);
    for (const int64_t v : c_.micro_batch) divides("--micro-batch", v, batch_, "global batch of ");
    for (const int64_t v : c_.virtual_stages) virtual_stages(v);
    for (const int64_t v : c_.shard_ranks) all_devices("--shard-ranks", v);
    if (!model_.operators.empty() && alike() && batch_ % devices_ != 0)
      add(str("a network described by operators is split by data only, and its ", devices_,
              " devices do not divide the global batch of ", batch_));
    if (lines_.empty() && alike()) together();
    return std::move(lines_);
  }

 private:
  [[nodiscard]] bool alike() const { return common_ == devices_; }
  void add(std::string line) { lines_.push_back(std::move(line)); }

  bool divides(const char* flag, int64_t value, int64_t whole, const char* what, const char* unit = "") {
    if (whole <= 0 || whole % value == 0) return true;
    add(str(flag, " ", value, " does not divide the ", what, whole, unit));
    return false;
  }
  bool all_devices(const char* flag, int64_t value) { return divides(flag, value, devices_, "", " devices"); }
  bool each_kind(const char* flag, int64_t value) {
    return alike() ? all_devices(flag, value)
                   : divides(flag, value, common_, "", ", which the devices of each kind of hosts are a multiple of");
  }

  void tensor(int64_t v) {
    if (!each_kind("--tp", v)) return;
    if (v > domain_ && !c_.tp_across_hosts)
      return add(
          str("--tp ", v, " is more than the ", domain_, " devices of one link domain (--tp-across-hosts allows it)"));
    for (int i = 0; i < model_.num_kinds; ++i) {
      const LayerNumbers& layer = model_.kinds[i];
      if (!divides("--tp", v, static_cast<int64_t>(layer.heads), "", " attention heads") ||
          !divides("--tp", v, static_cast<int64_t>(layer.ffn), "feed-forward width of "))
        return;
    }
    divides("--tp", v, sequence_, "sequence length of ");
  }

  void experts(int64_t v) {
    if (v == 1) return;
    if (!alike()) return add(str("--ep ", v, ": expert parallelism is not searched on hosts of different kinds"));
    bool any = false;
    for (int i = 0; i < model_.num_kinds; ++i) {
      const auto number = static_cast<int64_t>(model_.kinds[i].experts);
      any = any || number > 0;
      if (!divides("--ep", v, number, "", " experts of a layer")) return;
    }
    if (!any) return add(str("--ep ", v, ": the model has no experts"));
    if (all_devices("--ep", v) && c_.pp.size() == 1 && devices_ % c_.pp.front() == 0)
      divides("--ep", v, devices_ / c_.pp.front(), "", " devices of a pipeline stage");
  }

  void virtual_stages(int64_t v) {
    if (v == 1) return;
    if (!alike()) return add(str("--virtual-stages ", v, ": not searched on hosts of different kinds"));
    std::vector<int64_t> degrees = c_.pp.empty() ? divisors(devices_) : c_.pp;
    std::erase_if(degrees, [&](int64_t pp) { return pp < 2 || !c_.pp_within.holds(pp) || devices_ % pp != 0; });
    if (degrees.empty()) return add(str("--virtual-stages ", v, " needs a pipeline, and pp is 1"));
    // Embedding and head may take a place each.
    if (std::none_of(degrees.begin(), degrees.end(),
                     [&](int64_t pp) { return layers_ % (pp * v) == 0 || (layers_ + 2) % (pp * v) == 0; })) {
      add(str("--virtual-stages ", v, " x pp ", join(degrees), ": the ", layers_, " layers are no multiple of ",
              degrees.size() == 1 ? "it" : "any of these"));
    }
  }

  /// Degrees whose product does not divide the devices; batches that they leave no whole number of micro-batches of.
  void together() {
    struct Named {
      const char* flag;
      const std::vector<int64_t>& values;
    };
    const Named given[] = {{"--dp", c_.dp}, {"--tp", c_.tp}, {"--pp", c_.pp}, {"--cp", c_.cp}};
    std::vector<int64_t> products = {1};
    std::string names;
    bool all = true;
    for (const Named& one : given) {
      all = all && !one.values.empty();
      if (one.values.empty()) continue;
      names += str(names.empty() ? "" : " x ", one.flag, " ", join(one.values));
      std::vector<int64_t> next;
      for (const int64_t product : products) {
        for (const int64_t value : one.values) {
          if (devices_ % product == 0) next.push_back(product * value);
        }
      }
      std::sort(next.begin(), next.end());
      next.erase(std::unique(next.begin(), next.end()), next.end());
      products = std::move(next);
    }
    const auto fits = [&](int64_t product) { return all ? product == devices_ : devices_ % product == 0; };
    if (std::none_of(products.begin(), products.end(), fits)) {
      return add(str(names, products.size() == 1 ? str(" = ", products.front()) : std::string(),
                     all ? " is not the " : " does not divide the ", devices_, " devices"));
    }
    std::vector<int64_t> dps = c_.dp;
    std::string dp_name = "--dp";
    if (dps.empty() && c_.tp.size() == 1 && c_.pp.size() == 1 && c_.cp.size() == 1) {
      dps = {devices_ / c_.tp.front() / c_.pp.front() / c_.cp.front()};
      dp_name = "what the other degrees leave for dp,";
    }
    if (dps.empty()) return;
    const std::vector<int64_t> sizes = c_.micro_batch.empty() ? std::vector<int64_t>{1} : c_.micro_batch;
    for (const int64_t dp : dps) {
      for (const int64_t size : sizes) {
        if (batch_ % (dp * size) == 0) return;
      }
    }
    add(str(dp_name, " ", join(dps), c_.micro_batch.empty() ? std::string() : str(" x --micro-batch ", join(sizes)),
            " does not divide the global batch of ", batch_));
  }

  const Constraints& c_;
  const ModelNumbers& model_;
  int64_t devices_, common_;
  int domain_;
  int64_t batch_, sequence_, layers_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> impossible_values(const Constraints& constraints, const ModelNumbers& model,
                                           const TrainingNumbers& training, int64_t devices, int64_t common,
                                           int domain) {
  return Finder(constraints, model, training, devices, common, domain).run();
}

}  // namespace trireme::plan
