// What two ranks of one host can reach, in bare loops without a library around them: the limits that docs/bandwidth.md compares with.
//   g++ -O2 -march=native bench/bare_loops.cpp -o bare_loops && ./bare_loops      (x86-64 with AVX-512)
// Two processes on memory that both have mapped; medians in us of rank 0, both ranks busy.
#include <immintrin.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

struct alignas(128) Flag {
  std::atomic<unsigned> value;
};
struct Shared {
  Flag flag[2];
  char* tensor[2];
  int pid[2];
};
Shared* g_shared;
char* g_slots;  // two buffers of 1 MiB
int g_rank;
unsigned g_phase = 0;

void meet() {
  g_shared->flag[g_rank].value.store(++g_phase, std::memory_order_release);
  while (g_shared->flag[1 - g_rank].value.load(std::memory_order_acquire) < g_phase) _mm_pause();
}

template <typename Body>
double median_us(int repetitions, Body&& body) {
  std::vector<double> times;
  for (int i = 0; i < repetitions; ++i) {
    meet();
    const auto begin = std::chrono::steady_clock::now();
    body();
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + repetitions / 2, times.end());
  return times[static_cast<size_t>(repetitions / 2)];
}

// src/comm/algorithms/pair_exchange.h, nothing checked.
void all_reduce(float* x, size_t count) {
  constexpr size_t kChunk = (256 << 10) / sizeof(float);
  unsigned swaps = 0;
  const auto slot = [&](unsigned which) {
    return reinterpret_cast<float*>(g_slots + ((static_cast<unsigned>(g_rank) + swaps + which) & 1) * (1 << 20));
  };
  std::memcpy(slot(0), x, std::min(count, kChunk) * sizeof(float));
  meet();
  for (size_t done = 0; done < count; done += kChunk) {
    float* theirs = slot(1);
    const float* next = done + kChunk < count ? x + done + kChunk : nullptr;
    for (size_t i = 0; i < kChunk; i += 16) {
      _mm512_storeu_ps(x + done + i, _mm512_add_ps(_mm512_loadu_ps(x + done + i), _mm512_loadu_ps(theirs + i)));
      if (next != nullptr) _mm512_storeu_ps(theirs + i, _mm512_loadu_ps(next + i));
    }
    swaps ^= 1;
    if (next != nullptr) meet();
  }
}

void stream(char* to, const char* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_loadu_si512(from + i));
  _mm_sfence();
}

float sum(const char* data, size_t bytes) {
  __m512 all = _mm512_setzero_ps();
  for (size_t i = 0; i < bytes; i += 64) all = _mm512_add_ps(all, _mm512_loadu_ps(data + i));
  return _mm512_reduce_add_ps(all);
}

void read_peer(char* to, size_t bytes) {
  const iovec here = {to, bytes};
  const iovec there = {g_shared->tensor[1 - g_rank], bytes};
  if (process_vm_readv(g_shared->pid[1 - g_rank], &here, 1, &there, 1, 0) != static_cast<ssize_t>(bytes)) std::abort();
}

void through_slots(char* to, const char* from, size_t bytes) {
  constexpr size_t kChunk = 128 << 10;
  for (size_t at = 0, turn = 0; at < bytes; at += kChunk, turn ^= 1) {
    const size_t part = std::min(kChunk, bytes - at);
    std::memcpy(g_slots + static_cast<size_t>(g_rank) * (1 << 20) + turn * kChunk, from + at, part);
    meet();
    std::memcpy(to + at, g_slots + static_cast<size_t>(1 - g_rank) * (1 << 20) + turn * kChunk, part);
  }
}

char* mapped(size_t bytes, int kind) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return static_cast<char*>(memory);
}

}  // namespace

int main() {
  g_shared = reinterpret_cast<Shared*>(mapped(4096, MAP_SHARED));
  g_slots = mapped(2 << 20, MAP_SHARED);
  const pid_t child = fork();
  g_rank = child == 0 ? 1 : 0;
  if (g_rank == 0) std::puts("  MiB  all_reduce  memcpy  streamed  memcpy+read  streamed+read  readv  slots");
  for (const size_t mib : {size_t{1}, size_t{4}, size_t{8}, size_t{16}, size_t{32}}) {
    const size_t bytes = mib << 20;
    char* from = mapped(bytes, MAP_PRIVATE);
    char* to = mapped(bytes, MAP_PRIVATE);
    std::memset(from, 0, bytes);
    std::memset(to, 0, bytes);
    g_shared->tensor[g_rank] = from;
    g_shared->pid[g_rank] = getpid();
    const int repetitions = mib > 4 ? 25 : 100;
    volatile float used = 0;
    const double figures[] = {
        median_us(repetitions, [&] { all_reduce(reinterpret_cast<float*>(from), bytes / sizeof(float)); }),
        median_us(repetitions, [&] { std::memcpy(to, from, bytes); }),
        median_us(repetitions, [&] { stream(to, from, bytes); }),
        median_us(repetitions, [&] { std::memcpy(to, from, bytes), used = sum(to, bytes); }),
        median_us(repetitions, [&] { stream(to, from, bytes), used = sum(to, bytes); }),
        median_us(repetitions, [&] { read_peer(to, bytes); }),
        median_us(repetitions, [&] { through_slots(to, from, bytes); })};
    if (g_rank == 0) {
      std::printf("%5zu  %10.0f  %6.0f  %8.0f  %11.0f  %13.0f  %5.0f  %5.0f\n", mib, figures[0], figures[1], figures[2],
                  figures[3], figures[4], figures[5], figures[6]);
      std::fflush(stdout);
    }
    meet();
    munmap(from, bytes);
    munmap(to, bytes);
  }
  if (g_rank == 0) waitpid(child, nullptr, 0);
}
