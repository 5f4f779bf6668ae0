"""Python's DistributedDataParallel with Gloo on the work of `trireme bench ddp`: torchrun --standalone --nproc-per-node 2 ddp_gloo.py

Prints one line of JSON on rank 0: {"rows": [{"model", "ranks", "step_ms", "view_step_ms", "local_ms"}]}: the step with default
options, with gradient_as_bucket_view=True, and without communication, interleaved, medians.
"""
import json
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

MODELS = {
    "784-256-10": lambda: nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)),
    "784-2048-2048-10": lambda: nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)),
    "784-60x128-10": lambda: nn.Sequential(nn.Linear(784, 128), *[m for _ in range(60) for m in (nn.Linear(128, 128), nn.ReLU())],
                                           nn.Linear(128, 10)),
}
REPETITIONS, WARM_UP, BATCH = 40, 4, 32


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    rows = []
    for name, make in MODELS.items():
        torch.manual_seed(1)
        models = {"local_ms": make(), "step_ms": DistributedDataParallel(make()),
                  "view_step_ms": DistributedDataParallel(make(), gradient_as_bucket_view=True)}
        optimizers = {key: torch.optim.SGD(model.parameters(), lr=0.01) for key, model in models.items()}
        torch.manual_seed(100 + rank)
        x, y = torch.randn(BATCH, 784), torch.randint(0, 10, (BATCH,))
        times = {key: [] for key in models}
        for i in range(WARM_UP + REPETITIONS):
            for key, model in models.items():
                dist.barrier()
                start = time.perf_counter()
                optimizers[key].zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizers[key].step()
                if i >= WARM_UP:
                    times[key].append(time.perf_counter() - start)
        rows.append({"model": name, "ranks": dist.get_world_size()} | {k: statistics.median(t) * 1e3 for k, t in times.items()})
    if rank == 0:
        print(json.dumps({"rows": rows}), flush=True)
    dist.destroy_process_group()


main()
