// As much of CUDA's driver API as doctor calls, on FAKE_GPUS GPUs of host memory. FAKE_WRONG=1: copies between GPUs change one byte.
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

namespace {

int gpus() {
  const char* text = std::getenv("FAKE_GPUS");
  return text == nullptr ? 2 : std::atoi(text);
}
long current = 0;  // number of the GPU whose context is current, from 1
std::map<unsigned long long, long> owners;

// Memory is used through the context of its own GPU only, or this fake says "invalid value", as CUDA may.
bool mine(unsigned long long address) { return owners.count(address) == 1 && owners[address] == current; }

}  // namespace

extern "C" {
int cuInit(unsigned) { return gpus() < 0 ? 802 : 0; }
int cuDriverGetVersion(int* version) {
  *version = 12040;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = gpus();
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = reinterpret_cast<void*>(static_cast<long>(device) + 1);
  return 0;
}
int cuCtxSetCurrent(void* context) {
  current = reinterpret_cast<long>(context);
  return 0;
}
int cuMemAlloc_v2(unsigned long long* address, size_t bytes) {
  *address = reinterpret_cast<unsigned long long>(std::calloc(bytes, 1));
  owners[*address] = current;
  return 0;
}
int cuStreamCreate(void** stream, unsigned) {
  *stream = reinterpret_cast<void*>(current);
  return current == 0 ? 201 : 0;
}
int cuStreamSynchronize(void* stream) { return stream == reinterpret_cast<void*>(current) ? 0 : 400; }
int cuCtxSynchronize() { return 0; }
int cuDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return 0;
}
int cuCtxEnablePeerAccess(void*, unsigned) { return 0; }
int cuMemcpyHtoD_v2(unsigned long long to, const void* from, size_t bytes) {
  if (!mine(to)) return 1;
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return 0;
}
int cuMemcpyDtoH_v2(void* to, unsigned long long from, size_t bytes) {
  if (!mine(from)) return 1;
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return 0;
}
int cuMemcpyPeer(unsigned long long to, void* to_context, unsigned long long from, void* from_context, size_t bytes) {
  if (owners[to] != reinterpret_cast<long>(to_context) || owners[from] != reinterpret_cast<long>(from_context))
    return 1;
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  if (std::getenv("FAKE_WRONG") != nullptr) ++*reinterpret_cast<char*>(to);
  return 0;
}
}
