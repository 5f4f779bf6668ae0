// Whether all ranks built the same model. Without LibTorch: one line of text per parameter or buffer.
#pragma once

#include <string>
#include <vector>

#include "comm/algorithms/call_queue.h"
#include "comm/algorithms/communicator.h"

namespace trireme::parallel {

/// Throws kMismatch on every rank, naming the first line that differs from rank 0's and both sides.
/// [collective, blocking] Cost: 16 bytes per rank when all agree.
void require_equal_models(comm::CallQueue& queue, comm::Communicator& communicator,
                          const std::vector<std::string>& lines);

/// The same for lines that carry hashes of values, `step` steps into the training: names the first that differs and, where most ranks agree, the
/// ranks that do not.
void require_equal_values(comm::CallQueue& queue, comm::Communicator& communicator,
                          const std::vector<std::string>& lines, int64_t step);

}  // namespace trireme::parallel
