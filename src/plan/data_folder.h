// Where the shipped machines/ and models/ lie.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::plan {

/// The folder `name` ("machines", "models") of the shipped data: in TRIREME_DATA_DIR where that is set, else in ../share/trireme beside the
/// folder of the running program, else in the source tree that it was built from.
///
/// Errors  kConfig when TRIREME_DATA_DIR is set and lacks the folder (never a silent way round it); kUnavailable with the three places when
///         it is nowhere.
[[nodiscard]] std::string data_folder(std::string_view name);

/// The folder's files that end in ".json", sorted by name. kIo when it cannot be read.
[[nodiscard]] std::vector<std::string> json_files_in(const std::string& folder);

}  // namespace trireme::plan
