"""Oracle: PyTorch's own memory viewer of the same wheel, whose accounting checks itself, and `trireme diagnose`; the sizes are what the program
that wrote the snapshot kept. Usage: snapshot_viewer_test.py PYTHON MEMORY_TOOL TRIREME"""
import importlib.util
import json
import pathlib
import pickle
import subprocess
import sys
import tempfile

PYTHON, TOOL, TRIREME = sys.argv[1:4]


def viewer_path():
    code = "import importlib.util; print(importlib.util.find_spec('torch').submodule_search_locations[0])"
    found = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True)
    if found.returncode != 0:
        print(f"skipped: no torch for {PYTHON}, so its memory viewer is not there")
        sys.exit(77)
    return pathlib.Path(found.stdout.strip()) / "cuda" / "_memory_viz.py"


def load(path):
    spec = importlib.util.spec_from_file_location("memory_viz", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def diagnose(*paths):
    done = subprocess.run([TRIREME, "diagnose", "--json", *map(str, paths)], capture_output=True, text=True)
    return json.loads(done.stdout)["findings"]


def main():
    script = viewer_path()
    viz = load(script)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        file = folder / "rank0.pickle"
        blocks, size, events = map(int, subprocess.run([TOOL, "snapshot", file], check=True, capture_output=True, text=True).stdout.split())
        data = pickle.loads(file.read_bytes())

        # Who holds it: the flame graph's lines are "stack bytes".
        lines = viz.memory(data, format_flamegraph=lambda text: text).splitlines()
        kept = [int(line.rsplit(" ", 1)[1]) for line in lines if "keeps_a_tensor()" in line]
        assert (len(kept), sum(kept)) == (blocks, size), (kept, blocks, size)
        assert len(viz.segments(data, format_flamegraph=lambda text: text).splitlines()) == len(data["segments"])
        assert "total_allocated" in viz.segsum(data)  # raises when its sums do not fit

        # What happened: every free belongs to an allocation, the times go up, and what is left over is what is alive.
        trace = data["device_traces"][0]
        assert len([e for e in trace if e["action"] != "free_completed"]) == events == data["trireme"]["recorded_events"]
        assert all(a["time_us"] <= b["time_us"] for a, b in zip(trace, trace[1:]))
        alive = {}
        for event in trace:
            if event["action"] == "alloc":
                assert event["addr"] not in alive
                alive[event["addr"]] = event["size"]
            elif event["action"] == "free_completed":
                assert alive.pop(event["addr"]) == event["size"]
        assert alive == {b["address"]: b["size"] for s in data["segments"] for b in s["blocks"]}
        assert viz.trace(data).startswith("Device 0")
        assert all(len(e["frames"]) > 3 for e in trace)

        # The program itself, as a user calls it.
        for command in (["trace_plot"], ["trace_plot", "-f"], ["segment_plot"]):
            page = folder / "page.html"
            done = subprocess.run([PYTHON, script, *command, file, "-o", page], check=True, capture_output=True, text=True)
            assert done.stdout == "", done.stdout  # "free_completed without free_requested"
            assert "snapshot.pickle" in page.read_text()
        assert subprocess.run([PYTHON, script, "stats", file], check=True, capture_output=True, text=True).stdout

        # Our own reader.
        finding, = diagnose(file)
        assert finding["cause"].startswith("CPU tensors: "), finding
        assert f"in {blocks} blocks from" in finding["advice"] and "keeps_a_tensor()" in finding["advice"], finding

        # The allocator refuses 128 TiB: the snapshot is there by itself and says so.
        subprocess.run([TOOL, "out-of-memory", folder / "oom.pickle"], check=True, capture_output=True)
        finding = diagnose(folder / "oom.pickle")[0]
        assert finding["cause"].startswith("the host ran out of memory: 128"), finding
        assert "keeps_a_tensor()" in finding["advice"], finding
        viz.trace(pickle.loads((folder / "oom.pickle").read_bytes()))
    print("snapshot of", events, "events: read by memory_viz and by trireme diagnose")


main()
