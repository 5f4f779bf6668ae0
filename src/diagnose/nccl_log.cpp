#include "diagnose/nccl_log.h"

#include "diagnose/scan.h"

namespace trireme::diagnose {
namespace {

/// "[1,3]<stdout>:node-01:29881:30401" or "node-01:29881:30401".
bool parse_process(std::string_view word, NcclLine& line) {
  const size_t second = word.rfind(':');
  if (second == std::string_view::npos || second == 0) return false;
  const size_t first = word.rfind(':', second - 1);
  if (first == std::string_view::npos || first == 0) return false;
  const auto pid = whole_number(word.substr(first + 1, second - first - 1));
  const auto tid = whole_number(word.substr(second + 1));
  if (!pid || !tid || *pid < 0 || *tid < 0) return false;
  std::string_view host = word.substr(0, first);
  const size_t front = host.find_last_of(":>]");
  if (front != std::string_view::npos) host.remove_prefix(front + 1);
  if (host.empty()) return false;
  line.host = host;
  line.pid = *pid;
  line.tid = *tid;
  return true;
}

}  // namespace

std::optional<int> rank_in_front(std::string_view line) {
  line = trimmed(line);
  if (line.empty()) return std::nullopt;
  const auto rank = [](std::string_view digits) -> std::optional<int> {
    if (!all_digits(digits) || digits.size() > 7) return std::nullopt;
    return leading_number<int>(digits);
  };
  if (line.front() == '[') {
    const std::string_view inner = until(line.substr(1), "]");
    if (inner.size() + 2 >= line.size()) return std::nullopt;
    const char next = line[inner.size() + 2];
    const size_t comma = inner.find(',');
    if (next == '<' && comma != std::string_view::npos) return rank(inner.substr(comma + 1));  // mpirun --tag-output
    if (next != ':') return std::nullopt;
    if (inner.starts_with("rank")) return rank(inner.substr(4));     // trireme run, and torch's own log lines
    if (inner.starts_with("default")) return rank(inner.substr(7));  // torchrun: role and local rank
    return std::nullopt;
  }
  const std::string_view number = until(line, ":");  // srun --label
  if (number.size() + 1 < line.size() && line[number.size() + 1] == ' ') return rank(number);
  return std::nullopt;
}

std::optional<NcclLine> parse_nccl_line(std::string_view text) {
  size_t at = text.find("NCCL ");
  if (at == std::string_view::npos) return std::nullopt;
  NcclLine line;
  if (text.substr(at).starts_with("NCCL version ")) {
    // Printed by one rank of the job without host and process; text before it is a launcher's.
    line.level = "version";
    line.text = trimmed(text.substr(at + 13));
    line.prefix_rank = rank_in_front(text);
    return line;
  }
  if (at == 0 || text[at - 1] != ' ') return std::nullopt;
  const std::string_view rest = text.substr(at + 5);
  line.level = until(rest, " ");
  if (line.level.empty() || line.level.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") != std::string_view::npos)
    return std::nullopt;
  line.text = trimmed(rest.substr(line.level.size()));
  bool found = false;
  for (const std::string_view word : words(text.substr(0, at), 32)) {
    if (!found) {
      found = parse_process(word, line);
    } else if (word.starts_with('[')) {
      line.device = leading_number<int>(word.substr(1));
    } else {
      line.source = word;
    }
  }
  // A warning whose front was cut off still says what went wrong; of whom is not known.
  if (!found && line.level != "WARN") return std::nullopt;
  line.prefix_rank = rank_in_front(text);
  return line;
}

NcclDevices parse_nccl_devices(std::string_view text) {
  NcclDevices found;
  if (const auto oob = after(text, "OOB ")) found.oob = until(*oob, ":");
  text = text.substr(0, text.find("; OOB"));
  constexpr size_t kMost = 256;
  constexpr size_t kMostDevices = 64;
  constexpr size_t kLongestName = 64;
  for (const std::string_view word : words(text, kMost)) {
    if (found.devices.size() == kMostDevices) break;
    const size_t close = word.find(']');
    if (!word.starts_with('[') || close == std::string_view::npos) continue;
    if (!all_digits(word.substr(1, close - 1))) continue;  // "[RO]": relaxed ordering
    const std::string_view device = word.substr(close + 1);
    if (device.size() > 2 * kLongestName) continue;
    const size_t slash = device.find('/');
    if (slash == std::string_view::npos) {
      found.devices.push_back(until(device, ":"));  // an interface and its address
      continue;
    }
    const std::string_view kind = device.substr(slash);
    found.infiniband |= kind.starts_with("/IB");
    found.roce |= kind.starts_with("/RoCE");
    found.devices.push_back(device.substr(0, slash));
  }
  return found;
}

}  // namespace trireme::diagnose
