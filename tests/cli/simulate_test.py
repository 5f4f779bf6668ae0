"""Oracle: closed forms (bubble of 1F1B; a ring's all-reduce) in what `trireme simulate` prints; XML, JSON and CSV readers on the files that it
writes; golden help; exit codes and messages of wrong use. Usage: simulate_test.py TRIREME SOURCE [--regen]"""
import csv
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml

trireme, source = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
golden = source / "tests/golden/cli/simulate_help.txt"
faults = []


def run(*args):
    return subprocess.run([trireme, "simulate", *map(str, args)], capture_output=True, text=True)


def expect(what, truth):
    if not truth:
        faults.append(what)


def result(*args):
    done = run(*args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def near(a, b):
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b), 1e-9)


text = run("--help").stdout
if "--regen" in sys.argv:
    golden.write_text(text)
expect(f"{golden} differs; look at the difference, then run tools/regen_golden.sh", golden.read_text() == text)

# 1F1B: (m + p - 1)(F + B) = (8 + 3) * 30 ms.
plain = result("--stages", 4, "--micro-batches", 8, "--activations-mb", 500, "--state-gb", 10)
expect(f"1f1b: {plain['step_ms']}", near(plain["step_ms"], 330) and near(plain["bubble"], 3 / 11) and plain["schema"] == 1)
expect("memory of rank r is p - r micro-batches", all(near(r["peak_gb"], 10 + 0.5 * (4 - r["rank"])) for r in plain["ranks"]))
for rank in plain["ranks"]:
    expect(f"parts of rank {rank}", near(sum(rank[k] for k in ("compute_ms", "exposed_ms", "bubble_ms", "outside_ms")), plain["step_ms"]))
expect("memory over time", all(near(max(b for _, b in s["memory_ms_gb"]), s["peak_gb"]) for s in plain["stages"]))

# What-ifs: each schedule's own closed form; a slow link and a slow rank cost time.
several = result("--compare", "gpipe,interleaved,zb1p,zb2p,zbv")
steps = {row["name"]: row["step_ms"] for row in several["compared"]}
expect(f"compared: {steps}", near(steps["gpipe"], 330) and near(steps["interleaved"], 285) and near(steps["zb1p"], 270) and near(steps["zb2p"], 270))
slow = result("--slow-rank", "2=1.3", "--message-mb", 100, "--compare-links", "5,100")
by_name = {row["name"]: row["step_ms"] for row in slow["compared"]}
expect(f"slow: {slow['step_ms']} {by_name}", by_name["nothing slow"] < slow["step_ms"] and by_name["links of 5 GB/s"] > slow["step_ms"] > by_name["links of 100 GB/s"])

# 100,000 GPUs cost what one replica costs: 2 (n-1)/n * 2 GB over 25 GB/s in a ring, and its latency of 2 (n-1) hops of 5 us.
began = time.monotonic()
many = result("--stages", 8, "--replicas", 12500, "--gradients-mb", 2000, "--topology", "ring", "--optimizer-ms", 3)
expect(f"100,000 GPUs: {many['reduce_ms']}", many["gpus"] == 100_000 and near(many["reduce_ms"], 2 * 12499 / 12500 * 80 + 2 * 12499 * 0.005))
tree = result("--stages", 8, "--replicas", 12500, "--gradients-mb", 2000, "--topology", "ring", "--optimizer-ms", 3, "--compare-topologies", "tree,rails")
expect(f"topologies: {tree['compared']}", {row["name"] for row in tree["compared"]} == {"reduced by tree", "reduced by rails"} and
       all(row["step_ms"] < tree["step_ms"] for row in tree["compared"]))
expect("the step waits for the reduction", many["step_ms"] > many["reduce_ms"] and many["exposed"] > 0.3)
large = result("--schedule", "interleaved", "--stages", 64, "--virtual-stages", 4, "--micro-batches", 256)
expect(f"{time.monotonic() - began:.1f} s for 100,000 GPUs and for 64 ranks of 4 stages with 256 micro-batches", time.monotonic() - began < 20)
expect("interleaved", near(large["step_ms"], 256 * 30 + 63 * 30 / 4))

# A model on a cluster: the closed forms of 'trireme plan' within 5 %; a better schedule, a slow rank.
llama = ["--model", "llama2-70b", "--cluster", "8x8xA100-80", "--global-batch", 256, "--seq-len", 4096, "--tensor-parallel", 8, "--stages", 4]
modelled = result(*llama, "--compare", "zb1p", "--slow-rank", "1=1.2")
rows = {row["name"]: row["step_ms"] for row in modelled["compared"]}
expect(f"model: {rows} {modelled['closed_form_ms']}", abs(rows["nothing slow"] / modelled["closed_form_ms"] - 1) < 0.05 and
       modelled["step_ms"] > 1.1 * rows["nothing slow"] and rows["zb1p"] < modelled["step_ms"])
expect("GPUs and replicas", modelled["gpus"] == 64 and "dp 2 x tp 8 x pp 4" in modelled["model"])
expect("fits", modelled["fits"] and modelled["too_many_bytes"] == 0 and "NOT" not in run(*llama).stdout)
# By hand: 18 bytes of state for each of 69e9 / 8 parameters are 155 GB already.
large = ["--model", "llama2-70b", "--cluster", "1x8xA100-80", "--global-batch", 16, "--seq-len", 4096, "--tensor-parallel", 2, "--stages", 4]
said = run(*large, "--compare", "gpipe")
small = result(*large, "--compare", "gpipe")
expect(f"a plan that does not fit: {said.stdout[-400:]}", not small["fits"] and small["too_many_bytes"] > 60e9 and said.stdout.count(": does NOT fit: pipeline rank ") == 2
       and f"{small['too_many_bytes']:.0f} bytes too many" in said.stdout)
