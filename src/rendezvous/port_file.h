// How ranks of one host find rank 0's store when their launcher (mpirun, srun) gives no port: rank 0 lets the kernel
// choose one and writes it to a file that is named after the job, in a folder that only this user may write.
#pragma once

#include <chrono>
#include <memory>
#include <string>

namespace trireme::rendezvous {

/// The published port; the file is removed when this goes.
class PortFile {
 public:
  PortFile(const std::string& run_id, int port);
  ~PortFile();
  PortFile(const PortFile&) = delete;
  PortFile& operator=(const PortFile&) = delete;

 private:
  std::string path_;
};

/// Waits until rank 0 of this job has published its port. A file of a process that is gone is not believed.
/// Throws kTimeout with the path. [blocking]
[[nodiscard]] int await_port(const std::string& run_id, std::chrono::milliseconds timeout);

}  // namespace trireme::rendezvous
