// Commands that are programs of their own (trireme-train), found as git finds its.
#pragma once

#include <span>
#include <string>

namespace trireme::cli {

struct ExternalCommand {
  const char* name;
  const char* summary;
};

/// Those of this project, in the order of the help text.
[[nodiscard]] std::span<const ExternalCommand> external_commands();

/// The folder of the running binary.
[[nodiscard]] std::string own_folder();

/// "<own folder>/trireme-NAME", else the one in PATH; empty when there is none.
[[nodiscard]] std::string find_external(const std::string& name);

/// Replaces this process by trireme-NAME. Returns only when there is none, or when it cannot be executed.
void exec_external(const std::string& name, char** args);

}  // namespace trireme::cli
