"""Oracle: fakes of nvidia-smi, ssh and NVIDIA's libraries, whose behaviour this test knows; the exit codes of docs/errors.md; for measured links
only that data arrived unchanged and that every pair is there."""
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import time

trireme, fakes = pathlib.Path(sys.argv[1]).resolve(), str(pathlib.Path(sys.argv[2]).resolve())
faults = []
folder = tempfile.TemporaryDirectory()
root = pathlib.Path(folder.name)


def expect(what, truth):
    if not truth:
        faults.append(what)


def run(*args, path=None, env=None, stdin=None):
    environment = {"PATH": (f"{path}:" if path else "") + os.environ["PATH"], "HOME": folder.name} | (env or {})
    start = time.monotonic()
    done = subprocess.run([str(trireme), "doctor", *args], capture_output=True, text=True, env=environment, cwd=folder.name, input=stdin)
    done.seconds = time.monotonic() - start
    return done


def script(name, text):
    place = root / name.replace("/", "-")
    place.mkdir(exist_ok=True)
    program = place / name.split("/")[-1]
    program.write_text("#!/bin/sh\n" + text)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return place


def rows(done):
    return {row["name"]: row for row in json.loads(done.stdout)["checks"]}


# A host as it is: a row for each probe, warnings at most, in well under the probes' limits.
done = run("--json")
report = json.loads(done.stdout)
expect(f"exit {done.returncode}: {done.stderr}", done.returncode in (0, 3) and not done.stderr)
expect(f"schema: {done.stdout[:100]}", report["schema"] == 1 and set(report) >= {"findings", "facts", "checks"})
for name in ("NVIDIA driver", "IB and RoCE ports", "interfaces", "host name", "shared memory", "limits", "memory", "CPUs", "kernel log", "clock"):
    expect(f"no row {name}", name in rows(done))
text = run()
expect("the table has the rows", all(row in text.stdout for row in ("NVIDIA driver", "shared memory", "kernel log")))
expect("no escapes where there is no terminal", "\x1b" not in text.stdout)

# nvidia-smi refuses its flags, hangs, is missing: three messages, a time limit, and never "0 GPUs".
refuses = script("refuses/nvidia-smi", "echo 'The -i command line argument must be used in conjunction with -n or -p.'\nexit 1\n")
hangs = script("hangs/nvidia-smi", "sleep 1000\n")
works = script("works/nvidia-smi", """case "$*" in
-q) printf 'Driver Version                            : 550.54.15\\nCUDA Version                              : 12.4\\n\\nAttached GPUs : 2\\n'
    printf 'GPU 00000000:07:00.0\\n    Product Name                          : NVIDIA H100\\nGPU 00000000:08:00.0\\n    Product Name                          : NVIDIA H100\\n' ;;
'topo -m') printf '\\tGPU0\\tGPU1\\tCPU Affinity\\tNUMA Affinity\\nGPU0\\t X \\tNV18\\t0-3\\t0\\nGPU1\\tNV18\\t X \\t0-3\\t0\\n' ;;
*) exit 9 ;;
esac
""")
said = {}
for name, path in (("refuses", refuses), ("hangs", hangs), ("missing", None)):
    done = run("--json", path=path)
    row = rows(done)["NVIDIA driver"]
    said[name] = row["text"]
    expect(f"{name}: {row}", "0 GPUs" not in done.stdout and json.loads(done.stdout)["facts"]["topology"] is None)
    expect(f"{name}: took {done.seconds} s", done.seconds < 60)
    if name != "missing":
        expect(f"{name}: exit {done.returncode}", done.returncode == 3 and row["state"] == "error")
expect(f"three messages: {said}", len(set(said.values())) == 3 and "exit code 1" in said["refuses"] and "does not answer within" in said["hangs"])
done = run("--json", path=works)
report = json.loads(done.stdout)
expect(f"a driver that works: {rows(done)['NVIDIA driver']}", rows(done)["NVIDIA driver"]["text"] == "550.54.15, CUDA up to 12.4; 2 x NVIDIA H100")
expect("its topology", report["facts"]["topology"]["links"] == [["X", "NV18"], ["NV18", "X"]] and report["facts"]["versions"]["driver"] == "550.54.15")

# Saved outputs: what is wrong decides the exit code; so does a file that says nothing.
(root / "ok.txt").write_text("     GPU0 GPU1\nGPU0  X   NV4\nGPU1 NV4   X\n")
(root / "bad.log").write_text("[1.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n")
(root / "escape.log").write_text("[1.0] NVRM: Xid (PCI:0000:3b:00): 79, \x1b]0;owned\x07\x1b[31m\n")
(root / "prose.txt").write_text("nothing of interest\n")
for files, code, words in [(["ok.txt"], 0, "2 GPUs, NV4 between all"), (["ok.txt", "bad.log"], 3, "bad.log:1:"), (["prose.txt"], 1, "nothing that is known"),
                           (["missing.txt"], 1, "No such file"), (["ok.txt", "missing.txt"], 1, "NV4 between all"), (["escape.log"], 3, "fallen off")]:
    done = run("--from", *files)
    expect(f"--from {files}: exit {done.returncode}, {done.stdout}{done.stderr}", done.returncode == code and words in done.stdout)
    expect(f"--from {files}: control characters", not any(ord(c) < 32 and c != "\n" for c in done.stdout))
