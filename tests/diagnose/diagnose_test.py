"""Oracle: by construction, through the program itself: dumps as pickles with a planted fault (of our own exporter, and of PyTorch's recorder where torch is
there), a job of `trireme run` with a stopped rank, hostile files, exit codes, the shape of the JSON.
Usage: diagnose_test.py TRIREME FLIGHT_RECORDER_TOOL PYTHON"""
import json
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time

TRIREME, TOOL, PYTHON = sys.argv[1:4]
folder = tempfile.TemporaryDirectory()
root = pathlib.Path(folder.name)
faults = []


def expect(what, good):
    if not good:
        faults.append(what)


def diagnose(*args, **options):
    done = subprocess.run([TRIREME, "diagnose", "--json", *map(str, args)], capture_output=True, text=True, cwd=root, timeout=120, **options)
    return done.returncode, json.loads(done.stdout) if done.stdout.startswith("{") else done.stderr


# The planted faults of our exporter, as pickles and as JSON.
for scenario, code, ranks in [("healthy", None, []), ("missing", "calls.not_entered", [2]), ("swapped", "calls.operation", [1]), ("shape", "calls.shape", [1])]:
    place = root / scenario
    place.mkdir()
    subprocess.run([TOOL, scenario, place], check=True)
    for form in ("dump", "json"):
        exit_code, report = diagnose(*sorted(place.glob(form + "_*")))
        first = report["findings"][0] if report["findings"] else {"code": None, "ranks": []}
        expect(f"{scenario} {form}: {exit_code} {report}", first["code"] == code and first["ranks"] == ranks and exit_code == (3 if code else 0))

# The shape of the JSON that is promised.
_, report = diagnose(root / "missing")
finding = report["findings"][0]
expect(f"keys: {report.keys()} {finding.keys()}", report["schema"] == 1 and {"cause", "severity", "confidence", "ranks", "advice", "evidence"} <= finding.keys()
       and {"file", "line", "text"} <= finding["evidence"][0].keys() and {"topology", "ports", "versions", "network", "memory"} <= report["facts"].keys())

# Pickles by Python: protocols 2 to 5, a class that would be made, a cut one.
good = pickle.loads((root / "missing/dump_0").read_bytes())
for protocol in range(6):
    place = root / f"protocol{protocol}"
    place.mkdir()
    for rank in range(3):
        (place / f"trace_rank_{rank}").write_bytes(pickle.dumps(pickle.loads((root / f"missing/dump_{rank}").read_bytes()), protocol))
    exit_code, report = diagnose(place)
    expect(f"protocol {protocol}: {report}", exit_code == 3 and report["findings"][0]["ranks"] == [2])


class Attack:
    def __reduce__(self):
        return os.system, (f"touch {root}/attacked",)


hostile = root / "hostile"
hostile.mkdir()
(hostile / "attack_0").write_bytes(pickle.dumps({"version": "2.7", "entries": [Attack()]}))
(hostile / "cut_1").write_bytes((root / "missing/dump_0").read_bytes()[:-40])
(hostile / "random").write_bytes(bytes(range(256)) * 64)
(hostile / "empty").write_bytes(b"")
(hostile / "long").write_bytes(b"x" * 3_000_000)
exit_code, report = diagnose(hostile)
notes = {pathlib.Path(file["file"]).name: file["note"] for file in report["files"]}
expect(f"hostile: {exit_code} {notes}", exit_code in (0, 3) and not (root / "attacked").exists() and "cut off" in notes["cut_1"] and notes["empty"] == "empty"
       and notes["attack_0"] == "1 entries are no entries and were left out" and all(notes.values()))

# A pipe is read to its end; one that nobody writes to is the caller's wait, as for any program, so a folder passes over it.
os.mkfifo(root / "pipes")
writer = subprocess.Popen(["sh", "-c", f"printf 'RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 30000 ms\\n' > {root}/pipes"])
exit_code, report = diagnose(root / "pipes")
writer.wait()
expect(f"pipe: {exit_code} {report}", exit_code == 3 and report["findings"][0]["ranks"] == [1])
standard_input = subprocess.run([TRIREME, "diagnose", "-"], input="step 1\n", capture_output=True, text=True, timeout=60)
expect(f"stdin: {standard_input}", standard_input.returncode == 0 and "nothing found" in standard_input.stdout)

