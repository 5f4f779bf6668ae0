// Runs one function on n ranks that are threads of this process.
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "comm/group_state.h"
#include "support/patience.h"

namespace trireme::test {

using RankFunction = std::function<void(comm::Group&)>;

/// Every rank that throws is reported as a failure. A rank leaves its group when its function ends, so the others do
/// not wait for it.
inline void run_ranks(int size, const RankFunction& function, std::chrono::milliseconds timeout = test::kPatience,
                      const std::string& trace_dir = {}) {
  std::vector<comm::Group> groups = comm::make_thread_groups(size, timeout, trace_dir);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank, group = std::move(groups[static_cast<size_t>(rank)])]() mutable {
      at::set_num_threads(1);  // OpenMP keeps this number by thread
      try {
        function(group);
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  groups.clear();
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < size; ++rank) {
    if (!errors[static_cast<size_t>(rank)]) continue;
    try {
      std::rethrow_exception(errors[static_cast<size_t>(rank)]);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << rank << " of " << size << " threw: " << error.what();
    }
  }
}

/// The Error that `function` throws; a failure and an empty kInternal one when it throws none.
template <typename Function>
Error error_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "threw something else than trireme::Error: " << error.what();
    return {ErrorKind::kInternal, error.what()};
  }
  ADD_FAILURE() << "threw nothing";
  return {ErrorKind::kInternal, ""};
}

}  // namespace trireme::test
