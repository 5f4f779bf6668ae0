// A memory mapping that unmaps itself.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/str.h"
#include "trireme/base/error.h"

namespace trireme::comm {

class Mapping {
 public:
  Mapping() = default;
  /// Shared, readable and writable; fd -1 gives anonymous memory. Throws kOutOfMemory.
  Mapping(int fd, size_t bytes) : bytes_(bytes) {
    const int flags = MAP_SHARED | MAP_NORESERVE | (fd < 0 ? MAP_ANONYMOUS : 0);
    void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (address == MAP_FAILED) {
      throw Error(ErrorKind::kOutOfMemory, str("[comm.shm] mapping ", bytes, " bytes of shared memory failed: ",
                                               std::strerror(errno), ". Check 'ulimit -v'."));
    }
    data_ = static_cast<std::byte*>(address);
  }
  Mapping(Mapping&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] size_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace trireme::comm
