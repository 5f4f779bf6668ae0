#include "diagnose/job/diagnose.h"

#include <ctime>
#include <filesystem>

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
  reason(story, options, report);
  return report;
}

}  // namespace trireme::diagnose
