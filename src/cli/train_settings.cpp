#include "cli/train_settings.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

std::vector<Setting> train_settings() {
  return {
      {"recipe", std::string("resnet"), "what to train: resnet, vit or mlp", {"resnet", "vit", "mlp"}},
      {"ranks", int64_t{2}, "processes on this host, when started alone", {}, 1, 1024},
      {"epochs", int64_t{0}, "passes over the training images", {}, 1, 1e6},
      {"max_steps", int64_t{0}, "end after so many optimizer steps; 0: all epochs", {}, 0, 1e12},
      {"global_batch", int64_t{0}, "images per optimizer step, over all ranks", {}, 1, 1e9},
      {"seed", int64_t{1}, "of initialisation, order and augmentation", {}, 0, 9e15},
      {"run_dir", std::string(), "run folder; empty: runs/<date>-<job id>"},
      {"data.dir", std::string("/usr/share/datasets/fashion-mnist"),
       "folder of IDX files (train-images-idx3-ubyte[.gz], ...)"},
      {"data.flip", true, "flip every second training image left-right"},
      {"data.max_shift", int64_t{0}, "shift training images by up to so many pixels", {}, 0, 27},
      {"optim.learning_rate", 0.0, "at its peak", {}, 0, 1e3},
      {"optim.momentum", 0.9, "of SGD, with Nesterov's form", {}, 0, 1},
      {"optim.weight_decay", 0.0, "for weights, not for biases and norms", {}, 0, 1e3},
      {"optim.label_smoothing", 0.05, "share of the target spread over all classes", {}, 0, 1},
      {"optim.warmup", 0.2, "share of all steps in which the learning rate rises", {}, 0, 1},
      {"ddp.bucket_bytes", int64_t{25} << 20, "bytes of gradients per bucket", {}, 1, 1.1e12},
      {"ddp.gradients",
       std::string("arena"),
       "where gradients lie: arena, staged or bucket_view",
       {"arena", "staged", "bucket_view"}},
      {"checkpoint.every_epochs", int64_t{1}, "epochs between checkpoints", {}, 1, 1e6},
      {"checkpoint.keep", int64_t{2}, "checkpoints to keep", {}, 1, 1e6},
      {"log.every", int64_t{20}, "steps between lines of metrics.jsonl", {}, 1, 1e9},
  };
}

// Defaults that differ by recipe: measured on two cores (docs/build.md), resnet 91.9 to 92.4 %, vit 87 to 88 %.
void apply_recipe_defaults(Config& config) {
  const std::string recipe = config.get_string("recipe");
  const std::string place = "recipe " + recipe;
  const bool vit = recipe == "vit";
  config.set_default("epochs", recipe == "resnet" ? int64_t{8} : vit ? int64_t{10} : int64_t{3}, place);
  config.set_default("global_batch", int64_t{256}, place);
  config.set_default("optim.learning_rate", vit ? 2e-3 : recipe == "mlp" ? 0.05 : 0.2, place);
  config.set_default("optim.weight_decay", vit ? 0.05 : 5e-4, place);
}

struct Flag {
  const char* name;
  const char* key;
};
constexpr Flag kFlags[] = {{"--recipe", "recipe"},
                           {"--ranks", "ranks"},
                           {"--epochs", "epochs"},
                           {"--max-steps", "max_steps"},
                           {"--global-batch", "global_batch"},
                           {"--lr", "optim.learning_rate"},
                           {"--seed", "seed"},
                           {"--data", "data.dir"},
                           {"--run-dir", "run_dir"}};

std::string help_of(const Config& config, const char* key) {
  for (const Setting& setting : config.settings()) {
    if (setting.key == key) return setting.help;
  }
  return {};
}

