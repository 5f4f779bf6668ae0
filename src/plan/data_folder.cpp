#include "plan/data_folder.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::plan {

namespace fs = std::filesystem;

std::string data_folder(std::string_view name) {
  std::error_code ignored;
  if (const char* set = std::getenv("TRIREME_DATA_DIR"); set != nullptr && *set != '\0') {
    const fs::path folder = fs::path(set) / name;
    if (fs::is_directory(folder, ignored)) return folder.string();
    throw Error(ErrorKind::kConfig,
                str("[plan.data_folder] environment TRIREME_DATA_DIR is '", set, "', which has no folder '", name,
                    "'; the folder that holds machines/ and models/ is required. Correct or unset it."));
  }
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  const fs::path installed = program.parent_path().parent_path() / "share" / "trireme" / name;
  if (!program.empty() && fs::is_directory(installed, ignored)) return installed.string();
  const fs::path source = fs::path(TRIREME_SOURCE_DIR) / name;
  if (fs::is_directory(source, ignored)) return source.string();
  throw Error(ErrorKind::kUnavailable,
              str("[plan.data_folder] no folder '", name, "' in '", installed.string(), "' nor in '", source.string(),
                  "'; one of them, or TRIREME_DATA_DIR, is required. Install Trireme whole, or set TRIREME_DATA_DIR."));
}

std::vector<std::string> json_files_in(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> files;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator(); it.increment(error)) {
    if (it->path().extension() == ".json") files.push_back(it->path().string());
  }
  if (error) {
    throw Error(ErrorKind::kIo, str("[plan.data_folder] cannot list '", folder, "': ", error.message(),
                                    "; a readable folder is required. Check its permissions."));
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace trireme::plan
