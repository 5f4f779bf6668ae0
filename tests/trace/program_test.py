"""Oracle: closed forms of make_trace.py, a second implementation of the shares in Python on random traces, and Python's own strict JSON parser."""
import gzip
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

program, here = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(__file__).resolve().parent
faults = []
KEYS = ("compute", "exposed_communication", "imbalance", "copy", "data_wait", "gap", "overlapped_communication")


def run(*args):
    return subprocess.run([str(program), *map(str, args)], capture_output=True, text=True)


def expect(what, truth):
    if not truth:
        faults.append(what)


def report(*paths):
    done = run("report", *paths, "--json")
    expect(f"{paths}: exit {done.returncode}: {done.stderr}", done.returncode == 0)
    return json.loads(done.stdout) if done.returncode == 0 else None


def make(folder, *args):
    done = subprocess.run([sys.executable, str(here / "make_trace.py"), str(folder), *args], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def closed_form(folder):
    """Shares, culprit and cause; the clocks of two ranks are wrong, and one file begins later."""
    for late, clocks in ((2, ["--offset-us", "1:1234.5", "--offset-us", "3:-90000"]), (0, ["--offset-us", "2:250000000"]), (-1, [])):
        place = folder / f"late{late}"
        want = make(place, "--late", str(late), "--steps", "30", "--first-step", "1:7", *clocks)
        got = report(place)
        for rank, shares in enumerate(want):
            for key in KEYS:
                # Times are written with three digits of a us and the clocks aligned to the ns.
                expect(f"late {late} rank {rank} {key}: {got['ranks'][rank]['shares'][key] * 1000} us, not {shares[key]}",
                       abs(got["ranks"][rank]["shares"][key] * 1000 - shares[key]) < 0.01)
        expect(f"late {late}: steps {len(got['steps'])}", len(got["steps"]) == 30 and len(got["steps"][3]["ranks"]) == 3)
        texts = [verdict["text"] for verdict in got["verdicts"]]
        if late >= 0:
            wait = want[1]["imbalance"] / 1000
            expect(f"late {late}: {texts}", any(f"{100 * wait:.0f} % of the step waits for rank {late}'s data loader" in text for text in texts))
            expect(f"late {late}: {got['ranks'][late]}", got["ranks"][late]["num_last"] >= 23 and abs(got["ranks"][late]["others_wait_ms"] - wait) < 1e-4)
        else:
            expect(f"nobody is late: {texts}", not any("waits for rank" in text for text in texts))
        # 23 or 30 steps of 4 MiB over 4 ranks: 2 S / n to each other.
        each = 2 * 4 * (1 << 20) / 4
        expect(f"matrix {got['matrix_bytes']}", got["matrix_bytes"][0][1] == 30 * each and got["matrix_bytes"][1][0] == 23 * each)
        expect(f"flops {got['operators']}", got["operators"] == [{"name": "aten::mm", "num_calls": 113, "flops": 113 * 2.0 * 1024 * 512 * 256}])
    mfu = json.loads(run("report", folder / "late-1", "--json", "--peak-tflops", "2").stdout)["mfu"]
    expect(f"mfu {mfu}", abs(mfu - 2.0 * 1024 * 512 * 256 / 1e-3 / 2e12) < 1e-9)
    # NVIDIA's data sheet of the H100, dense: 989.4 TFLOP/s in bf16, 494.7 in tf32.
    for more, peak in ([], 989.4e12), (["--precision", "tf32"], 494.7e12):
        mfu = json.loads(run("report", folder / "late-1", "--json", "--device", "h100", *more).stdout)["mfu"]
        expect(f"mfu of a device {more}: {mfu}", abs(mfu * peak / (2.0 * 1024 * 512 * 256 / 1e-3) - 1) < 1e-9)


def drift(folder):
    """1.2 s of steps: a drift of 40 ppm, which would be 48 us, is found from the trace."""
    make(folder, "--steps", "1200", "--ranks", "2", "--late", "1", "--drift-ppm", "1:40", "--offset-us", "1:5000")
    got = report(folder)["ranks"][1]
    expect(f"drift {got['clock']}", abs(got["clock"]["drift_ppm"] - 40) < 0.1 and got["clock"]["residual_p95_us"] < 0.1)


def brute(events, lanes, steps):
    """The shares of one rank, asked at the middle of every stretch between two ends."""
    cuts = sorted({t for begin, end, *_ in events for t in (begin, end)} | {t for step in steps for t in step})
    shares = [dict.fromkeys(KEYS, 0) for _ in steps]
    for begin, end in zip(cuts, cuts[1:]):
        middle = (begin + end) / 2
        active = set()
        for lane in lanes:
            kinds = {kind for b, e, where, kind in events if where == lane and b <= middle < e}
            for kind in ("comm", "data", "compute", "copy"):
                if kind in kinds:
                    active.add(kind)
                    break
        share = ("compute" if "compute" in active else "exposed_communication" if "comm" in active else "copy" if "copy" in active
                 else "data_wait" if "data" in active else "gap")
        for (first, last), result in zip(steps, shares):
            if first <= middle < last:
                result[share] += end - begin
                if share == "compute" and "comm" in active:
                    result["overlapped_communication"] += end - begin
    return shares


def random_traces(folder):
    """One rank, random spans on threads (no GPU) or on streams and threads."""
    kinds = {True: {"comm": ("kernel", "ncclDevKernel_AllReduce"), "compute": ("kernel", "gemm"), "copy": ("gpu_memcpy", "Memcpy HtoD"),
                    "data": ("user_annotation", "enumerate(DataLoader)#x")},
             False: {"comm": ("user_annotation", "gloo:all_reduce"), "compute": ("cpu_op", "aten::mm"), "data": ("user_annotation", "enumerate(DataLoader)#x")}}
    rng = random.Random(5)
    for trial in range(25):
        gpu = trial % 2 == 0
        lanes = [("GPU", 7), ("GPU", 20), ("cpu", 1), ("cpu", 2)] if gpu else [("cpu", 1), ("cpu", 2), ("cpu", 3)]
        events, lines = [], []
        steps = [(0, 4000), (4000, 9000)]
        for number, (first, last) in enumerate(steps):
            lines.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": "cpu", "tid": 1, "ts": first, "dur": last - first})
        for _ in range(rng.randrange(120)):
            kind = rng.choice(list(kinds[gpu]))
            if not gpu:
                lane = rng.choice(lanes)
            else:
                lane = rng.choice(lanes[2:] if kind == "data" else lanes[:2])
            begin, length = rng.randrange(0, 9500), rng.randrange(0, 700)
            events.append((begin, begin + length, lane, kind))
            category, name = kinds[gpu][kind]
            lines.append({"ph": "X", "cat": category, "name": name, "pid": lane[0], "tid": lane[1], "ts": begin, "dur": length})
        if gpu and not any(kind in ("comm", "compute", "copy") for *_, kind in events):
            continue
        rng.shuffle(lines)
        path = folder / f"random{trial}.json"
        path.write_text(json.dumps(lines if trial % 3 else {"traceEvents": lines}))
        got = report(path)
        for step, want in zip(got["steps"], brute(events, lanes, steps)):
            total = sum(want[key] for key in KEYS[:6])
            for key in KEYS:
                have = step["ranks"][0]["shares"][key] * total
                expect(f"{path.name} step {step['step']} {key}: {have}, not {want[key]}", abs(have - want[key]) < 1e-6 * total)


def merged(folder):
    """One file, strict JSON, all spans of all ranks, clocks aligned; slices above the limit."""
    make(folder, "--late", "1", "--ranks", "3", "--steps", "10", "--offset-us", "2:777")
    sources = [json.loads((folder / f"rank{r}.json").read_text()) for r in range(3)]
    done = run("merge", folder, "-o", folder / "all.json.gz")
    expect(f"merge: {done.stderr}", done.returncode == 0 and "777" in done.stdout.replace("0.777", "777"))
    strict = json.loads(gzip.open(folder / "all.json.gz").read().decode(), parse_constant=lambda text: faults.append(f"{text} is no JSON"))
    spans = [event for event in strict["traceEvents"] if event["ph"] == "X"]
    expect(f"merge keeps {len(spans)} spans", len(spans) == sum(len(source["traceEvents"]) for source in sources))
    expect("pids are ranks", {event["pid"] for event in strict["traceEvents"]} == {0, 1, 2})
    ends = {}
    for event in spans:
        if "nccl" in event["name"]:
            ends.setdefault(event["pid"], []).append(event["ts"] + event["dur"])
    gaps = [abs(a - b) for rank in (1, 2) for a, b in zip(sorted(ends[0]), sorted(ends[rank]))]
    expect(f"ends differ by {max(gaps)} us", max(gaps) < 0.01)
    again = run("report", folder / "all.json.gz")
    expect(f"a merged trace is refused: {again.stderr}", again.returncode == 2 and "holds several ranks" in again.stderr)
    sliced = run("merge", *(folder / f"rank{r}.json" for r in range(3)), "-o", folder / "part.json", "--limit-mb", "0", "--json")
    expect(f"--json {sliced.stdout}", json.loads(sliced.stdout)["files"][0]["num_events"] == len(strict["traceEvents"]))


def page(folder):
    """The page holds its data as JSON, needs no network, and a name cannot end its script."""
    (folder / "rank0.json").write_text(json.dumps([{"ph": "X", "cat": "cpu_op", "name": "</script><b>\u20ac", "pid": 1, "tid": 1, "ts": 0, "dur": 10}]))
    done = run("report", folder / "rank0.json", "--html", folder / "page.html")
    text = (folder / "page.html").read_text()
    expect(f"page: {done.stderr}", done.returncode == 0 and text.count("</script>") == 1 and "http" not in text and "src=" not in text)
    data = json.loads(text.split("const DATA = ")[1].split(";\nconst report")[0])
    expect("the page's data", data["names"] == ["</script><b>\u20ac"] and data["report"]["schema"] == 1)


def words(folder):
    """Wrong use and what cannot be read."""
    (folder / "empty.json").write_text("")
    (folder / "text.json").write_text("hello")
    (folder / "cut.json.gz").write_bytes(gzip.compress(json.dumps([{"ph": "X", "name": f"n{i}", "pid": 1, "tid": 1, "ts": i, "dur": 1} for i in range(5000)]).encode())[:-2000])
    for args, code, text in [
        (["report"], 2, "required"),
        (["report", folder / "none.json"], 1, "cannot be opened: No such file or directory"),
        (["report", folder / "empty.json"], 2, "is empty"),
        (["report", folder / "text.json"], 2, "is no Chrome trace"),
        (["report", folder], 1, "holds no trace"),
        (["report", "/dev/null"], 1, "is not a regular file"),
        (["reprot"], 2, "did you mean 'report'?"),
        (["report", "x", "--htlm", "y"], 2, "did you mean '--html'?"),
        (["report", "x", "--peak-tflops", "nan"], 2, "--peak-tflops is 'nan'"),
        (["report", "x", "--device", "H10O"], 2, "no device is called 'H10O'"),
        (["report", "x", "--device", "A100", "--precision", "fp8"], 2, "--precision is 'fp8', and the peak of A100-80 is known for"),
        (["report", "x", "--device", "A100", "--peak-tflops", "3"], 2, "--device and --peak-tflops exclude each other"),
        (["report", "x", "--precision", "bf16"], 2, "--precision goes with --device, which is not given"),
        (["merge", "x"], 2, "required"),
        (["merge", folder / "text.json", "-o", folder / "x.json"], 2, "is no Chrome trace"),
        (["merge", folder / "cut.json.gz", "-o", "/proc/x/y.json"], 1, "creating '/proc/x/y.json.new' failed"),
        (["export", folder, "-o", folder / "out"], 1, "has no trace/rankN.trace"),
        (["export", folder, "-o", folder / "out", "--format", "flight-recorder", "--gzip"], 2, "--gzip goes with --format chrome"),
        (["export", folder, "-o", folder / "out", "--format", "pickle"], 2, "flight-recorder-json"),
    ]:
        done = run(*args)
        expect(f"{args}: exit {done.returncode}: {done.stderr}", done.returncode == code and text in done.stderr and len(done.stderr.splitlines()) == 1)
    # Found in a folder: what cannot be read is left out and named; a pipe does not block.
    place = folder / "some"
    make(place, "--ranks", "2", "--steps", "3")
    (place / "rank2.json").write_text("hello")
    os.mkfifo(place / "rank3.json")
    done = run("report", place)
    expect(f"left out: {done.stdout} {done.stderr}", done.returncode == 0 and done.stdout.startswith("2 ranks, 3 steps") and "rank2.json' is no Chrome trace" in done.stdout
           and "rank3.json' is not a regular file" in done.stdout)
    done = run("merge", place, "-o", folder / "some.json")
    expect(f"left out: {done.stderr}", done.returncode == 0 and "left out" in done.stderr)
    expect("a pipe that is named", run("report", place / "rank3.json").returncode == 1)
    done = run("report", folder / "cut.json.gz")
    expect(f"cut gzip: {done.stdout} {done.stderr}", done.returncode == 0 and "the gzip stream is cut off" in done.stdout and "lower limit" in done.stdout)
    for command in ("report", "merge", "export"):
        done = run(command, "--help")
        expect(f"{command} --help", done.returncode == 0 and f"trireme trace {command}" in done.stdout)


tests = [closed_form, drift, random_traces, merged, page, words]
for test in tests:
    with tempfile.TemporaryDirectory() as name:
        test(pathlib.Path(name))
print(*faults, sep="\n")
print(f"{len(tests)} tests, {len(faults)} faults")
sys.exit(1 if faults else 0)
