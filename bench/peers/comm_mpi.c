/* MPI on the work of `trireme bench comm`: mpicc -O2 comm_mpi.c -o comm_mpi && mpirun -n N ./comm_mpi
 * Prints one line of JSON on rank 0: {"rows": [{"op", "bytes", "ranks", "median_us", "wrong"}]}. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static float pattern(long i, int rank, int seed) { return (float)((i + 31 * rank + 7 * seed) % 1021); }

static void fill(float* x, long count, int rank, int seed) {
  for (long i = 0; i < count; ++i) x[i] = pattern(i, rank, seed);
}

enum { kAllReduce, kAllGather, kReduceScatter, kAllToAll, kNumOps };
static const char* const kNames[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"};

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, n;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  const long sizes[] = {4l << 10, 64l << 10, 1l << 20, 8l << 20, 32l << 20};
  if (rank == 0) printf("{\"rows\": [");
  for (int s = 0; s < 5; ++s) {
    const long bytes = sizes[s], count = bytes / 4, part = count / n;
    const int repetitions = bytes <= 65536 ? 200 : bytes <= 1l << 20 ? 40 : 15;
    float* x = malloc(bytes);
    float* y = malloc(bytes);
    float* gathered = malloc(bytes * n);
    memset(y, 0, bytes);
    memset(gathered, 0, bytes * n);
    for (int op = 0; op < kNumOps; ++op) {
      double times[256];
      long wrong = 0, total = 0;
      for (int i = -3; i < repetitions; ++i) {
        const int seed = i < 0 ? i + 3 : 0;
        if (i < 0 || i % 16 == 0) fill(x, count, rank, seed);
        MPI_Barrier(MPI_COMM_WORLD);
        const double start = MPI_Wtime();
        if (op == kAllReduce) MPI_Allreduce(MPI_IN_PLACE, x, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (op == kAllGather) MPI_Allgather(x, count, MPI_FLOAT, gathered, count, MPI_FLOAT, MPI_COMM_WORLD);
        if (op == kReduceScatter) MPI_Reduce_scatter_block(x, y, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (op == kAllToAll) MPI_Alltoall(x, part, MPI_FLOAT, y, part, MPI_FLOAT, MPI_COMM_WORLD);
        const double took = MPI_Wtime() - start;
        if (i >= 0) {
          times[i] = took;
          continue;
        }
        for (long k = 0; k < count; ++k) {
          if (op == kAllReduce || (op == kReduceScatter && k < part)) {
            float want = 0;
            for (int r = 0; r < n; ++r) want += pattern(op == kAllReduce ? k : rank * part + k, r, seed);
            wrong += (op == kAllReduce ? x[k] : y[k]) != want;
          }
          if (op == kAllToAll && k < part * n) wrong += y[k] != pattern(rank * part + k % part, (int)(k / part), seed);
          if (op == kAllGather) {
            for (int r = 0; r < n; ++r) wrong += gathered[r * count + k] != pattern(k, r, seed);
          }
        }
      }
      MPI_Reduce(&wrong, &total, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
      qsort(times, repetitions, sizeof(double), by_value);
      if (rank == 0) {
        printf("%s{\"op\": \"%s\", \"bytes\": %ld, \"ranks\": %d, \"median_us\": %.3f, \"wrong\": %ld}",
               s + op ? ", " : "", kNames[op], bytes, n, times[repetitions / 2] * 1e6, total);
      }
    }
    free(x);
    free(y);
    free(gathered);
  }
  if (rank == 0) printf("]}\n");
  MPI_Finalize();
}
