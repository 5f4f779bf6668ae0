// Reading a file that a user named: whatever it is, the answer is its text or one error, never a wait or all of the memory.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trireme {

/// The text of a regular file of at most `most` bytes. [blocking]
///
/// `required` names what should have been given ("a CSV file").
/// Errors   kIo "[component] ...", with the reason: not there, not readable, a folder, pipe, socket or device, longer than `most`.
[[nodiscard]] std::string read_file(const std::string& path, std::string_view component, std::string_view required,
                                    size_t most = size_t{256} << 20);

}  // namespace trireme
