"""Gloo, from the same wheel, on the work of `trireme bench comm`: torchrun --standalone --nproc-per-node N comm_gloo.py

Prints one line of JSON on rank 0: {"rows": [{"op", "bytes", "ranks", "median_us", "wrong"}]}. In place where the operation is;
tensors from the default allocator; one thread; a barrier before each timed call, as in the other programs here.
"""
import json
import time

import torch
import torch.distributed as dist

SIZES = [4 << 10, 64 << 10, 1 << 20, 8 << 20, 32 << 20]


def repetitions(size):
    return 200 if size <= 65536 else 40 if size <= 1 << 20 else 15


def pattern(count, rank, seed):
    return torch.remainder(torch.arange(count, dtype=torch.float32) + (31 * rank + 7 * seed), 1021)


def cases(count, rank, n):
    part = count // n
    x, out = torch.zeros(count), torch.zeros(count)
    gathered = [torch.zeros(count) for _ in range(n)]
    scattered = torch.zeros(part)
    return {
        "all_reduce": (lambda: dist.all_reduce(x), x,
                       lambda seed: [(x, sum(pattern(count, r, seed) for r in range(n)))]),
        "all_gather": (lambda: dist.all_gather(gathered, x), x,
                       lambda seed: [(gathered[r], pattern(count, r, seed)) for r in range(n)]),
        "reduce_scatter": (lambda: dist.reduce_scatter_tensor(scattered, x), x,
                           lambda seed: [(scattered, sum(pattern(count, r, seed)[rank * part:(rank + 1) * part] for r in range(n)))]),
        "all_to_all": (lambda: dist.all_to_all_single(out, x), x,
                       lambda seed: [(out[r * part:(r + 1) * part], pattern(count, r, seed)[rank * part:(rank + 1) * part])
                                     for r in range(n)]),
    }


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, n = dist.get_rank(), dist.get_world_size()
    rows = []
    for size in SIZES:
        count = size // 4
        for op, (call, given, wanted) in cases(count, rank, n).items():
            wrong = 0
            for seed in range(3):
                given.copy_(pattern(count, rank, seed))
                dist.barrier()
                call()
                wrong += sum(int((got != want).sum()) for got, want in wanted(seed))
            times = []
            for i in range(repetitions(size)):
                if i % 16 == 0:
                    given.copy_(pattern(count, rank, 0))
                dist.barrier()
                start = time.perf_counter()
                call()
                times.append(time.perf_counter() - start)
            total = torch.tensor([wrong])
            dist.all_reduce(total)
            times.sort()
            rows.append({"op": op, "bytes": size, "ranks": n, "median_us": times[len(times) // 2] * 1e6, "wrong": int(total)})
    if rank == 0:
        print(json.dumps({"rows": rows}), flush=True)
    dist.destroy_process_group()


main()