std::string footer(const Config& config) {
  std::string text = "Settings for --set and files, with defaults (0: by recipe):\n";
  for (const Setting& setting : config.settings()) {
    text += str("  ", setting.key, " = ", to_json(setting.default_value),
                std::string(setting.key.size() < 26 ? 26 - setting.key.size() : 1, ' '), setting.help, "\n");
  }
  text +=
      "\nStrength: flags > environment (TRIREME_TRAIN_OPTIM_LEARNING_RATE, ...) > --config file > default.\n"
      "Example:  trireme train --recipe resnet --epochs 8 --run-dir runs/first\n"
      "Then:     trireme train --resume runs/first";
  return text;
}

// A run folder's own config.json: the values of the run to be continued, weaker than anything said now.
void load_run_config(Config& config, const std::string& run_dir) {
  const std::string path = (fs::path(run_dir) / "config.json").string();
  std::ifstream in(path);
  if (!in)
    throw Error(ErrorKind::kConfig,
                str("[train] ", path, " cannot be read; --resume needs the folder of an earlier run."));
  const auto document = nlohmann::json::parse(in, nullptr, false);
  if (document.is_discarded() || !document.is_object() || !document.contains("config") ||
      !document["config"].is_object()) {
    throw Error(ErrorKind::kConfig, str("[train] ", path, " is not the config.json of a run."));
  }
  config.load_json(document["config"].dump(), path);
}

}  // namespace

std::string newest_run_with_checkpoint(const std::string& parent) {
  std::error_code ignored;
  std::string newest;
  fs::file_time_type newest_time = fs::file_time_type::min();
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    const fs::path checkpoints = entry.path() / "checkpoints";
    if (!fs::is_directory(checkpoints, ignored)) continue;
    const auto time = fs::last_write_time(checkpoints, ignored);
    if (newest.empty() || time > newest_time) {
      newest = entry.path().string();
      newest_time = time;
    }
  }
  if (newest.empty()) {
    throw Error(ErrorKind::kConfig, str("[train] --resume: no run with a checkpoint below '", parent,
                                        "'; name its folder: --resume FOLDER."));
  }
  return newest;
}

std::optional<TrainCommand> parse_train_command(int argc, char** argv) {
  TrainCommand command{Config(train_settings()), std::nullopt, false};
  CLI::App app("Trains a built-in model on images, data-parallel over processes of this host.", "trireme train");
  app.footer(footer(command.config));
  std::vector<std::string> values(std::size(kFlags));
  for (size_t i = 0; i < std::size(kFlags); ++i)
    app.add_option(kFlags[i].name, values[i], help_of(command.config, kFlags[i].key));
  std::string file;
  std::string resume;
  std::vector<std::string> assignments;
  app.add_option("--config", file, "JSON file of settings");
  app.add_option("--set", assignments, "a.b=value, any setting below; may be repeated")->expected(1)->take_all();
  const auto* resume_option =
      app.add_option("--resume", resume, "continue the run in this folder (default: the newest under runs/)")
          ->expected(0, 1);
  app.add_flag("--json", command.json, "print the result as JSON on stdout");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    if (isatty(STDOUT_FILENO) >= 0) std::fputs(app.help().c_str(), stdout);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorKind::kConfig, str("[train] ", error.what(), ". 'trireme train --help' lists what there is."));
  }
  if (resume_option->count() > 0) {
    command.resume = resume.empty() ? newest_run_with_checkpoint("runs") : resume;
    load_run_config(command.config, *command.resume);
    command.config.set("run_dir", *command.resume, Origin::kFile, "--resume");
  }
  if (!file.empty()) command.config.load_file(file);
  command.config.load_environment("TRIREME_TRAIN_", ::environ);
  for (size_t i = 0; i < std::size(kFlags); ++i) {
    if (!values[i].empty())
      command.config.set_text(kFlags[i].key, values[i], Origin::kFlag, str("flag ", kFlags[i].name));
  }
  for (const std::string& assignment : assignments)
    command.config.set_assignment(assignment, Origin::kFlag, "flag --set");
  apply_recipe_defaults(command.config);
  return command;
}

}  // namespace trireme::cli
