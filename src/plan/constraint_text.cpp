#include "plan/constraint_text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

constexpr int64_t kMost = 1'000'000'000;
constexpr int64_t kHighestZero = 3;

/// Words, numbers and signs: "micro-batch>=2" -> "micro-batch", ">=", "2".
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  const auto is_sign = [](char c) { return c == '<' || c == '>' || c == '='; };
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++i;
      continue;
    }
    std::string word;
    if (c == '%' || c == ',') {
      word = c;
      ++i;
    } else if (is_sign(c)) {
      while (i < text.size() && is_sign(text[i])) word += text[i++];
    } else {
      while (i < text.size() && std::isspace(static_cast<unsigned char>(text[i])) == 0 && text[i] != '%' &&
             text[i] != ',' && !is_sign(text[i])) {
        const char low = static_cast<char>(std::tolower(static_cast<unsigned char>(text[i++])));
        word += low == '_' ? '-' : low;
      }
    }
    words.push_back(std::move(word));
  }
  return words;
}

template <typename Number>
std::optional<Number> number_of(const std::string& word) {
  Number value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

/// One constraint on one axis, whatever holds the axis' values.
struct Comparison {
  std::string text;  ///< as it was written
  std::string sign;
  std::vector<int64_t> values;

  [[nodiscard]] bool holds(int64_t value) const {
    if (sign == "=" || sign == "==") return std::find(values.begin(), values.end(), value) != values.end();
    const int64_t limit = values.front();
    return sign == "<=" ? value <= limit : sign == "<" ? value < limit : sign == ">=" ? value >= limit : value > limit;
  }
};

/// The values of a short axis that a comparison leaves; those that were left before, where there are some.
template <typename T>
void keep(std::vector<T>& values, const std::vector<T>& all, const Comparison& comparison) {
  std::vector<T> left;
  for (const T value : values.empty() ? all : values) {
    if (comparison.holds(value)) left.push_back(value);
  }
  if (left.empty()) {  // which would mean any
    throw Error(ErrorKind::kConfig,
                str("[plan] --constraint '", comparison.text,
                    "' leaves nothing of what the other flags allow: ", join(values), ". Take one of them back."));
  }
  values = std::move(left);
}

void limit(std::vector<int64_t>& values, Bounds& within, const Comparison& comparison) {
  if (comparison.sign == "=" || comparison.sign == "==") {
    keep(values, comparison.values, comparison);
    return;
  }
  const int64_t n = comparison.values.front();
  if (comparison.sign == "<=" || comparison.sign == "<") {
    const int64_t most = std::max<int64_t>(1, comparison.sign == "<" ? n - 1 : n);
    within.most = within.most == 0 ? most : std::min(within.most, most);
  } else {
    within.least = std::max(within.least, comparison.sign == ">" ? n + 1 : n);
  }
}

/// False where there is no such axis.
bool limit_axis(Constraints& c, const std::string& axis, const Comparison& comparison) {
  if (axis == "dp")
    limit(c.dp, c.dp_within, comparison);
  else if (axis == "tp")
    limit(c.tp, c.tp_within, comparison);
  else if (axis == "pp")
    limit(c.pp, c.pp_within, comparison);
  else if (axis == "cp")
    limit(c.cp, c.cp_within, comparison);
  else if (axis == "ep")
    limit(c.ep, c.ep_within, comparison);
  else if (axis == "micro-batch" || axis == "microbatch")
    limit(c.micro_batch, c.micro_batch_within, comparison);
  else if (axis == "zero")
    keep(c.zero_stage, {0, 1, 2, 3}, comparison);
  else if (axis == "virtual-stages")
    keep(c.virtual_stages, searched_virtual_stages(), comparison);
  else
    return false;
  return true;
}

bool is_sign(const std::string& word) {
  return word == "<=" || word == "<" || word == ">=" || word == ">" || word == "=" || word == "==";
}

std::optional<Comparison> comparison_of(const std::vector<std::string>& words) {
  if (words.size() < 3 || !is_sign(words[1])) return std::nullopt;
  Comparison comparison{join(words, " "), words[1], {}};
  const bool list = words[1].front() == '=';
  for (size_t i = 2; i < words.size(); ++i) {
    if (i % 2 == 1) {
      if (words[i] != "," || !list || i + 1 == words.size()) return std::nullopt;
      continue;
    }
    const std::optional<int64_t> value = number_of<int64_t>(words[i]);
    if (!value || *value < (words[0] == "zero" ? 0 : 1) || *value > (words[0] == "zero" ? kHighestZero : kMost))
      return std::nullopt;
    comparison.values.push_back(*value);
  }
  return comparison;
}

bool is_place(const std::string& word) {
  for (const char* known : {"node", "nodes", "host", "hosts", "domain", "domains"}) {
    if (word == known) return true;
  }
  return false;
}

bool add_spare(Constraints& c, std::vector<std::string> words) {
  if (words.size() == 3 && words[0] == "spare") std::rotate(words.begin(), words.begin() + 1, words.end());
  if (words.size() != 3 || words[2] != "spare" || (words[1] != "%" && words[1] != "percent")) return false;
  const std::optional<double> percent = number_of<double>(words[0]);
  if (!percent || !(*percent >= 0 && *percent <= 99)) return false;
  c.spare = *percent / 100;
  return true;
}

/// What begins with "no".
bool add_refusal(Constraints& c, const std::vector<std::string>& words) {
  const std::string what = join(std::vector<std::string>(words.begin() + 1, words.end()), " ");
  if (words.size() == 2 && words[1] == "zero") return limit_axis(c, "zero", {"no zero", "=", {0}});
  if (what == "interleaving") return limit_axis(c, "virtual-stages", {"no interleaving", "=", {1}});
  if (what == "zero bubble") {
    c.schedule = {"1f1b", "interleaved"};
    return true;
  }
  if (what == "recomputation" || what == "recompute") {
    c.recompute = {Recompute::kNone};
    return true;
  }
  return words.size() == 2 && words[1] != "dp" && limit_axis(c, words[1], {"no " + words[1], "<=", {1}});
}

bool add_words(Constraints& c, const std::vector<std::string>& words) {
  if (add_spare(c, words)) return true;
  const std::string all = join(words, " ");
  const bool refused = words.front() == "no";
  const size_t at = refused ? 1 : 0;
  if (words.size() == at + 3 && words[at] == "tp" && words[at + 1] == "across" && is_place(words[at + 2])) {
    c.tp_across_hosts = !refused;
    return true;
  }
  if (refused) return add_refusal(c, words);
  if (all == "even stages") return c.even_stages = true;
  if (all == "runnable") return c.runnable = true;
  const std::optional<Comparison> comparison = comparison_of(words);
  return comparison && limit_axis(c, words.front(), *comparison);
}

}  // namespace

void add_constraints(Constraints& constraints, std::string_view text) {
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(';', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    const std::vector<std::string> words = words_of(part);
    if (words.empty() || !add_words(constraints, words)) {
      throw Error(ErrorKind::kConfig,
                  str("[plan] --constraint '", part,
                      "' is not understood; one of these is required: 'pp <= 8', 'tp = 2,4', 'micro-batch >= 2', 'zero "
                      "< 3' (and dp, cp, ep, virtual-stages), '10 % spare', 'no tp across nodes', 'no cp', 'no "
                      "interleaving', 'no zero bubble', 'no recomputation', 'even stages', 'runnable'. Correct it."));
    }
    begin = end + 1;
  }
}

}  // namespace trireme::plan
