#include "cli/train_job.h"

#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>

#include "base/json.h"
#include "base/str.h"
#include "base/torch/torch_compat.h"
#include "checkpoint/folder/files.h"
#include "checkpoint/folder/index.h"
#include "cli/progress_bar.h"
#include "cli/train_recipe.h"
#include "cli/train_records.h"
#include "comm/backends/backend_entry.h"
#include "launch/failure_report.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/comm/collectives.h"
#include "trireme/comm/init.h"
#include "trireme/data/idx.h"
#include "trireme/data/image_batch.h"
#include "trireme/data/sampler.h"
#include "trireme/parallel/ddp.h"
#include "trireme/profile/data_wait.h"
#include "trireme/rendezvous/job_env.h"
#include "trireme/rendezvous/store.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::atomic<int> g_stop_signal{0};
std::atomic<bool> g_second_signal_kills{false};

// A launcher may pass on what the terminal has sent to the rank already, and kills by itself; who has none gets its second signal at once.
void remember_signal(int signal) {
  if (g_stop_signal.exchange(signal) == 0 || !g_second_signal_kills.load()) return;
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

using Ddp = parallel::DistributedDataParallel<std::shared_ptr<models::Classifier>>;

/// One rank's training: what lives from the first step to the last.
class Training {
 public:
  Training(Config& config, const RunOptions& options)
      : config_(config),
        options_(options),
        recipe_(config.get_string("recipe")),
        run_dir_(options.run_dir),
        world_(comm::init()),
        train_(data::read_image_set(config.get_string("data.dir"), "train")),
        test_(data::read_image_set(config.get_string("data.dir"), "t10k")),
        stats_(data::pixel_stats(train_)),
        sampler_({.num_samples = train_.size,
                  .global_batch = config.get_int("global_batch"),
                  .seed = static_cast<uint64_t>(config.get_int("seed"))}) {
    torch::manual_seed(static_cast<uint64_t>(config.get_int("seed")));
    model_ = make_model(recipe_, train_);
    optimizer_ = make_optimizer(recipe_, config, model_->parameters());
    total_steps_ = sampler_.steps_per_epoch() * config.get_int("epochs");
    if (options.start != Start::kNew) restore();
    end_at(config, options.resumed_limit);
    ddp_ = std::make_unique<Ddp>(world_, model_, ddp_options());
    if (world_.rank() == 0) {
      records_ = std::make_unique<TrainRecords>(run_dir_, config_json(), step_, options.start != Start::kNew);
    }
    if (world_.rank() == 0 && step_ < last_step_) say_what_starts();
  }

  TrainResult run(Clock::time_point started) {
    TrainResult result;
    result.recipe = recipe_;
    result.ranks = world_.size();
    result.run_dir = run_dir_;
    result.start_s = seconds_since(started);
    const auto begin = Clock::now();
    ProgressBar bar(step_);
    model_->train();
    while (step_ < last_step_ && !stop_asked()) {
      train_step();
      const bool end_of_epoch = step_ % sampler_.steps_per_epoch() == 0;
      const bool due = step_ % config_.get_int("log.every") == 0 || end_of_epoch;
      // A run that ends between two lines shows what it has, but the window stays open: the resumed run goes on with it.
      if (due || step_ == last_step_) log_window(bar, due);
      if (world_.rank() == 0) bar.advance(step_);
      const int64_t epochs_done = step_ / sampler_.steps_per_epoch();
      if (end_of_epoch && step_ < last_step_ && epochs_done % config_.get_int("checkpoint.every_epochs") == 0) {
        evaluate_and_log(bar);
        save();
      }
    }
    result.training_s = seconds_since(begin);
    result.steps = step_;
    result.epochs = static_cast<double>(step_) / static_cast<double>(sampler_.steps_per_epoch());
    result.train_loss = last_loss_;
    result.interrupted = step_ < last_step_;
    result.stop_signal = result.interrupted ? static_cast<int>(stop_.item<int64_t>()) : 0;
    if (world_.rank() == 0) bar.finish();
    result.test_accuracy = result.interrupted ? -1 : evaluate_and_log(bar);
    save();
    return result;
  }

 private:
  [[nodiscard]] parallel::DdpOptions ddp_options() const {
    parallel::DdpOptions options;
    // BatchNorm statistics only matter in evaluation, and are sent once before it.
    options.broadcast_buffers = false;
    options.bucket_bytes = config_.get_int("ddp.bucket_bytes");
    options.first_bucket_bytes = std::min<int64_t>(options.first_bucket_bytes, options.bucket_bytes);
    parallel::set_ddp_option(options, "gradients", config_.get_string("ddp.gradients"));
    return options;
  }

  // All ranks must leave at the same step, whichever of them got the signal.
  bool stop_asked() {
    stop_.fill_(g_stop_signal.load());
    comm::all_reduce_max(world_, stop_).wait();
    return stop_.item<int64_t>() != 0;
  }

  at::Tensor images(const data::ImageSet& set, const std::vector<int64_t>& indices, const data::AugmentOptions& augment,
                    const data::BatchPlace& place) {
    at::Tensor x = at::empty({static_cast<int64_t>(indices.size()), 1, set.height, set.width});
    data::fill_images(set, indices, stats_, augment, place, {x.data_ptr<float>(), static_cast<size_t>(x.numel())});
    return x;
  }

  static at::Tensor labels(const data::ImageSet& set, const std::vector<int64_t>& indices) {
    at::Tensor y = at::empty({static_cast<int64_t>(indices.size())}, at::kLong);
    auto* out = y.data_ptr<int64_t>();
    for (const int64_t index : indices) *out++ = set.labels[static_cast<size_t>(index)];
    return y;
  }

  void train_step() {
    comm::set_step(static_cast<uint32_t>(step_ + 1));
    data::SampleSlice slice = sampler_.next(world_.rank(), world_.size());
    // A rank without samples at the end of an epoch takes part with one that does not count.
    const double weight = slice.indices.empty() ? 0.0 : 1.0;
    if (slice.indices.empty()) slice.indices.push_back(0);
    at::Tensor x;
    at::Tensor y;
    {
      const profile::DataWait waiting;
      x = images(train_, slice.indices, {config_.get_bool("data.flip"), config_.get_int("data.max_shift")},
                 {static_cast<uint64_t>(config_.get_int("seed")), step_, slice.first_slot});
      y = labels(train_, slice.indices);
    }

    const double rate = learning_rate_at(step_, total_steps_, config_.get_double("optim.warmup"),
                                         config_.get_double("optim.learning_rate"));
    learning_rate_ = rate;
    for (auto& group : optimizer_->param_groups()) group.options().set_lr(rate);
    optimizer_->zero_grad();
    const at::Tensor logits = ddp_->forward(x);
    const at::Tensor loss_sum =
        at::cross_entropy_loss(logits, y, {}, at::Reduction::Sum, -100, config_.get_double("optim.label_smoothing"));
    // The loss is a sum over all samples divided by their number; the gradients are averaged over ranks, hence the factor.
    (loss_sum * (weight * world_.size() / static_cast<double>(slice.global_count))).backward();
    optimizer_->step();
    ++step_;

    window_loss_ += loss_sum.item<double>() * weight;
    window_correct_ += weight * logits.argmax(1).eq(y).sum().item<double>();
    window_count_ += weight * static_cast<double>(slice.indices.size());
  }

  void log_window(ProgressBar& bar, bool close_window) {
    at::Tensor sums = at::tensor({window_loss_, window_correct_, window_count_}, at::kDouble);
    comm::all_reduce_sum(world_, sums).wait();
    const auto* values = sums.data_ptr<double>();
    last_loss_ = values[0] / values[2];
    const double accuracy = values[1] / values[2];
    const double rate = values[2] / seconds_since(window_start_);
    if (close_window) {
      window_loss_ = window_correct_ = window_count_ = 0;
      window_start_ = Clock::now();
    }
    if (world_.rank() != 0) return;
    const double epoch = static_cast<double>(step_) / static_cast<double>(sampler_.steps_per_epoch());
    char text[160];
    std::snprintf(text, sizeof(text), "epoch %.1f/%lld  loss %.4f  acc %.2f %%  %.0f images/s", epoch,
                  static_cast<long long>(config_.get_int("epochs")), last_loss_, accuracy * 100, rate);
    bar.update(step_, last_step_, text);
    const profile::Scalar scalars[] = {{"epoch", epoch},
                                       {"train/loss", last_loss_},
                                       {"train/accuracy", accuracy},
                                       {"train/learning_rate", learning_rate_},
                                       {"train/images_per_s", rate}};
    records_->add(step_, scalars);
  }

  // Each test image counts exactly once, whatever the number of ranks.
  double evaluate_and_log(ProgressBar& bar) {
    ddp_->sync_buffers();
    model_->eval();
    const torch::NoGradGuard no_grad;
    const data::Share share = data::share_of(test_.size, world_.rank(), world_.size());
    int64_t correct = 0;
    for (int64_t begin = share.begin; begin < share.end; begin += kEvalBatch) {
      std::vector<int64_t> indices;
      for (int64_t i = begin; i < std::min(share.end, begin + kEvalBatch); ++i) indices.push_back(i);
      correct +=
          model_->forward(images(test_, indices, {}, {})).argmax(1).eq(labels(test_, indices)).sum().item<int64_t>();
    }
    model_->train();
    at::Tensor total = at::tensor({correct}, at::kLong);
    comm::all_reduce_sum(world_, total).wait();
    const double accuracy = static_cast<double>(total.item<int64_t>()) / static_cast<double>(test_.size);
    if (world_.rank() == 0) {
      bar.finish();
      std::fprintf(stderr, "step %lld: test accuracy %.2f %%\n", static_cast<long long>(step_), accuracy * 100);
    }
    if (world_.rank() == 0) records_->add_test_accuracy(step_, accuracy);
    window_start_ = Clock::now();
    return accuracy;
  }

  [[nodiscard]] std::string checkpoint_root() const { return (fs::path(run_dir_) / "checkpoints").string(); }

  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> named_parameters() const {
    std::vector<std::pair<std::string, at::Tensor>> named;
    for (const auto& item : model_->named_parameters()) named.emplace_back(item.key(), item.value());
    return named;
  }

  // What each rank has added up since the last line of metrics: {ranks, 3}. Without it the first line after resuming would differ.
  [[nodiscard]] at::Tensor gather_windows() {
    const at::Tensor mine = at::tensor({window_loss_, window_correct_, window_count_}, at::kDouble);
    at::Tensor all = at::empty({world_.size(), 3}, at::kDouble);
    comm::all_gather_base(world_, all, mine).wait();
    return all;
  }

  void restore_windows(const at::Tensor& all) {
    // Another number of ranks: rank 0 takes them all, since only sums over ranks are shown.
    const bool same_ranks = all.size(0) == world_.size();
    if (!same_ranks && world_.rank() != 0) return;
    const at::Tensor mine = same_ranks ? all[world_.rank()] : all.sum(0);
    window_loss_ = mine[0].item<double>();
    window_correct_ = mine[1].item<double>();
    window_count_ = mine[2].item<double>();
  }

  void save() {
    ddp_->sync_buffers();
    const at::Tensor windows = gather_windows();
    std::exception_ptr failure;
    if (world_.rank() == 0) {
      try {
        write_checkpoint(windows);
      } catch (const std::exception&) {
        failure = std::current_exception();
      }
    }
    // The others wait here; without this word they would take rank 0 for lost.
    at::Tensor failed = at::full({1}, failure != nullptr ? 1 : 0, at::kLong);
    comm::all_reduce_max(world_, failed).wait();
    if (failure != nullptr) std::rethrow_exception(failure);
    if (failed.item<int64_t>() != 0) {
      wait_for_the_end_of_rank_zero();
      throw Error(ErrorKind::kIo,
                  str("[train] rank ", world_.rank(), '/', world_.size(), ": rank 0 could not save step ", step_,
                      ", so this rank ends too; the message of rank 0 says why."));
    }
  }

  // The launcher names the rank that ends first as the cause, and that must be rank 0. Its death notice says that it has named it; where there is
  // no such launcher, it has this long to end.
  static void wait_for_the_end_of_rank_zero() {
    constexpr std::chrono::seconds kMost{5};
    try {
      const rendezvous::JobStore job = rendezvous::open_job_store(rendezvous::detect_job_env(), kMost);
      (void)rendezvous::get_unless_dead(*job.store, *job.store, "train/never", kMost, "train.save");
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the notice, or none in time
    }
  }

  void write_checkpoint(const at::Tensor& windows) {
    checkpoint::State state;
    checkpoint::add_module_state(state, *model_);
    checkpoint::add_optimizer_state(state, *optimizer_, named_parameters());
    checkpoint::add_rng_state(state);
    state.tensors["train.window"] = windows;
    state.metadata["sampler.position"] = std::to_string(sampler_.position());
    state.metadata["step"] = std::to_string(step_);
    state.metadata["recipe"] = recipe_;
    checkpoint::SaveOptions options;
    options.keep_last = static_cast<int>(config_.get_int("checkpoint.keep"));
    checkpoint::save(checkpoint_root(), step_, state, options);
  }

  void restore() {
    const auto loaded = checkpoint::load_latest(checkpoint_root());
    if (!loaded && options_.start == Start::kRestart) {
      require_same_start({});
      if (world_.rank() == 0) say("restarted before there was a checkpoint: from the beginning");
      return;
    }
    if (!loaded) {
      throw Error(ErrorKind::kConfig,
                  str("[train] --resume: no complete checkpoint in ", checkpoint_root(), "; start without --resume."));
    }
    const auto& metadata = loaded->state.metadata;
    auto number = [&](const char* key) {
      const auto it = metadata.find(key);
      if (it == metadata.end())
        throw Error(ErrorKind::kIo, str("[train] ", loaded->path, " has no '", key, "'; it is of another program."));
      return std::strtoll(it->second.c_str(), nullptr, 10);
    };
    if (const auto it = metadata.find("recipe"); it != metadata.end() && it->second != recipe_) {
      throw Error(ErrorKind::kConfig,
                  str("[train] ", loaded->path, " is of recipe ", it->second, ", not ", recipe_, "."));
    }
    checkpoint::restore_module_state(loaded->state, *model_);
    checkpoint::restore_optimizer_state(loaded->state, *optimizer_, named_parameters());
    checkpoint::restore_rng_state(loaded->state);
    sampler_.set_position(number("sampler.position"));
    step_ = number("step");
    if (const auto it = loaded->state.tensors.find("train.window"); it != loaded->state.tensors.end())
      restore_windows(it->second);
    require_same_start(loaded->path);
    if (world_.rank() == 0)
      std::fprintf(stderr, "resumed at step %lld from %s\n", static_cast<long long>(step_), loaded->path.c_str());
  }

  // A rank that passed over a checkpoint it could not read, or found another folder, would go on from elsewhere. The broadcast of the
  // parameters at the start would hide that, and optimizer, order and learning rate would differ from then on.
  void require_same_start(const std::string& path) {
    const uint64_t index = path.empty() ? 0 : checkpoint::read_file(str(path, '/', checkpoint::kIndexName)).checksum;
    const at::Tensor mine = at::tensor({step_, sampler_.position(), static_cast<int64_t>(index)}, at::kLong);
    at::Tensor all = at::empty({world_.size(), 3}, at::kLong);
    comm::all_gather_base(world_, all, mine).wait();
    const auto* values = all.data_ptr<int64_t>();
    const auto start_of = [values](int rank) {
      const int64_t* row = values + int64_t{3} * rank;
      return str("rank ", rank, " at step ", row[0], ", position ", row[1], ", index ",
                 checkpoint::to_hex(static_cast<uint64_t>(row[2])));
    };
    for (int rank = 1; rank < world_.size(); ++rank) {
      if (std::equal(values, values + 3, values + int64_t{3} * rank)) continue;
      throw Error(
          ErrorKind::kMismatch,
          str("[train.resume] rank ", world_.rank(), "/", world_.size(), ": ", start_of(0), "; ", start_of(rank),
              "; all must continue from the same checkpoint. This rank read ", path.empty() ? "none" : path,
              ". Warnings about checkpoints that were passed over say why; repair or remove those, and name one "
              "folder: --resume FOLDER."));
    }
  }

  // A limit that was reached did what it was for; kept, it would end every resumed run before its first step.
  void end_at(Config& config, bool resumed_limit) {
    const int64_t limit = config.get_int("max_steps");
    const bool reached = resumed_limit && limit <= step_;
    if (reached) {
      config.set("max_steps", int64_t{0}, Origin::kFile, str("--resume: the limit of ", limit, " steps was reached"));
    }
    last_step_ = limit > 0 && !reached ? std::min(total_steps_, limit) : total_steps_;
    if (world_.rank() != 0) return;
    const std::string of_all = str("step ", total_steps_, ", the end of epoch ", config.get_int("epochs"));
    if (step_ >= total_steps_) {
      say(str("nothing is left to train: this is ", of_all, "; go on with a higher --epochs"));
    } else if (step_ >= last_step_) {
      say(str("nothing is left to train: --max-steps is ", limit, "; go on with a higher one, or with 0 to ", of_all));
    } else if (reached) {
      say(str("the earlier run's limit, --max-steps ", limit, ", is reached: going on to ", of_all,
              "; a new --max-steps ends before"));
    } else if (resumed_limit && last_step_ < total_steps_) {
      say(str("going on to step ", last_step_, ", the earlier run's --max-steps; 0 goes on to ", of_all));
    }
  }

  static void say(const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }

  [[nodiscard]] std::string config_json() const {
    std::string text = config_.to_json();
    if (options_.job.empty()) return text;
    return text.insert(text.find("\"config\""), str("\"job\": ", json_quote(options_.job), ",\n  "));
  }

  void say_what_starts() const {
    int64_t count = 0;
    for (const at::Tensor& parameter : model_->parameters()) count += parameter.numel();
    say(str("training ", recipe_, " (", grouped(count), " parameters) on ", world_.size(),
            world_.size() == 1 ? " rank, " : " ranks, ", grouped(train_.size), " images, steps ", grouped(step_ + 1),
            " to ", grouped(last_step_), "; run folder ", launch::short_path(run_dir_)));
  }

  static constexpr int64_t kEvalBatch = 500;

  const Config& config_;
  const RunOptions& options_;
  std::string recipe_;
  std::string run_dir_;
  comm::Group world_;
  data::ImageSet train_;
  data::ImageSet test_;
  data::PixelStats stats_;
  data::Sampler sampler_;
  std::shared_ptr<models::Classifier> model_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<Ddp> ddp_;
  std::unique_ptr<TrainRecords> records_;  ///< rank 0 only
  at::Tensor stop_ = at::zeros({1}, at::kLong);
  int64_t step_ = 0;
  int64_t total_steps_ = 0;  ///< what the learning rate is planned for
  int64_t last_step_ = 0;    ///< where this run ends
  double window_loss_ = 0;
  double window_correct_ = 0;
  double window_count_ = 0;
  double last_loss_ = 0;
  double learning_rate_ = 0;  ///< of the last step
  Clock::time_point window_start_ = Clock::now();
};

}  // namespace

std::string version_json() {
  std::string backends;
  for (const comm::BackendEntry& entry : comm::backend_entries()) {
    const comm::Availability availability = entry.available();
    backends +=
        str(backends.empty() ? "" : ", ", "{\"name\": ", json_quote(entry.name),
            ", \"ok\": ", availability.ok ? "true" : "false", ", \"reason\": ", json_quote(availability.reason), "}");
  }
  return str("{\"torch_built\": ", json_quote(compiled_torch_version()),
             ", \"torch_loaded\": ", json_quote(loaded_torch_version()), ", \"backends\": [", backends, "]}");
}

TrainResult run_training(Config& config, const RunOptions& options) {
  const auto started = Clock::now();
  g_second_signal_kills.store(options.job.empty());
  std::signal(SIGINT, remember_signal);
  std::signal(SIGTERM, remember_signal);
  torch::set_num_threads(1);
  try {
    Training training(config, options);
    return training.run(started);
  } catch (const c10::Error& error) {
    throw Error(kind_of(error), str("[train] LibTorch: ", error.what_without_backtrace()));
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::kOutOfMemory,
                "[train] there is not enough memory. Free some, or take a smaller global_batch or fewer ranks.");
  }
}

}  // namespace trireme::cli