expect("by how much", abs(small["too_many_bytes"] - (small["peak_gb"] * 1e9 - 80 * 2**30)) < 2 and not small["compared"][0]["fits"])
for args, words in [
    ([*llama, "--forward-ms", 3], "--forward-ms and --model: with a model it follows"),
    (["--cluster", "8xH100"], "--cluster goes with --model"),
    (["--model", "llama2-70b"], "--model needs --cluster and --global-batch"),
    ([*llama[:-1], 3], "--stages 3 x --tensor-parallel 8 must divide the 64 devices"),
]:
    done = run(*args)
    expect(f"{args}: {done.returncode} {done.stderr}", done.returncode == 2 and words in done.stderr and not done.stdout)

with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    done = run("--schedule", "zbv", "--svg", folder / "a.svg", "--trace", folder / "a.json", "--csv", folder / "a.csv", "--width", 100,
               "--message-mb", 10, "--replicas", 4, "--gradients-mb", 10)
    expect(done.stderr, done.returncode == 0 and all(len(line) <= 100 for line in done.stdout.splitlines() if line.startswith("rank ")))
    expect("a line for each rank", sum(line.startswith("rank ") for line in done.stdout.splitlines()) == 4)
    drawing = xml.parse(folder / "a.svg").getroot()
    expect("SVG", drawing.tag.endswith("svg") and len(list(drawing.iter("{http://www.w3.org/2000/svg}rect"))) > 4 * 8 * 2 * 3)
    events = json.loads((folder / "a.json").read_text())["traceEvents"]
    computed = [e for e in events if e["ph"] == "X" and e["tid"] == 0]
    expect(f"trace: {len(computed)}", len(computed) == 4 * 2 * 8 * 3 and {e["ph"] for e in events} == {"M", "X", "s", "f", "C"})
    rows = list(csv.reader(open(folder / "a.csv", newline="")))
    expect("CSV", len(rows) == 4 and rows[0][0] == "0F0")
    again = result("--schedule", folder / "a.csv", "--message-mb", 10)
    expect(f"own CSV: {again}", again["virtual_stages"] == 2)
    (folder / "compute.csv").write_text("0F0,0F1,,,0B0,0B1\n,1F0,1B0,1F1,1B1\n")
    expect("compute only", near(result("--schedule", folder / "compute.csv")["step_ms"], 90))
    (folder / "wrong.csv").write_text("0F0,0B0\n1F0,0SEND_F0,1B0\n")
    os.mkfifo(folder / "pipe")
    for flag in ("--svg", "--trace", "--csv"):
        for name, words in (("", f"{flag} is empty"), (folder, "Is a directory"), (folder / "pipe", "cannot write"), (folder / "none/x", "cannot write")):
            done = run(flag, name)
            expect(f"{flag} '{name}': {done.returncode} {done.stderr}", done.returncode in (1, 2) and words in done.stderr and not done.stdout and
                   len(done.stderr.splitlines()) == 1)
    done = run("--csv", "/dev/stdout")
    expect("a device is written to as it stands", done.returncode == 0 and done.stdout.startswith("0F0,") and stat.S_ISLNK(os.lstat("/dev/stdout").st_mode))
    for args, words in [
        (["--schedule", "/dev/zero"], "cannot read '/dev/zero': it is a device"),
        (["--schedule", folder / "pipe"], "it is a pipe; a schedule (CSV)"),
        (["--schedule", f"{folder}/"], "it is a folder"),
        (["--stags", "3"], "unknown flag '--stags'; did you mean '--stages'?"),
        (["--schedule", "1f1f"], "unknown schedule '1f1f'; did you mean '1f1b'?"),
        (["--schedule", folder / "wrong.csv"], "rank 1, position 1, 0SEND_F0: stage 0 is on rank 0"),
        (["--schedule", folder / "none.csv"], "cannot read"),
        (["--slow-rank", "4=2"], "--slow-rank 4=2: RANK=FACTOR is required, with a rank of 0 to 3"),
        (["--stage-factors", "1,2"], "--stage-factors has 2 numbers; one for each of 4 stages is required"),
        (["--topology", "star"], "unknown topology 'star'"),
        (["--stages", "two"], "--stages"),
        (["--forward-ms", "-1"], "--forward-ms is '-1'; a number from 0"),
        (["--message-mb", "inf"], "--message-mb is 'inf'; a number from 0"),
        (["--activations-mb", "nan"], "--activations-mb is 'nan'; a number from 0"),
        (["--compare-links", "25,0"], "--compare-links is '0'; a number from 1e-09"),
        (["--slow-rank", "1=inf"], "rank_slowdown is inf; a finite number"),
        (["--micro-batches", "100000000"], "--micro-batches is '100000000'; a whole number from 1 to 1,000,000"),
        (["--stages", "1000", "--micro-batches", "1000000"], "the product must be at most 4000000"),
    ]:
        done = run(*args)
        expect(f"{args}: {done.returncode} {done.stderr}", done.returncode in (1, 2) and words in done.stderr and not done.stdout)

print(*faults, sep="\n")
sys.exit(1 if faults else 0)
