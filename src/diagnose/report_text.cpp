#include <algorithm>

#include "base/str.h"
#include "diagnose/excerpt.h"
#include "diagnose/report.h"

namespace trireme::diagnose {
namespace {

constexpr size_t kLongestText = 4000;
constexpr size_t kShownEvidence = 3;  // JSON has all

size_t columns(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

/// Words until `width`, each further line indented; the first one starts at column `indent` already. Line ends of ours are kept.
std::string wrapped(std::string_view text, size_t indent, size_t width) {
  std::string out;
  size_t at = indent;
  const auto new_line = [&] {
    out += '\n';
    out.append(indent, ' ');
    at = indent;
  };
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(" \n"), text.size());
    const std::string_view word = text.substr(0, end);
    const size_t size = columns(word);
    if (at > indent && at + size > width) {
      if (out.ends_with(' ')) out.pop_back();
      new_line();
    }
    out += word;
    at += size;
    if (end == text.size()) break;
    if (text[end] == '\n') {
      new_line();
    } else {
      out += ' ';
      ++at;
    }
    text.remove_prefix(end + 1);
  }
  return out;
}

/// excerpt(), but line ends stay.
std::string clean(std::string_view text) {
  std::string out;
  for (;;) {
    const size_t end = text.find('\n');
    out += excerpt(text.substr(0, end), kLongestText);
    if (end == std::string_view::npos) return out;
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

const char* colour_of(std::string_view state) {
  return state == "error" ? "\x1b[31m" : state == "warning" ? "\x1b[33m" : state == "ok" ? "\x1b[32m" : "";
}

std::string state_cell(const char* state, const TextOptions& options) {
  const std::string padding(8 - std::string_view(state).size(), ' ');
  const std::string colour = options.colour ? colour_of(state) : "";
  return colour.empty() ? state + padding : str(colour, state, "\x1b[0m", padding);
}

const char* how_sure(double confidence) {
  return confidence >= 0.95 ? "certain" : confidence >= 0.7 ? "likely" : confidence >= 0.4 ? "possible" : "a guess";
}

std::string table(const Report& report, const TextOptions& options) {
  size_t longest = 5;
  size_t host = 0;
  for (const Check& check : report.checks) {
    longest = std::max(longest, columns(check.name));
    host = std::max(host, columns(check.host));
  }
  const size_t host_columns = host == 0 ? 0 : host + 2;
  std::string out;
  for (const Check& check : report.checks) {
    const std::string name = clean(check.name);
    const std::string where = clean(check.host);
    out += state_cell(to_string(check.state), options) + " ";
    if (host > 0) out += where + std::string(host_columns - std::min(host_columns, columns(where)), ' ');
    out += name + std::string(longest + 2 - std::min(longest + 2, columns(name)), ' ');
    out += wrapped(clean(check.text), 9 + host_columns + longest + 2, options.width) + "\n";
  }
  return out;
}

std::string finding_text(const Finding& finding, const TextOptions& options) {
  std::string out = state_cell(to_string(finding.severity), options) + " ";
  std::string head = clean(finding.cause);
  if (!finding.host.empty()) head = clean(finding.host) + ": " + head;
  out += wrapped(str(head, " (", how_sure(finding.confidence), ")"), 9, options.width) + "\n";
  if (!finding.ranks.empty()) {
    out += "         " + wrapped(str("ranks: ", join(finding.ranks)), 9, options.width) + "\n";
  }
  if (!finding.advice.empty()) {
    out += "         " + wrapped(clean(finding.advice), 9, options.width) + "\n";
  }
  for (size_t i = 0; i < finding.evidence.size() && i < kShownEvidence; ++i) {
    const Evidence& evidence = finding.evidence[i];
    std::string where = excerpt(evidence.file);
    if (evidence.line > 0) where += ":" + std::to_string(evidence.line);
    out += str("           ", where, evidence.text.empty() ? "" : ": ", excerpt(evidence.text, 200), "\n");
  }
  if (finding.evidence.size() > kShownEvidence) {
    const bool more = finding.evidence.size() >= kMaxEvidence;
    out += str("           and ", more ? "at least " : "", finding.evidence.size() - kShownEvidence, " more\n");
  }
  return out;
}

}  // namespace

std::string to_text(const Report& report, const TextOptions& options) {
  std::string out;
  if (options.table) out += table(report, options);
  for (const Finding& finding : report.findings) {
    if (!out.empty()) out += '\n';
    out += finding_text(finding, options);
  }
  if (report.findings.empty() && !options.nothing.empty()) out += (out.empty() ? "" : "\n") + options.nothing + "\n";
  for (const FileNote& file : report.files) {
    if (!file.note.empty()) out += str(out.empty() ? "" : "\n", excerpt(file.file), ": ", clean(file.note), "\n");
  }
  return out;
}

}  // namespace trireme::diagnose