for args, code, words in [(["--job", "ffffffffffff"], 2, "no job 'ffffffffffff'"), ([], 2, "nothing to read"), (["x", "--wrold-size", "3"], 2, "did you mean '--world-size'"),
                          (["x", "--world-size", "0"], 2, "--world-size"), (["none"], 1, "")]:
    done = subprocess.run([TRIREME, "diagnose", *args], capture_output=True, text=True, cwd=root, timeout=60)
    expect(f"{args}: {done}", done.returncode == code and words in done.stderr)

# A job that runs, with a stopped rank, and the same after its end.
ready = root / "ready"
ready.mkdir()
job = subprocess.Popen([TRIREME, "run", "--nproc-per-node", "2", "sh", "-c", f"touch {ready}/$RANK; echo $$ > {ready}/pid$RANK; exec sleep 600"], cwd=root,
                       stderr=subprocess.PIPE, text=True)
job_id = re.search(r"job ([0-9a-f]{12}):", job.stderr.readline())[1]
deadline = time.monotonic() + 60
while not all((ready / f"pid{rank}").exists() and (ready / f"pid{rank}").read_text().strip() for rank in (0, 1)) and time.monotonic() < deadline:
    time.sleep(0.02)
exit_code, report = diagnose("--job", job_id)
expect(f"healthy job: {exit_code} {report}", exit_code == 0 and not report["findings"])
pid = int((ready / "pid1").read_text())
os.kill(pid, signal.SIGSTOP)
while pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T" and time.monotonic() < deadline:
    time.sleep(0.02)
exit_code, report = diagnose("--job", job_id[:8])
expect(f"stopped: {exit_code} {report}", exit_code == 3 and report["findings"][0]["code"] == "rank.stopped" and report["findings"][0]["ranks"] == [1])
os.kill(pid, signal.SIGKILL)
job.communicate(timeout=60)
exit_code, report = diagnose("--job", job_id)
expect(f"killed: {exit_code} {report}", exit_code == 3 and report["findings"][0]["code"] == "rank.killed" and report["findings"][0]["ranks"] == [1])

# PyTorch's own recorder, over gloo: rank 1 leaves out an all_reduce.
REAL = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(4):
    dist.all_reduce(torch.ones(8))
    if step < 3 or rank == 0:
        dist.broadcast(torch.ones(3), 0, async_op=True)
work = dist.all_reduce(torch.ones(5), async_op=True)
open(f"{sys.argv[1]}/trace_rank_{rank}", "wb").write(torch._C._distributed_c10d._dump_fr_trace(True, True, False))
os._exit(0)
"""
has_torch = subprocess.run([PYTHON, "-c", "import torch; torch._C._distributed_c10d._dump_fr_trace"], capture_output=True).returncode == 0
if has_torch:
    place = root / "real"
    place.mkdir()
    (root / "real.py").write_text(REAL)
    subprocess.run([TRIREME, "run", "--nproc-per-node", "2", "--log-dir", str(root / "real_runs"), PYTHON, "-W", "ignore", str(root / "real.py"), str(place)], capture_output=True,
                   timeout=240, cwd=root, env={**os.environ, "TORCH_FR_BUFFER_SIZE": "200", "OMP_NUM_THREADS": "1"})
    dumps = sorted(place.glob("trace_rank_*"))
    exit_code, report = diagnose(place)
    codes = [finding["code"] for finding in report["findings"]]
    expect(f"torch: {len(dumps)} dumps, {exit_code} {report}", len(dumps) == 2 and codes and codes[0] in ("calls.missing", "calls.extra", "calls.operation"))
    print("torch's own recorder:", report["findings"][0]["cause"] if codes else report)
else:
    print("no torch here: its own recorder was not run")

print(*faults, sep="\n")
sys.exit(1 if faults else 0)
