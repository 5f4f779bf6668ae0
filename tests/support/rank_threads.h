// Runs one function per rank, each on a thread of its own, over communicators on one mapping.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/algorithms/communicator.h"
#include "trireme/base/error.h"

namespace trireme::testing {

/// What each rank threw; empty text where it did not.
struct RankOutcome {
  std::string error;
  ErrorKind kind = ErrorKind::kInternal;
};

inline std::vector<RankOutcome> run_rank_threads(int size, const comm::CommunicatorOptions& options,
                                                 const std::function<void(comm::Communicator&)>& body) {
  auto communicators = comm::make_inproc_communicators(size, options);
  std::vector<RankOutcome> outcomes(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(*communicators[r]);
      } catch (const Error& error) {
        outcomes[r] = {error.what(), error.kind()};
      } catch (const std::exception& error) {
        outcomes[r] = {error.what(), ErrorKind::kInternal};
      }
      communicators[r]->leave();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

}  // namespace trireme::testing
