#include "rendezvous/nodelist.h"

#include <charconv>
#include <functional>

#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::rendezvous {
namespace {

constexpr size_t kMaxHosts = 100'000;

[[noreturn]] void malformed(std::string_view list, const std::string& what) {
  throw Error(ErrorKind::kConfig, str("[rendezvous.nodelist] '", list, "': ", what,
                                      "; expected Slurm's form, such as node[001-003,7],login1."));
}

int parse_int(std::string_view list, std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) malformed(list, str("'", text, "' is no number"));
  return value;
}

/// Commas outside brackets part the list.
std::vector<std::string_view> split_outside_brackets(std::string_view list) {
  std::vector<std::string_view> parts;
  size_t start = 0;
  int depth = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    if (i == list.size() || (list[i] == ',' && depth == 0)) {
      if (i > start) parts.push_back(list.substr(start, i - start));
      start = i + 1;
    } else if (list[i] == '[') {
      if (++depth > 1) malformed(list, "a bracket within a bracket");
    } else if (list[i] == ']') {
      if (--depth < 0) malformed(list, "']' without '['");
    }
  }
  if (depth != 0) malformed(list, "'[' without ']'");
  return parts;
}

/// Hands out every host of one part ("r[1-2]n[01-02]"), the last bracket running fastest, until `keep` says stop.
bool expand(std::string_view list, const std::string& done, std::string_view rest,
            const std::function<bool(const std::string&)>& keep) {
  const size_t open = rest.find('[');
  if (open == std::string_view::npos) return keep(done + std::string(rest));
  const size_t close = rest.find(']', open);
  const std::string prefix = done + std::string(rest.substr(0, open));
  std::string_view inside = rest.substr(open + 1, close - open - 1);
  if (inside.empty()) malformed(list, "empty brackets");
  while (!inside.empty()) {
    const size_t comma = inside.find(',');
    const std::string_view range = inside.substr(0, comma);
    inside = comma == std::string_view::npos ? std::string_view{} : inside.substr(comma + 1);
    const size_t dash = range.find('-');
    const std::string_view low = range.substr(0, dash);
    const int first = parse_int(list, low);
    const int last = dash == std::string_view::npos ? first : parse_int(list, range.substr(dash + 1));
    if (last < first) malformed(list, str("the range ", range, " runs backwards"));
    for (int i = first; i <= last; ++i) {
      std::string number = std::to_string(i);
      if (number.size() < low.size()) number.insert(0, low.size() - number.size(), '0');
      if (!expand(list, prefix + number, rest.substr(close + 1), keep)) return false;
    }
  }
  return true;
}

}  // namespace

std::string first_host(std::string_view nodelist) {
  std::string first;
  for (const std::string_view part : split_outside_brackets(nodelist)) {
    expand(nodelist, "", part, [&first](const std::string& host) {
      first = host;
      return false;
    });
    break;
  }
  return first;
}

std::vector<std::string> expand_nodelist(std::string_view nodelist) {
  std::vector<std::string> hosts;
  for (const std::string_view part : split_outside_brackets(nodelist)) {
    expand(nodelist, "", part, [&](const std::string& host) {
      if (hosts.size() >= kMaxHosts) malformed(nodelist, str("more than ", kMaxHosts, " hosts"));
      hosts.push_back(host);
      return true;
    });
  }
  return hosts;
}

std::vector<int> tasks_per_host(std::string_view text) {
  std::vector<int> counts;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    std::string_view part = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    int repeat = 1;
    if (const size_t open = part.find("(x"); open != std::string_view::npos && part.back() == ')') {
      const std::string_view digits = part.substr(open + 2, part.size() - open - 3);
      if (std::from_chars(digits.data(), digits.data() + digits.size(), repeat).ec != std::errc{}) return {};
      part = part.substr(0, open);
    }
    int tasks = 0;
    if (std::from_chars(part.data(), part.data() + part.size(), tasks).ec != std::errc{}) return {};
    if (tasks < 1 || repeat < 1 || counts.size() + static_cast<size_t>(repeat) > kMaxHosts) return {};
    counts.insert(counts.end(), static_cast<size_t>(repeat), tasks);
  }
  return counts;
}

}  // namespace trireme::rendezvous
