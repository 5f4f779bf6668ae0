// Where the members of a group find each other.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/backends/backend_entry.h"

namespace trireme::comm {

/// Ranks as threads of one process. The first member that comes makes the communicators of all.
class ThreadMeeting final : public Meeting {
 public:
  [[nodiscard]] bool waits() const noexcept override { return false; }
  [[nodiscard]] std::unique_ptr<Communicator> meet(const std::string& key, int rank, int size,
                                                   CommunicatorOptions options, const MeetingWatch& watch) override;
  [[nodiscard]] SharedParts share(const std::string& key, int rank, int size, size_t part_bytes,
                                  CommunicatorOptions options, const MeetingWatch& watch) override;

 private:
  std::mutex mutex_;
  // Kept until the last member has taken its part.
  struct Members {
    std::vector<std::unique_ptr<Communicator>> communicators;
    int num_taken = 0;
  };
  std::map<std::string, Members> groups_;
  struct Parts {
    SharedParts shared;
    int num_taken = 0;
  };
  std::map<std::string, Parts> parts_;
};

/// Ranks as processes of one host, over a store.
class StoreMeeting final : public Meeting {
 public:
  StoreMeeting(std::shared_ptr<rendezvous::Store> store, std::shared_ptr<rendezvous::Store> root)
      : store_(std::move(store)), root_(std::move(root)) {}
  [[nodiscard]] std::unique_ptr<Communicator> meet(const std::string& key, int rank, int size,
                                                   CommunicatorOptions options, const MeetingWatch& watch) override;
  [[nodiscard]] SharedParts share(const std::string& key, int rank, int size, size_t part_bytes,
                                  CommunicatorOptions options, const MeetingWatch& watch) override;

 private:
  std::shared_ptr<rendezvous::Store> store_;
  std::shared_ptr<rendezvous::Store> root_;
};

}  // namespace trireme::comm
