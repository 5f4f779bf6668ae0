// Writing a small file so that nobody ever finds half of it.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

/// `path` holds `text` when this returns, also after a loss of power; whenever it fails or is killed, what was there before. [blocking]
///
/// The text goes to `path`.new first, which a later call replaces. One writer at a time. A device, a pipe and what is below /dev or /proc
/// (/dev/stdout) is written to as it stands.
/// Errors   kIo "[component] cannot write path: ...", with the reason; kConfig for an empty path.
void replace_file(const std::string& path, std::string_view text, std::string_view component);

}  // namespace trireme
