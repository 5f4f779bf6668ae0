// Oracle: closed form. The texts are made of known events, cut, damaged and handed on in pieces of every size.
#include "trace/event_splitter.h"

#include <gtest/gtest.h>

#include <random>

#include "trace/trace_reader.h"

namespace trireme::trace {
namespace {

/// Gives `text` in pieces of at most `piece` bytes.
class Pieces : public ByteSource {
 public:
  Pieces(std::string text, size_t piece) : text_(std::move(text)), piece_(piece) {}
  size_t read(char* out, size_t bytes) override {
    const size_t n = std::min({bytes, piece_, text_.size() - at_});
    text_.copy(out, n, at_);
    at_ += n;
    return n;
  }
  [[nodiscard]] std::string fault() const override { return {}; }

 private:
  std::string text_;
  size_t piece_;
  size_t at_ = 0;
};

struct Outcome {
  std::vector<std::string> names;
  ReadResult result;
};

Outcome names_of(const std::string& text, size_t piece = SIZE_MAX) {
  Outcome outcome;
  outcome.result = read_events(
      std::make_unique<Pieces>(text, piece),
      [&outcome](const ChromeEvent& event, EventParser&, std::string_view) { outcome.names.emplace_back(event.name); });
  return outcome;
}

std::string event(const std::string& name) {
  return R"({"ph": "X", "name": ")" + name + R"(", "pid": 1, "tid": 1, "ts": 10, "dur": 5})";
}

const std::vector<std::string> kThree = {"a", "b", "c"};

TEST(Splitter, ReadsBothForms) {
  EXPECT_EQ(names_of("[" + event("a") + "," + event("b") + ",\n" + event("c") + "]").names, kThree);
  const Outcome object = names_of(R"({"schemaVersion": 1, "x": {"y": ["]", "}"]}, "traceEvents": [)" + event("a") +
                                  "," + event("b") + "," + event("c") + R"(], "traceName": "n"})");
  EXPECT_EQ(object.names, kThree);
  EXPECT_TRUE(object.result.notes.valid_json());
  EXPECT_EQ(object.result.notes.header.at("traceName"), "\"n\"");
  EXPECT_EQ(object.result.notes.header.at("x"), R"({"y": ["]", "}"]})");
}

TEST(Splitter, ReadsAByteOrderMarkAndNoEvents) {
  EXPECT_EQ(names_of("\xEF\xBB\xBF [" + event("a") + "]").names.size(), 1U);
  EXPECT_TRUE(names_of("[]").result.notes.valid_json());
  EXPECT_TRUE(names_of(R"({"traceEvents": []})").result.notes.valid_json());
}

TEST(Splitter, EveryPieceSizeGivesTheSame) {
  const std::string text =
      R"({"a": "\\\"", "traceEvents": [)" + event("q\\\"}{][\\\\") + " , " + event("b") + "\n,\n" + event("c") + "]}";
  for (size_t piece = 1; piece < text.size(); ++piece) {
    const Outcome outcome = names_of(text, piece);
    EXPECT_EQ(outcome.names, (std::vector<std::string>{"q\"}{][\\", "b", "c"})) << piece;
    EXPECT_TRUE(outcome.result.notes.valid_json()) << piece;
  }
}

// A file that was cut anywhere gives the events that are whole, and says that it is cut.
TEST(Splitter, CutAtEveryByte) {
  const std::string head = R"({"schemaVersion": 1, "traceEvents": [)";
  const std::string text = head + event("a") + ", " + event("b") + ", " + event("c") + "]}";
  std::vector<size_t> ends;  // of the events
  for (size_t at = text.find('}'); ends.size() < 3; at = text.find('}', at + 1)) ends.push_back(at + 1);
  for (size_t size = 0; size < text.size(); ++size) {
    const Outcome outcome = names_of(text.substr(0, size));
    size_t whole = 0;
    while (whole < 3 && ends[whole] <= size) ++whole;
    EXPECT_EQ(outcome.names,
              std::vector<std::string>(kThree.begin(), kThree.begin() + static_cast<std::ptrdiff_t>(whole)))
        << size;
    EXPECT_FALSE(outcome.result.notes.valid_json()) << size;
    if (size > 0) {
      EXPECT_TRUE(outcome.result.notes.cut) << size;
    }
    EXPECT_EQ(outcome.result.notes.num_damaged, 0U) << size;
  }
}

