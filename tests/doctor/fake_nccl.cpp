// As much of NCCL as doctor calls: an all-reduce over memory of this process, done at the end of the group.
#include <cstddef>
#include <vector>

namespace {

struct Call {
  const float* in;
  float* out;
  size_t count;
};
std::vector<Call> calls;
int ranks = 0;

}  // namespace

extern "C" {
int ncclGetVersion(int* version) {
  *version = 22304;
  return 0;
}
int ncclCommInitAll(void** comms, int count, const int*) {
  for (int i = 0; i < count; ++i) comms[i] = &ranks;
  ranks = count;
  return 0;
}
int ncclCommDestroy(void*) { return 0; }
int ncclGroupStart() {
  calls.clear();
  return 0;
}
int ncclAllReduce(const void* in, void* out, size_t count, int type, int op, void*, void* stream) {
  if (type != 7 || op != 0 || stream == nullptr) return 4;
  calls.push_back({static_cast<const float*>(in), static_cast<float*>(out), count});
  return 0;
}
int ncclGroupEnd() {
  if (static_cast<int>(calls.size()) != ranks) return 5;
  for (const Call& call : calls) {
    for (size_t i = 0; i < call.count; ++i) {
      call.out[i] = 0;
      for (const Call& other : calls) call.out[i] += other.in[i];
    }
  }
  return 0;
}
}
