// The dumps of c10d's flight recorder (PyTorch >= 2.3, format 1.x and 2.x), pickled or as JSON, and our own export of the same form.
#pragma once

#include <memory>

#include "base/pickle_reader.h"
#include "diagnose/job/story.h"
#include "diagnose/reader.h"

namespace trireme::diagnose {

/// Whether this value is such a dump: a dict with "entries" and "version", or the bare list of entries that the oldest wrote.
[[nodiscard]] bool is_flight_recorder(const pickle::Value& root);

/// Adds the dump to the story as the trail of its rank, which our export names; c10d's own has it only at the end of the file's name
/// ("nccl_trace_rank_3"). Returns the word for a file that has none, or whose entries are damaged in part; empty when all is well.
[[nodiscard]] std::string add_flight_recorder(const pickle::Value& root, const std::string& file, Story& story);

/// The number at the end of a file's name, before its suffix: 3 of "dumps/nccl_trace_rank_3", "rank3.json".
[[nodiscard]] std::optional<int> rank_of_file_name(std::string_view file);

/// "all_gather" for "_all_gather_base", "all_gather_into_tensor_coalesced", "ALLGATHER".
[[nodiscard]] std::string kind_of_op(std::string_view op);

}  // namespace trireme::diagnose