TEST(Splitter, FindsTheEventsAroundADamagedOne) {
  for (const std::string broken : {
           R"({"ph": "X", "name": "{"device": "cpu"}(12): run", "pid": 1, "tid": 1, "ts": 10, "dur": 5})",
           R"({"ph": "X", "name": "say "hi", "pid": 1, "tid": 1, "ts": 10})",  // an odd number of quotes
           "{\"ph\": \"X\", \"name\": \"two\nlines\", \"pid\": 1, \"tid\": 1, \"ts\": 10}",
           R"({"ph": "X", "name": "x" "pid": 1})",
           R"({"ph": "X", "name": "x", "args": {"a": [1, 2}})",
           R"({"ph" "X"})",
       }) {
    const Outcome outcome = names_of("[" + event("a") + ", " + broken + ", " + event("b") + "]");
    EXPECT_EQ(outcome.names, (std::vector<std::string>{"a", "b"})) << broken;
    EXPECT_GE(outcome.result.notes.num_damaged, 1U) << broken;
    EXPECT_EQ(outcome.result.notes.damages.at(0).offset, event("a").size() + 3) << broken;
    EXPECT_FALSE(outcome.result.notes.cut) << broken;
  }
}

TEST(Splitter, NamesCommasThatAreNotJson) {
  const Outcome leading = names_of("[," + event("a") + "]");
  EXPECT_EQ(leading.names.size(), 1U);
  EXPECT_EQ(leading.result.notes.damages.at(0).what, "a comma without an event before it");
  EXPECT_EQ(leading.result.notes.damages.at(0).offset, 1U);
  EXPECT_EQ(names_of("[" + event("a") + ",]").result.notes.damages.at(0).what, "a comma without an event behind it");
  EXPECT_EQ(names_of("[" + event("a") + event("b") + "]").result.notes.damages.at(0).what,
            "no comma between two events");
}

TEST(Splitter, SaysWhatIsNoTrace) {
  EXPECT_EQ(describe_damage(names_of("").result), std::vector<std::string>{"is empty"});
  for (const std::string text : {"hello", "\x1f\x8b", R"({"a": 1})", "\"x\"", "}"}) {
    const Outcome outcome = names_of(text);
    EXPECT_FALSE(outcome.result.notes.is_trace) << text;
    EXPECT_FALSE(describe_damage(outcome.result).empty()) << text;
  }
}

TEST(Splitter, GivesUpInAFileFullOfDamage) {
  std::string text = "[";
  for (int i = 0; i < 3000; ++i) text += R"({"ph" "X"}, )";
  const Outcome outcome = names_of(text + event("a") + "]");
  EXPECT_TRUE(outcome.result.notes.gave_up);
  EXPECT_EQ(outcome.result.notes.num_damaged, kMaxDamages);
  EXPECT_EQ(outcome.result.notes.damages.size(), kKeptDamages);
}

TEST(Splitter, AnEventLongerThanTheBuffer) {
  const std::string name(3'000'000, 'x');
  EXPECT_EQ(names_of("[" + event("a") + "," + event(name) + "," + event("c") + "]").names,
            (std::vector<std::string>{"a", name, "c"}));
  const Outcome too_long =
      names_of("[" + event("a") + "," + event(std::string(kMaxEventBytes + 1, 'x')) + "," + event("c") + "]");
  EXPECT_EQ(too_long.names, (std::vector<std::string>{"a", "c"}));
  EXPECT_EQ(too_long.result.notes.num_damaged, 1U);
}

// Whatever is done to a file, every event that is given is one of the file's, or none; and it ends.
TEST(Splitter, MutationsNeverMakeMoreEvents) {
  std::string text = "[";
  for (int i = 0; i < 20; ++i) text += event("name" + std::to_string(i)) + (i < 19 ? ",\n" : "]");
  std::mt19937 random(11);
  const std::string bytes =
      "{}[]\",:\\ \n\x01\xff"
      "09ae";
  uint64_t valid = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    std::string mutated = text;
    for (uint32_t i = random() % 4; i > 0; --i) {
      const size_t at = random() % mutated.size();
      switch (random() % 3) {
        case 0:
          mutated[at] = bytes[random() % bytes.size()];
          break;
        case 1:
          mutated.erase(at, random() % 40);
          break;
        default:
          mutated.insert(at, 1, bytes[random() % bytes.size()]);
      }
      if (mutated.empty()) mutated = "[";
    }
    const Outcome outcome = names_of(mutated, 1 + random() % 300);
    EXPECT_LE(outcome.names.size(), 24U) << mutated;
    if (outcome.result.notes.valid_json()) ++valid;
  }
  EXPECT_GT(valid, 2000U);
  EXPECT_LT(valid, 18'000U);
}

}  // namespace
}  // namespace trireme::trace