done = run("--from", "-", stdin=(root / "bad.log").read_text())
expect(f"--from -: {done.stdout}", done.returncode == 3 and "standard input:1" in done.stdout)

for args, words in [(["--form", "x"], "did you mean '--from'?"), (["--links", "--from", "x"], "--from"), (["--ranks", "1", "--links"], "from 2 to 64"), (["extra"], "extra")]:
    done = run(*args)
    expect(f"{args}: exit {done.returncode}: {done.stderr}", done.returncode == 2 and words in done.stderr and not done.stdout)

# Other hosts by a fake ssh: what it is given last is run here, but for hosts that are dead, slow, or of another time.
ssh = script("hosts/ssh", """while [ "$1" != -- ]; do shift; done
host=$2
case $host in
dead) echo "ssh: connect to host dead port 22: No route to host" >&2; exit 255 ;;
slow) sleep 1000 ;;
bare) date +%s%N; echo 'sh: trireme: not found' >&2; exit 127 ;;
future) date -d '+100 seconds' +%s%N; shift 2; exec sh -c "$*" | tail -n +2 ;;
*) shift 2; exec sh -c "$*" ;;
esac
""")
(root / "hosts").write_text("good1 slots=2\ndead\nslow\nbare\ngood2\n")
done = run("--hostfile", "hosts", "--host-limit", "20", "--json", path=ssh)
report = json.loads(done.stdout)
unreachable = {finding["host"]: finding["cause"] for finding in report["findings"] if finding["code"] == "hosts.unreachable"}
expect(f"hosts: {report['hosts']}", report["hosts"] == ["good1", "good2"])
expect(f"unreachable: {unreachable}", sorted(unreachable) == ["bare", "dead", "slow"] and "No route to host" in unreachable["dead"]
       and "no answer within 20 s" in unreachable["slow"] and "not found" in unreachable["bare"])
expect(f"exit {done.returncode}", done.returncode == 3)
expect("rows have their host", {row["host"] for row in report["checks"]} >= {"good1", "good2", "dead"})
expect("clocks", any(row["name"] == "clocks" and row["state"] == "ok" for row in report["checks"]))
(root / "hosts").write_text("good1\nfuture\n")
done = run("--hostfile", "hosts", path=ssh)
expect(f"clocks 100 s apart: {done.stdout}", "the clocks of future and good1 are" in done.stdout)
expect(f"one row for what is well: {done.stdout}", len([row for row in done.stdout.splitlines() if row.startswith("ok       good1")]) == 1)
(root / "hosts").write_text("-oProxyCommand=x\n")
done = run("--hostfile", "hosts", path=ssh)
expect(f"a host that is an option: {done.stderr}", done.returncode == 2 and "hosts:1:" in done.stderr)

# Links: every pair, unchanged data. GPUs are fakes. Under ThreadSanitizer three ranks take as long as the usual limit of 60 s.
done = run("--links", "--ranks", "3", "--link-limit", "600", "--json")
report = json.loads(done.stdout)
links = report["facts"]["links"]
expect(f"links: {done.stdout}{done.stderr}", done.returncode == 0)
for kind in ("shared memory", "TCP"):
    expect(f"{kind}: {links}", [(link["from"], link["to"]) for link in links if link["kind"] == kind] == [(0, 1), (0, 2), (1, 2)])
expect(f"memcpy: {links}", [link["from"] for link in links if link["kind"] == "memcpy"] == [0, 1, 2])
expect(f"numbers: {links}", all(link["wrong"] == 0 and link["gb_per_s"] > 0 for link in links))
expect("latencies", all(link["median_latency_us"] > 0 for link in links if link["kind"] != "memcpy"))
gpu = {"LD_LIBRARY_PATH": fakes, "FAKE_GPUS": "3"}
done = run("--links", "--json", env=gpu)
links = json.loads(done.stdout)["facts"]["links"]
expect(f"GPU copies: {done.stdout}", len([link for link in links if link["kind"] == "GPU copy" and link["peer"] and link["wrong"] == 0]) == 6)
expect(f"GPU all-reduce: {done.stdout}", [(link["from"], link["to"], link["wrong"]) for link in links if link["kind"] == "GPU all-reduce"] == [(0, 2, 0)])
done = run("--links", env=gpu | {"FAKE_WRONG": "1"})
expect(f"changed data: {done.stdout}", done.returncode == 3 and "bytes arrived changed" in done.stdout)
done = run("--json", env=gpu)
versions = json.loads(done.stdout)["facts"]["versions"]
expect(f"versions by dlopen: {versions}", versions["cuda"] == "12.4" and versions["nccl"] == "2.23.4")
done = run("--json", env=gpu | {"FAKE_GPUS": "-1"})
expect(f"cuInit 802: {rows(done)['CUDA']}", done.returncode == 3 and "802" in rows(done)["CUDA"]["text"])

print(*faults, sep="\n")
sys.exit(1 if faults else 0)
