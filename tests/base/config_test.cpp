// Oracle: closed form; the documented order flag > environment > file > default, and the documented messages.
#include "base/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/nearest.h"
#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

Config sample() {
  return Config({{.key = "recipe", .default_value = std::string("resnet"), .help = "", .choices = {"resnet", "vit"}},
                 {.key = "optim.learning_rate", .default_value = 0.5, .help = "", .min = 0},
                 {.key = "data.global_batch", .default_value = int64_t{128}, .help = "", .min = 1, .max = 1000},
                 {.key = "data.flip", .default_value = true, .help = ""}});
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "(nothing was thrown)";
}

TEST(Config, StrongerOriginWinsWhateverTheOrder) {
  const char* environment[] = {"HOME=/", "TRIREME_TRAIN_OPTIM_LEARNING_RATE=0.25", "TRIREME_TRAIN_DATA_FLIP=off",
                               nullptr};
  const std::string file =
      "{\"recipe\": \"vit\",\n \"optim\": {\"learning_rate\": 0.125},\n\"data\": {\"global_batch\": 64, \"flip\": "
      "true}}";
  for (const bool flags_first : {false, true}) {
    Config config = sample();
    if (flags_first) config.set_text("data.global_batch", "32", Origin::kFlag, "flag --global-batch");
    if (flags_first) config.load_environment("TRIREME_TRAIN", environment);
    config.load_json(file, "train.json");
    if (!flags_first) config.load_environment("TRIREME_TRAIN", environment);
    if (!flags_first) config.set_text("data.global_batch", "32", Origin::kFlag, "flag --global-batch");
    EXPECT_EQ(config.get_int("data.global_batch"), 32);
    EXPECT_EQ(config.place("data.global_batch"), "flag --global-batch");
    EXPECT_EQ(config.get_double("optim.learning_rate"), 0.25);
    EXPECT_EQ(config.place("optim.learning_rate"), "environment TRIREME_TRAIN_OPTIM_LEARNING_RATE");
    EXPECT_FALSE(config.get_bool("data.flip"));
    EXPECT_EQ(config.get_string("recipe"), "vit");
    EXPECT_EQ(config.place("recipe"), "train.json:1");
  }
}

TEST(Config, AVariableThatIsSetToNothingCountsAsNotSet) {
  const char* environment[] = {"TRIREME_TRAIN_OPTIM_LEARNING_RATE=", "TRIREME_TRAIN_RECIPE=", nullptr};
  Config config = sample();
  config.load_environment("TRIREME_TRAIN", environment);
  EXPECT_EQ(config.get_double("optim.learning_rate"), 0.5);
  EXPECT_EQ(config.get_string("recipe"), "resnet");
  EXPECT_EQ(config.origin("recipe"), Origin::kDefault);
  const char* misspelt[] = {"TRIREME_TRAIN_OPTIM_LEARNIG_RATE=", nullptr};
  EXPECT_THAT(message_of([&] { config.load_environment("TRIREME_TRAIN", misspelt); }), HasSubstr("no such setting"));
}

TEST(Config, ReplacedDefaultStaysWeakerThanFile) {
  Config config = sample();
  config.load_json("{\"optim\": {\"learning_rate\": 1}}", "f");
  config.set_default("optim.learning_rate", 0.75, "default of recipe vit");
  config.set_default("data.global_batch", int64_t{256}, "default of recipe vit");
  EXPECT_EQ(config.get_double("optim.learning_rate"), 1.0);
  EXPECT_EQ(config.get_int("data.global_batch"), 256);
  EXPECT_EQ(config.place("data.global_batch"), "default of recipe vit");
}

TEST(Config, NamesPlaceAndNearestKey) {
  Config config = sample();
  EXPECT_EQ(message_of([&] { config.load_json("{\n\"optim\": {\n\"learing_rate\": 1}}", "train.json"); }),
            "[config] train.json:3: unknown key 'optim.learing_rate'; did you mean 'optim.learning_rate'?");
  EXPECT_EQ(message_of([&] { config.set_assignment("data.global_bach=3", Origin::kFlag, "flag --set"); }),
            "[config] flag --set data.global_bach: unknown key 'data.global_bach'; did you mean 'data.global_batch'?");
  // Nothing is near: the keys of its section, where there is such a section.
  EXPECT_EQ(message_of([&] { config.set_assignment("optim.lr=1", Origin::kFlag, "flag --set"); }),
            "[config] flag --set optim.lr: unknown key 'optim.lr'; there are optim.learning_rate");
  EXPECT_EQ(message_of([&] { config.set_assignment("xyz.abc=1", Origin::kFlag, "flag --set"); }),
            "[config] flag --set xyz.abc: unknown key 'xyz.abc'");
  const char* environment[] = {"TRIREME_TRAIN_DATA_FLIPP=1", nullptr};
  EXPECT_EQ(message_of([&] { config.load_environment("TRIREME_TRAIN", environment); }),
            "[config] environment TRIREME_TRAIN_DATA_FLIPP: no such setting; did you mean 'TRIREME_TRAIN_DATA_FLIP'?");
}

