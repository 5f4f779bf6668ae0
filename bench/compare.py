#!/usr/bin/env python3
"""Measures Trireme beside its peers on the same work, in one run: `./dev bench peers [comm|ddp|launch ...] [--rounds R]`.

Rounds are interleaved: each round runs every program once, so that whatever else the machine does hits all of them. A figure is the
median over the rounds of a program's own median; the spread is the smallest and largest of those. Writes WHAT.json and WHAT.md into
--out (default bench/results), with the command, the machine, the targets and whether each is met. Exit code 0 when every value was
right (a missed target is a figure, not an error), 3 when a result was wrong.
"""
import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "bench/peers"
BIN = ROOT / "build/dev/bin"
PYTHON = ROOT / ".venv/bin/python"
KIB, MIB = 1 << 10, 1 << 20


def run(command, **more):
    """The output of a command; its text when it fails."""
    env = os.environ | {"OMP_NUM_THREADS": "1"} | more.pop("env", {})
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=900, env=env, **more)
    if done.returncode not in (0, 3):
        sys.exit(f"compare: {' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def json_line(text):
    return json.loads(next(line for line in text.splitlines() if line.startswith("{")))


def trireme(*arguments):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        run([BIN / "trireme", "bench", *arguments, "--json", file])
        return json.loads(file.read_text())["rows"]


def torchrun(program, ranks):
    return [PYTHON, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", PEERS / program]


def mpirun(program, ranks):
    # Ranks beyond the processors need --oversubscribe, which also makes Open MPI yield while it waits.
    more = ["--oversubscribe"] if ranks > os.cpu_count() else ["--bind-to", "core"]
    return ["mpirun", "--allow-run-as-root", *more, "-n", ranks, program]


class Samples:
    """Medians of one program, by key, over the rounds."""

    def __init__(self):
        self.values = {}
        self.wrong = 0

    def add(self, key, value, wrong=0):
        self.values.setdefault(key, []).append(value)
        self.wrong += wrong

    def median(self, key):
        return statistics.median(self.values[key])

    def cell(self, key, digits=1):
        v = self.values.get(key)
        return "-" if not v else f"{statistics.median(v):.{digits}f} ({min(v):.{digits}f}-{max(v):.{digits}f})"


def size_name(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def verdict(met):
    return "met" if met else "NOT met"


def at_most(limit, value, of):
    return f"<= {limit}{of}: {verdict(value <= limit)}"


def rounds(options, what):
    for number in range(1, options.rounds + 1):
        print(f"{what}: round {number} of {options.rounds}", file=sys.stderr, flush=True)
        yield number


def json_rows(programs, names, unit, **more):
    """One row for each key of each program; `names` are what the parts of a key are called."""
    return [{"program": program, **more, **dict(zip(names, key)), unit: values}
            for program, samples in programs.items() for key, values in samples.values.items()]


class Report:
    def __init__(self, title, arguments):
        commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
        cpu = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
                   platform.machine())
        self.lines = [f"# {title}", "", f"Command: `./dev bench peers {arguments}`, commit {commit or 'unknown'}, "
                      f"{datetime.date.today()}, {os.cpu_count()} processors ({cpu}), load before {os.getloadavg()[0]:.1f}. "
                      "Median over the rounds of each program's median (smallest-largest); rounds interleaved.", ""]

    def table(self, header, rows):
        self.lines += ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
        self.lines += ["| " + " | ".join(row) + " |" for row in rows] + [""]

    def write(self, out, name, rows):
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{name}.md").write_text("\n".join(self.lines))
        (out / f"{name}.json").write_text(json.dumps({"schema": 1, "rows": rows}, indent=1) + "\n")
        print("\n".join(self.lines))


OPS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
# (operation, bytes): least ratio over Gloo, least ratio over MPI.
COMM_TARGETS = {("all_reduce", 4 * KIB): (30, None), ("all_reduce", MIB): (8, 1.6), ("all_reduce", 8 * MIB): (8, 2),
                ("all_reduce", 32 * MIB): (6, 2)}
COMM_TARGETS |= {(op, size): (3, 1) for op in OPS[1:] for size in (MIB, 8 * MIB, 32 * MIB)}


def comm_target(ours, gloo, mpi, key):
    op, size = key
    texts, met = [], True
    if key in COMM_TARGETS:
        over_gloo, over_mpi = COMM_TARGETS[key]
        met &= gloo.median(key) / ours.median(key) >= over_gloo
        texts.append(f">= {over_gloo}x Gloo")
        if over_mpi:
            met &= mpi.median(key) / ours.median(key) >= over_mpi
            texts.append(f">= {over_mpi}x MPI")
    if key == ("all_reduce", 4 * KIB):
        met &= ours.median(key) <= 20
        texts.append("<= 20 us")
    if op == "all_reduce" and size >= 8 * MIB:
        met &= ours.median(key) <= 1.5 * ours.median(("memcpy", size))
        texts.append("<= 1.5x memcpy")
    return f"{', '.join(texts)}: {verdict(met)}" if texts else ""


def compare_comm(options):
    with tempfile.TemporaryDirectory() as folder:
        mpi_program = Path(folder) / "comm_mpi"
        run(["mpicc", "-O2", PEERS / "comm_mpi.c", "-o", mpi_program])
        all_rows, all_wrong = [], 0
        report = Report("Collectives beside Gloo and Open MPI", options.text)
        for ranks in (2, 4):
            ours, gloo, mpi = samples = Samples(), Samples(), Samples()
            for _ in rounds(options, f"comm, {ranks} ranks"):
                for row in trireme("comm", "--ranks", ranks):
                    ours.add((row["op"], row["bytes"]), row["median_us"], row["wrong"])
                for other, command in ((gloo, torchrun("comm_gloo.py", ranks)), (mpi, mpirun(mpi_program, ranks))):
                    for row in json_line(run(command))["rows"]:
                        other.add((row["op"], row["bytes"]), row["median_us"], row["wrong"])
            sizes = sorted({size for _, size in ours.values})
            rows = []
            for op in OPS:
                for size in sizes:
                    key = (op, size)
                    if ranks == 2:
                        target = comm_target(ours, gloo, mpi, key)
                    elif op == "all_reduce" and size in (4 * KIB, MIB):
                        target = at_most(3, ours.median(key) / mpi.median(key), "x MPI")
                    else:
                        target = ""
                    memcpy = ours.median(key) / ours.median(("memcpy", size))
                    rows.append([op, size_name(size), ours.cell(key), gloo.cell(key), mpi.cell(key),
                                 f"{gloo.median(key) / ours.median(key):.1f}x", f"{mpi.median(key) / ours.median(key):.2f}x",
                                 f"{memcpy:.2f}x", target])
            report.lines += [f"## {ranks} ranks", ""]
            report.table(["operation", "tensor of a rank", "Trireme us", "Gloo us", "Open MPI us", "faster than Gloo", "faster than MPI",
                          "of a memcpy", "target"], rows)
            wrong = sum(s.wrong for s in samples)
            report.lines += [f"Elements that were wrong, over all programs: {wrong}. A memcpy of that size with every rank busy, us: " +
                             ", ".join(f"{size_name(s)} {ours.cell(('memcpy', s))}" for s in sizes) + ".", ""]
            all_rows += json_rows({"trireme": ours, "gloo": gloo, "mpi": mpi}, ("op", "bytes"), "medians_us", ranks=ranks)
            all_wrong += wrong
    report.write(options.out, "comm", all_rows)
    return all_wrong


# model: most of Python DDP's step, most of the local step.
DDP_TARGETS = {"784-256-10": (0.25, 1.3), "784-2048-2048-10": (0.4, 1.2), "784-60x128-10": (0.4, 1.2)}


def compare_ddp(options):
    ours, gloo = Samples(), Samples()
    report = Report("A data-parallel step beside Python DDP on Gloo, and beside the step without communication", options.text)
    for _ in rounds(options, "ddp"):
        for row in trireme("ddp", "--ranks", 2):
            for what in ("step_ms", "local_ms", "ratio", "bytes_touched", "gradient_bytes"):
                ours.add((row["model"], what), row[what])
        for row in json_line(run(torchrun("ddp_gloo.py", 2)))["rows"]:
            for what in ("step_ms", "view_step_ms", "local_ms"):
                gloo.add((row["model"], what), row[what])
    rows = []
    for model, (of_python, of_local) in DDP_TARGETS.items():
        step = ours.median((model, "step_ms"))
        python = step / gloo.median((model, "step_ms"))
        local = ours.median((model, "ratio"))
        rows.append([model, ours.cell((model, "step_ms"), 2), ours.cell((model, "local_ms"), 2), ours.cell((model, "ratio"), 2),
                     gloo.cell((model, "step_ms"), 2), gloo.cell((model, "view_step_ms"), 2), gloo.cell((model, "local_ms"), 2),
                     f"{python:.3f}", f"{ours.median((model, 'bytes_touched')):.0f} of {ours.median((model, 'gradient_bytes')):.0f}",
                     f"{at_most(of_python, python, 'x Python')}; {at_most(of_local, local, 'x local')}"])
    report.table(["model", "step ms", "local ms", "step / local", "Python DDP ms", "with bucket views ms", "Python local ms",
                  "of Python DDP", "bytes touched of gradient bytes", "target"], rows)
    report.write(options.out, "ddp", json_rows({"trireme": ours, "python": gloo}, ("model", "what"), "medians"))
    return 0


def compare_launch(options):
    ours, python = Samples(), Samples()
    report = Report("Start-up beside torchrun", options.text)
    hello, two, text = ("hello",), ("run true",), ("trireme --help",)  # keys
    for _ in rounds(options, "launch"):
        for row in trireme("launch", "--repetitions", 5):
            ours.add((row["what"],), row["median_ms"])
        start = time.perf_counter()
        run(torchrun("hello_gloo.py", 2))
        python.add(hello, (time.perf_counter() - start) * 1e3)
    of_torchrun = ours.median(hello) / python.median(hello)
    report.table(["what", "Trireme ms", "torchrun ms", "target"], [
        ["two-rank hello to exit", ours.cell(hello), python.cell(hello), f"{at_most(0.25, of_torchrun, 'x torchrun')} ({of_torchrun:.3f}x)"],
        ["trireme run --nproc-per-node 2 true", ours.cell(two), "", at_most(30, ours.median(two), " ms")],
        ["trireme --help", ours.cell(text), "", at_most(10, ours.median(text), " ms")]])
    report.write(options.out, "launch", json_rows({"trireme": ours, "torchrun": python}, ("what",), "medians_ms"))
    return 0


def main():
    kinds = {"comm": compare_comm, "ddp": compare_ddp, "launch": compare_launch}
    parser = argparse.ArgumentParser(prog="./dev bench peers", description=__doc__.split("\n\n")[0])
    parser.add_argument("what", nargs="*", metavar="comm|ddp|launch", help="which tables; default all")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds; default 5")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results", help="folder of the tables; default bench/results")
    options = parser.parse_args()
    unknown = set(options.what) - set(kinds)
    if unknown or options.rounds < 1:
        parser.error(f"unknown table {', '.join(sorted(unknown))}; known are comm, ddp, launch" if unknown else "--rounds must be 1 or more")
    options.text = " ".join(sys.argv[1:])
    wrong = sum(kinds[what](options) for what in options.what or kinds)
    sys.exit(3 if wrong else 0)


if __name__ == "__main__":
    main()
