// Slurm's compressed lists: "node[001-003,7],login1" and "4(x2),3".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::rendezvous {

/// The first host of a node list; empty when there is none.
[[nodiscard]] std::string first_host(std::string_view nodelist);

/// All hosts of a node list, in order. Throws kConfig with the place for unbalanced brackets, ranges that run
/// backwards, or more than 100,000 hosts.
[[nodiscard]] std::vector<std::string> expand_nodelist(std::string_view nodelist);

/// "4(x2),3" is 4, 4, 3; empty when the text is not of that form.
[[nodiscard]] std::vector<int> tasks_per_host(std::string_view text);

}  // namespace trireme::rendezvous