TEST(Config, RefusesWrongTypesAndValues) {
  Config config = sample();
  const auto set = [&](const char* assignment) {
    return message_of([&] { config.set_assignment(assignment, Origin::kFlag, "flag --set"); });
  };
  EXPECT_THAT(set("data.global_batch=many"), HasSubstr("is 'many'; a whole number is required (default 128)"));
  EXPECT_THAT(set("data.global_batch=1.5"), HasSubstr("a whole number is required"));
  EXPECT_THAT(set("data.global_batch="), HasSubstr("a whole number is required"));
  EXPECT_THAT(set("data.global_batch=0"), HasSubstr("a value from 1 to 1,000 is required"));
  EXPECT_THAT(set("optim.learning_rate=nan"), HasSubstr("a number is required"));
  EXPECT_THAT(set("optim.learning_rate=-1"), HasSubstr("a value from 0 to inf is required"));
  EXPECT_THAT(set("data.flip=maybe"), HasSubstr("true or false is required"));
  EXPECT_THAT(set("recipe=resnest"), HasSubstr("one of resnet, vit is required; did you mean 'resnet'?"));
  EXPECT_THAT(set("recipe"), HasSubstr("not of the form key=value"));
  EXPECT_THAT(message_of([&] { config.load_json("{\"data\": {\"global_batch\": \"64\"}}", "f"); }),
              HasSubstr("f:1: key 'data.global_batch' is '64'; a whole number"));
  EXPECT_THAT(message_of([&] { config.load_file("/does/not/exist"); }), HasSubstr("cannot be read"));
}

TEST(Config, NeverNamesADefaultThatIsRefusedItself) {
  Config config({{"epochs", int64_t{-1}, "decided later", {}, 1, 1e6}});
  EXPECT_EQ(message_of([&] { config.set_assignment("epochs=x", Origin::kFlag, "flag --set"); }),
            "[config] flag --set epochs: key 'epochs' is 'x'; a whole number is required");
  EXPECT_THAT(message_of([&] { config.set_assignment("epochs=0", Origin::kFlag, "flag --set"); }),
              HasSubstr("a value from 1 to 1,000,000 is required"));
}

TEST(Config, TellsWhereAFileIsNoJsonOnce) {
  Config config = sample();
  const std::string message = message_of([&] { config.load_json("{\"recipe\":\n", "c.json"); });
  EXPECT_THAT(message, HasSubstr("[config] c.json:2: it is not JSON: syntax error"));
  EXPECT_THAT(message, Not(AnyOf(HasSubstr("json.exception"), HasSubstr("line 2"))));
}

TEST(Grouped, PutsACommaBeforeEachThreeDigits) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-96314), "-96,314");
  EXPECT_EQ(grouped(9'000'000'000'000'000), "9,000,000,000,000,000");
}

TEST(Config, WritesWhatItReadsWithOrigins) {
  Config config = sample();
  config.set_text("optim.learning_rate", "0.1", Origin::kFlag, "flag --lr");
  const auto json = nlohmann::json::parse(config.to_json());
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["config"]["optim"]["learning_rate"], 0.1);
  EXPECT_EQ(json["origin"]["optim.learning_rate"], "flag --lr");
  EXPECT_EQ(json["origin"]["recipe"], "default");
  Config again = sample();
  again.load_json(json["config"].dump(), "config.json");
  EXPECT_EQ(again.get_double("optim.learning_rate"), 0.1);
}

TEST(EditDistance, CountsEdits) {
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("abcd", "acbd"), 1U);  // a swap is one
  const std::string known[] = {"ranks", "recipe"};
  EXPECT_EQ(nearest("rnaks", known), "ranks");
  EXPECT_EQ(nearest("zzzzzz", known), "");
}

}  // namespace
}  // namespace trireme
