#include "diagnose/job/diagnose.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <map>

#include "base/str.h"
#include "diagnose/job/find_job.h"
#include "diagnose/job/job_files.h"
#include "diagnose/job/job_log.h"
#include "diagnose/job/reason.h"
#include "diagnose/reader.h"

namespace trireme::diagnose {
namespace {

int64_t wall_clock_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// As the user would write it: relative where it lies below the working folder.
std::string below_here(const std::string& path) {
  std::error_code ignored;
  const std::string here = std::filesystem::current_path(ignored).string() + "/";
  return path.starts_with(here) ? path.substr(here.size()) : path;
}

void tell_live_ranks(const FoundJob& job, Story& story) {
  if (job.world_size) story.tell_world_size(*job.world_size);
  for (const auto& [rank, live] : job.ranks) {
    story.ranks_seen.insert(rank);
    const Evidence evidence{str("/proc/", live.pid, "/stat"), 0, str("state ", live.state, ", pid ", live.pid)};
    if (live.state == 'T' || live.state == 't') story.stopped[rank] = evidence;
    if (live.state == 'Z') story.gone[rank] = evidence;
  }
  for (int rank = 0; rank < job.world_size.value_or(0); ++rank) {
    if (job.ranks.count(rank) == 0) story.gone[rank] = {"/proc", 0, str("no process has RANK=", rank, " of this job")};
  }
}

/// A run folder of which ranks still write: what they are in at this moment is no fault. False: they do not.
bool tell_live_writers(Story& story) {
  std::map<int, char> states;
  for (const OwnTrace& one : story.own_traces) states.try_emplace(one.trace.rank, state_of_writer(one.trace));
  const bool any =
      std::any_of(states.begin(), states.end(), [](const auto& s) { return s.second != '?' && s.second != 'X'; });
  if (!any) return false;
  for (const OwnTrace& one : story.own_traces) {
    const char state = states.at(one.trace.rank);
    const Evidence evidence{str("/proc/", one.trace.pid, "/stat"), 0, str("state ", state, ", pid ", one.trace.pid)};
    if (state == 'T' || state == 't') story.stopped.try_emplace(one.trace.rank, evidence);
    if (state == 'X') story.gone.try_emplace(one.trace.rank, evidence);
  }
  return true;
}

}  // namespace

Report diagnose(const DiagnoseRequest& request) {
  Report report;
  Story story;
  CompareOptions options;
  options.world_size = request.world_size;
  std::vector<std::string> paths = request.paths;
  if (!request.job.empty()) {
    const FoundJob job = find_job(request.job);
    paths.push_back(below_here(job.run_dir));
    if (!job.ranks.empty()) {
      options.live_now_ns = wall_clock_ns();
      tell_live_ranks(job, story);
    }
  }
  Readers readers = all_readers();
  readers.lines.push_back(make_job_log_reader(story));
  // Before the others': what they recognise is narrower.
  std::vector<std::unique_ptr<FileReader>> files = job_file_readers(story);
  for (auto& reader : readers.files) files.push_back(std::move(reader));
  readers.files = std::move(files);
  read_files(paths, readers, report);
  finish(readers, report);
  if (!options.live_now_ns && tell_live_writers(story)) options.live_now_ns = wall_clock_ns();
  reason(story, options, report);
  return report;
}

}  // namespace trireme::diagnose
