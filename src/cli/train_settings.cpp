#include "cli/train_settings.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/str.h"
#include "cli/flag_errors.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

// The recipe decides (recipe_defaults()); no value that a user may give, so that no message shows it.
constexpr double kByRecipe = -1;

std::vector<Setting> train_settings() {
  return {
      {"recipe", std::string("resnet"), "what to train: resnet, vit or mlp", {"resnet", "vit", "mlp"}},
      {"ranks", int64_t{2}, "processes on this host, when started alone", {}, 1, 4096},
      {"epochs", static_cast<int64_t>(kByRecipe), "passes over the training images", {}, 1, 1e6},
      {"max_steps",
       int64_t{0},
       "end after so many optimizer steps, counted from the run's first; 0: all epochs",
       {},
       0,
       1e12},
      {"global_batch", static_cast<int64_t>(kByRecipe), "images per optimizer step, over all ranks", {}, 1, 1e9},
      {"seed", int64_t{1}, "seed of initialisation, order and augmentation", {}, 0, 9e15},
      {"run_dir", std::string(), "run folder; empty: runs/<date>-<job id>"},
      {"data.dir", std::string("/usr/share/datasets/fashion-mnist"),
       "folder of IDX files (train-images-idx3-ubyte[.gz], ...)"},
      {"data.flip", true, "flip every second training image left-right"},
      {"data.max_shift", int64_t{0}, "shift training images by up to so many pixels", {}, 0, 27},
      {"optim.learning_rate",
       kByRecipe,
       "learning rate at its peak; rises linearly, then falls linearly to 0",
       {},
       0,
       1e3},
      {"optim.momentum", 0.9, "of SGD (resnet, mlp), Nesterov's form", {}, 0, 1},
      {"optim.weight_decay", kByRecipe, "of weights, not of biases and norms", {}, 0, 1e3},
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

constexpr std::array<const char*, 3> kRecipes = {"resnet", "vit", "mlp"};

// Defaults that differ by recipe, in the order of kRecipes: measured on two cores (docs/cli.md).
struct RecipeDefault {
  const char* key;
  std::array<JsonScalar, kRecipes.size()> values;
};
const std::vector<RecipeDefault>& recipe_defaults() {
  static const std::vector<RecipeDefault> table = {
      {"epochs", {int64_t{8}, int64_t{10}, int64_t{3}}},
      {"global_batch", {int64_t{256}, int64_t{256}, int64_t{256}}},
      {"optim.learning_rate", {0.2, 2e-3, 0.05}},
      {"optim.weight_decay", {5e-4, 0.05, 5e-4}},
  };
  return table;
}

void apply_recipe_defaults(Config& config) {
  const std::string& recipe = config.get_string("recipe");
  const auto which = static_cast<size_t>(std::find(kRecipes.begin(), kRecipes.end(), recipe) - kRecipes.begin());
  for (const RecipeDefault& row : recipe_defaults())
    config.set_default(row.key, row.values.at(which), "recipe " + recipe);
}

// "0.2 (vit 0.002, mlp 0.05)"
std::string default_text(const Setting& setting) {
  for (const RecipeDefault& row : recipe_defaults()) {
    if (setting.key != row.key) continue;
    std::string others;
    for (size_t i = 1; i < kRecipes.size(); ++i) {
      if (row.values[i] == row.values[0]) continue;
      others += str(others.empty() ? " (" : ", ", kRecipes[i], " ", to_json(row.values[i]));
    }
    return to_json(row.values[0]) + (others.empty() ? "" : others + ")");
  }
  return to_json(setting.default_value);
}

struct Flag {
  const char* name;
  const char* key;
  const char* value;
  const char* group;
};
constexpr const char* kWhat = "What to train";
constexpr const char* kHow = "How";
constexpr const char* kRun = "The run";
constexpr Flag kFlags[] = {{"--recipe", "recipe", "NAME", kWhat},
                           {"--data", "data.dir", "FOLDER", kWhat},
                           {"--epochs", "epochs", "N", kHow},
                           {"--max-steps", "max_steps", "N", kHow},
                           {"--global-batch", "global_batch", "N", kHow},
                           {"--lr", "optim.learning_rate", "X", kHow},
                           {"--seed", "seed", "N", kHow},
                           {"--ranks", "ranks", "N", kRun},
                           {"--run-dir", "run_dir", "FOLDER", kRun}};

std::string help_of(const Config& config, const char* key) {
  for (const Setting& setting : config.settings()) {
    if (setting.key == key) return setting.help;
  }
  return {};
}

constexpr size_t kHelpColumn = 52;

std::string footer(const Config& config) {
  std::string text = "Settings, for --set KEY=VALUE, the environment and files, with their defaults:\n";
  for (const Setting& setting : config.settings()) {
    std::string line = str("  ", setting.key, " = ", default_text(setting));
    if (line.size() < kHelpColumn) line.resize(kHelpColumn, ' ');
    text += str(line, "  ", setting.help, "\n");
  }
  text +=
      "\nStrength: flags > environment (TRIREME_TRAIN_OPTIM_LEARNING_RATE, ...) > --config file > default.\n"
      "Example:  trireme train --recipe resnet --epochs 8 --run-dir runs/first\n"
      "Then:     trireme train --resume runs/first\n"
      "A resumed run keeps the settings of its config.json, but for those said now. A --max-steps that it has reached "
      "is over:\n"
      "it goes on to all epochs, or to the new --max-steps.";
  return text;
}

constexpr const char* kEarlierRun = "the earlier run";

// A run folder's own config.json: the values of the run to be continued, weaker than anything said now.
void load_run_config(Config& config, const std::string& run_dir) {
  const std::string path = (fs::path(run_dir) / "config.json").string();
  std::ifstream in(path);
  if (!in)
    throw Error(ErrorKind::kConfig,
                str("[train] ", path, " cannot be read; --resume needs the folder of an earlier run."));
  // Ours is three levels deep; to write out a far deeper one again would pass the end of the stack.
  const auto shallow = [&path](int depth, nlohmann::json::parse_event_t /*event*/, nlohmann::json& /*parsed*/) {
    if (depth > 8) throw Error(ErrorKind::kConfig, str("[train] ", path, " is not the config.json of a run."));
    return true;
  };
  const auto document = nlohmann::json::parse(in, shallow, false);
  if (document.is_discarded() || !document.is_object() || !document.contains("config") ||
      !document["config"].is_object()) {
    throw Error(ErrorKind::kConfig, str("[train] ", path, " is not the config.json of a run."));
  }
  config.load_json(document["config"].dump(), path);
  // Where each value was first said stays known over any number of --resume.
  const nlohmann::json origins = document.value("origin", nlohmann::json::object());
  for (const auto& [key, place] : origins.items()) {
    if (place.is_string()) config.set_place_in_file(key, place.get<std::string>());
  }
}

// --resume says where the run lies; what names another folder contradicts it.
void refuse_another_folder(const Config& config, const std::string& resumed) {
  const std::string& said = config.get_string("run_dir");
  std::error_code ignored;
  if (said == resumed || fs::equivalent(said, resumed, ignored)) return;
  throw Error(ErrorKind::kConfig, str("[train] --resume ", resumed, " continues in that folder, and ",
                                      config.place("run_dir"), " names '", said, "'; leave one of the two out."));
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
  TrainCommand command{Config(train_settings()), std::nullopt, false, false, false};
  CLI::App app("Trains a built-in model on images, data-parallel over processes of this host.", "trireme train");
  app.footer(footer(command.config));
  std::vector<std::string> values(std::size(kFlags));
  for (size_t i = 0; i < std::size(kFlags); ++i)
    app.add_option(kFlags[i].name, values[i], help_of(command.config, kFlags[i].key))
        ->type_name(kFlags[i].value)
        ->group(kFlags[i].group);
  std::string file;
  std::string resume;
  std::vector<std::string> assignments;
  app.add_option("--config", file, "JSON file of settings")->type_name("FILE")->group(kHow);
  app.add_option("--set", assignments, "any setting below; may be repeated")
      ->expected(1)
      ->take_all()
      ->type_name("KEY=VALUE")
      ->group(kHow);
  const auto* resume_option =
      app.add_option("--resume", resume, "continue the run in this folder (default: the newest under runs/)")
          ->expected(0, 1)
          ->type_name("[FOLDER]")
          ->group(kRun);
  app.add_flag("--json", command.json, "print the result as JSON on stdout")->group(kRun);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw_flag_error(app, error, "train", "trireme train");
  }
  if (resume_option->count() > 0) {
    command.resume = resume.empty() ? newest_run_with_checkpoint("runs") : resume;
    load_run_config(command.config, *command.resume);
    command.resume_newest = resume.empty();
    command.config.set("run_dir", *command.resume, Origin::kFlag, "flag --resume");
  }
  // Marked, since the same file or flag may say it again.
  const std::string place_of_limit = command.config.place("max_steps");
  command.config.set_place_in_file("max_steps", kEarlierRun);
  if (!file.empty()) command.config.load_file(file);
  command.config.load_environment("TRIREME_TRAIN", ::environ);
  for (size_t i = 0; i < std::size(kFlags); ++i) {
    if (!values[i].empty())
      command.config.set_text(kFlags[i].key, values[i], Origin::kFlag, str("flag ", kFlags[i].name));
  }
  for (const std::string& assignment : assignments)
    command.config.set_assignment(assignment, Origin::kFlag, "flag --set");
  apply_recipe_defaults(command.config);
  if (command.resume) refuse_another_folder(command.config, *command.resume);
  if (command.resume && command.config.place("max_steps") == kEarlierRun) {
    command.resumed_limit = command.config.get_int("max_steps") > 0;
    command.config.set_place_in_file("max_steps", place_of_limit);
  }
  return command;
}

}  // namespace trireme::cli
