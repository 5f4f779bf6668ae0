// Where the collective trace lies and how its file comes into being. Private to profile.
#pragma once

#include <cstddef>
#include <string>

#include "profile/collective_trace.h"

namespace trireme::profile {

/// Whether a file there would be shared over a network (nfs, smb, lustre, fuse, ...): mapped writes would be slow, or
/// not be seen by others.
[[nodiscard]] bool on_network_file_system(const std::string& folder);

/// A file under construction: mapped, of its full size on disk, but without its name.
struct NewTraceFile {
  void* memory = nullptr;
  std::string path;       ///< where it will be
  std::string temporary;  ///< where it is; needed only where the file system has no files without a name
  int fd = -1;            ///< the file where it has no name yet
  std::string pointer;    ///< where a pointer file to it will be; empty: none
};

/// Throws kIo with the path and the reason; leaves nothing behind then.
[[nodiscard]] NewTraceFile create_trace_file(const TraceOptions& options, size_t bytes);

/// Gives the file its name, moving one that has it to `.old`, and writes the pointer file.
void publish_trace_file(const NewTraceFile& file);

/// First line of a pointer file; then "host NAME" and "path FILE".
inline constexpr const char* kPointerMagic = "trireme-trace-pointer 1";

[[nodiscard]] std::string host_name();

}  // namespace trireme::profile
