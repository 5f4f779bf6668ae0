// Memory that could not be had: the allocators' messages, and the kernel's OOM killer.
#include "base/str.h"
#include "diagnose/excerpt.h"
#include "diagnose/job/log_line.h"
#include "diagnose/job/oom_message.h"
#include "diagnose/scan.h"

namespace trireme::diagnose {
namespace {

void device(const LogLine& line, Story& story) {
  const std::optional<OomMessage> message = parse_oom_message(line.text);
  if (!message) return;
  const OomVerdict verdict = explain(*message);
  Finding finding = told_by(line, verdict.code, Severity::kError, verdict.confidence);
  finding.cause = verdict.cause;
  finding.advice = verdict.advice;
  Story::keep(story.memory, MemoryAsk{std::string(line.file), line.number, message->ask, message->capacity,
                                      message->allocated, message->unallocated()});
  story.add(std::move(finding));
}

void host(const LogLine& line, Story& story) {
  const auto bytes = leading_number(after(line.text, "you tried to allocate ").value_or(""));
  if (has(line.text, "The allocator's words: ")) {  // the lines before it say more: watch_lines.cpp
    Story::keep(story.memory, MemoryAsk{std::string(line.file), line.number, bytes, {}, {}, {}});
    return;
  }
  Finding finding = told_by(line, "memory.host", Severity::kError, 0.9);
  finding.cause = bytes ? str("the host's memory is full: ", bytes_text(*bytes), " could not be had")
                        : std::string("the host's memory is full");
  finding.advice =
      "See 'free -g', limits (ulimit -v, the cgroup's memory.max) and what each rank of this host holds; fewer "
      "data-loader workers, less "
      "pinned or offloaded memory.";
  Story::keep(story.memory, MemoryAsk{std::string(line.file), line.number, bytes, {}, {}, {}});
  story.add(std::move(finding));
}

// "Out of memory: Killed process 4121 (python) total-vm:..., anon-rss:...", "Memory cgroup out of memory: Killed process ..."
void kernel(const LogLine& line, Story& story) {
  const auto process = after(line.text, "Killed process ");
  if (!process || !has(line.text, "ut of memory")) return;
  OomKill kill;
  kill.pid = leading_number(*process).value_or(0);
  kill.process = excerpt(between(*process, "(", ")").value_or(""), 40);
  kill.evidence = line.evidence();
  Story::keep(story.oom_kills, std::move(kill));
}

}  // namespace

std::vector<LogRule> memory_rules() {
  return {{"Tried to allocate ", &device},
          {"CUDA error: out of memory", &device},
          {"you tried to allocate ", &host},
          {"Killed process ", &kernel}};
}

}  // namespace trireme::diagnose
