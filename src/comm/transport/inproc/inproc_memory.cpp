#include "comm/transport/inproc/inproc_memory.h"

#include "comm/transport/mapping.h"

namespace trireme::comm {
namespace {

class InprocMemory final : public WindowMemory {
 public:
  explicit InprocMemory(size_t bytes) : mapping_(-1, bytes) {}
  std::byte* data() override { return mapping_.data(); }
  bool alive(int /*rank*/) override { return true; }

 private:
  Mapping mapping_;
};

}  // namespace

std::shared_ptr<WindowMemory> make_inproc_memory(const WindowShape& shape) {
  return std::make_shared<InprocMemory>(shape.total_bytes());
}

SharedParts make_inproc_parts(int size, size_t part_bytes) {
  SharedParts parts;
  parts.part_bytes = (part_bytes + 4095) / 4096 * 4096;
  parts.memory = std::make_shared<InprocMemory>(parts.part_bytes * static_cast<size_t>(size));
  parts.base = parts.memory->data();
  return parts;
}

}  // namespace trireme::comm
