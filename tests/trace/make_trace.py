"""Chrome traces as PyTorch's profiler writes them on GPUs, with shares that are known in closed form.

    make_trace.py DIR [--ranks N] [--steps S] [--late RANK] [--offset-us R:US ...] [--drift-ppm R:PPM ...] [--megabytes M]

One step lasts 1000 us. Rank r waits for data until d (100 us; the late rank 400 us). Then 10 kernels of 30 us run with 2 us between them, and an
all_reduce starts on a second stream at d + 200 us; it ends everywhere 250 us after its last rank came. A copy of 20 us follows. --megabytes fills each file
up with CPU operators and Python frames, which change no share. Prints the expected shares as JSON."""
import argparse
import json
import pathlib

PERIOD, KERNELS, KERNEL, PAUSE, COMM_AFTER, COMM, COPY = 1000, 10, 30, 2, 200, 250, 20
BASE_NS = 1_790_000_000_000_000_000
START_US = 5_000_000_000_000
ELEMENTS = 1 << 20


def wait_of(rank, late):
    return 400 if rank == late else 100


def expected(ranks, late):
    """Shares of a step in us, by rank."""
    arrivals = [wait_of(r, late) + COMM_AFTER for r in range(ranks)]
    end = max(arrivals) + COMM
    result = []
    for r in range(ranks):
        data = wait_of(r, late)
        compute_end = data + KERNELS * KERNEL + (KERNELS - 1) * PAUSE
        # Pauses between kernels after the all_reduce began are filled by it; those before are gaps.
        starts = [data + i * (KERNEL + PAUSE) for i in range(KERNELS)]
        inside = sum(PAUSE for i in range(KERNELS - 1) if starts[i] + KERNEL >= arrivals[r])
        early = (KERNELS - 1) * PAUSE - inside
        overlapped = sum(max(0, min(s + KERNEL, end) - max(s, arrivals[r])) for s in starts)
        waiting_until = max(arrivals)
        imbalance = max(0, waiting_until - compute_end) + sum(
            PAUSE for i in range(KERNELS - 1) if starts[i] + KERNEL >= arrivals[r] and starts[i] + KERNEL < waiting_until)
        exposed = end - arrivals[r] - overlapped - imbalance
        compute = KERNELS * KERNEL
        gap = PERIOD - data - compute - imbalance - exposed - COPY
        result.append({"compute": compute, "exposed_communication": exposed, "imbalance": imbalance, "copy": COPY, "data_wait": data, "gap": gap,
                       "overlapped_communication": overlapped})
        assert early + PERIOD - end - COPY == gap, (r, early, gap)
    return result


class Clock:
    def __init__(self, offset_us, drift_ppm):
        self.offset_us, self.drift = offset_us, drift_ppm * 1e-6

    def text(self, us):
        return f"{START_US + us + self.offset_us + us * self.drift:.3f}"


def events_of_step(rank, step, ranks, late, clock, at, external):
    members = ", ".join(str(r) for r in range(ranks))
    comm_args = (f'"Collective name": "allreduce", "dtype": "Float", "In msg nelems": {ELEMENTS}, "Out msg nelems": {ELEMENTS}, "Group size": {ranks}, '
                 f'"Process Group Name": "0", "Process Group Description": "default_pg", "Process Group Ranks": "[{members}]"')
    data = wait_of(rank, late)
    arrivals = max(wait_of(r, late) + COMM_AFTER for r in range(ranks))
    end = arrivals + COMM

    def event(cat, name, pid, tid, begin, length, args=""):
        return (f'  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid},\n    "ts": {clock.text(at + begin)}, "dur": {length:.3f},\n'
                f'    "args": {{\n      {args}"External id": {external}\n    }}\n  }}')
    yield event("user_annotation", f"ProfilerStep#{step}", 4000 + rank, 4000 + rank, 0, PERIOD)
    yield event("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 4000 + rank, 4000 + rank, 0, data)
    yield event("cpu_op", "aten::mm", 4000 + rank, 4000 + rank, data, 5,
                '"Input type": ["float", "float"], "Input Dims": [[1024, 512], [512, 256]], "Concrete Inputs": ["", ""], ')
    launches = [(data + i * (KERNEL + PAUSE), external * 100 + i) for i in range(KERNELS)] + [(data + COMM_AFTER, external * 100 + 50), (end, external * 100 + 51)]
    for begin, correlation in launches:
        yield event("cuda_runtime", "cudaLaunchKernel", 4000 + rank, 4000 + rank, begin - 1, 1, f'"cbid": 211, "correlation": {correlation}, ')
    for i in range(KERNELS):
        yield event("kernel", "void cutlass::Kernel2<sm80_gemm>", 0, 7, data + i * (KERNEL + PAUSE), KERNEL,
                    f'"device": 0, "stream": 7, "correlation": {external * 100 + i}, ')
    yield event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 0, 20, data + COMM_AFTER, end - data - COMM_AFTER,
                f'"device": 0, "stream": 20, "correlation": {external * 100 + 50}, {comm_args}, ')
    yield event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 0, 7, end, COPY,
                f'"device": 0, "stream": 7, "correlation": {external * 100 + 51}, "bytes": 1024, ')


