// Files of a job that are read whole: pickles, JSON reports, collective traces, Chrome traces.
#pragma once

#include "diagnose/job/story.h"
#include "diagnose/reader.h"

namespace trireme::diagnose {

/// Readers for them, which fill the story; it must outlive them.
[[nodiscard]] std::vector<std::unique_ptr<FileReader>> job_file_readers(Story& story);

}  // namespace trireme::diagnose