def filler(rank, at, clock, count, external):
    for i in range(count):
        name = ("aten::add", "aten::empty_strided", "autograd::engine::evaluate_function: AddmmBackward0", "aten::copy_")[i % 4]
        if i % 3 == 0:
            yield (f'  {{\n    "ph": "X", "cat": "python_function", "name": "torch/nn/modules/module.py({1700 + i % 50}): _call_impl", "pid": {4000 + rank}, '
                   f'"tid": {4000 + rank},\n    "ts": {clock.text(at + 500 + i % 400)}, "dur": 12.345,\n    "args": {{\n'
                   f'      "Python parent id": {i}, "Python id": {i + 1}, "Ev Idx": {external}\n    }}\n  }}')
        else:
            yield (f'  {{\n    "ph": "X", "cat": "cpu_op", "name": "{name}", "pid": {4000 + rank}, "tid": {4000 + rank},\n    "ts": {clock.text(at + 500 + i % 400)}, '
                   f'"dur": 1.250,\n    "args": {{\n      "External id": {external}, "Record function id": 0, "Concrete Inputs": ["", "[64, 512]", "6", "0", "", "False", ""], '
                   f'"Input type": ["float", "ScalarList", "Scalar", "Scalar", "", "Scalar", ""], "Input Strides": [[512, 1], [], [], [], [], [], []], '
                   f'"Input Dims": [[64, 512], [], [], [], [], [], []], "Ev Idx": {external}\n    }}\n  }}')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--late", type=int, default=-1)
    parser.add_argument("--offset-us", action="append", default=[])
    parser.add_argument("--drift-ppm", action="append", default=[])
    parser.add_argument("--first-step", action="append", default=[], help="RANK:STEP at which the rank's file begins")
    parser.add_argument("--host", action="store_true", help="write host names")
    parser.add_argument("--megabytes", type=int, default=0)
    given = parser.parse_args()
    by_rank = lambda texts, kind: {int(t.split(":")[0]): kind(t.split(":")[1]) for t in texts}
    offsets, drifts, firsts = by_rank(given.offset_us, float), by_rank(given.drift_ppm, float), by_rank(given.first_step, int)
    folder = pathlib.Path(given.folder)
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(given.ranks):
        clock = Clock(offsets.get(rank, 0), drifts.get(rank, 0))
        with open(folder / f"rank{rank}.json", "w") as out:
            out.write('{\n  "schemaVersion": 1,\n  "deviceProperties": [\n    {\n      "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85045608448\n    }\n  ],\n')
            out.write(f'  "distributedInfo": {{"backend": "nccl", "rank": {rank}, "world_size": {given.ranks}, "pg_count": 1}},\n')
            if given.host:
                out.write(f'  "host_name": "node{rank}",\n')
            out.write(f'  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": {BASE_NS},\n  "traceEvents": [\n')
            target = given.megabytes * 1_000_000
            external = 0
            first = True
            for step in range(firsts.get(rank, 0), given.steps):
                at = step * PERIOD
                external += 1
                text = ",\n".join(events_of_step(rank, step, given.ranks, given.late, clock, at, external))
                out.write(text if first else ",\n" + text)
                first = False
                if target:
                    missing = (target * (step + 1) // given.steps - out.tell()) // 420
                    extra = ",\n".join(filler(rank, at, clock, max(0, missing), external))
                    out.write(",\n" + extra if extra else "")
            out.write(f'\n  ],\n  "traceName": "rank{rank}.json"\n}}\n')
    print(json.dumps(expected(given.ranks, given.late)))


if __name__ == "__main__":
    main()
