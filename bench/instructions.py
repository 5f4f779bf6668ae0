"""Instructions that a data-parallel step needs, and how many of them record calls: `./dev bench instructions`. Two runs of different length under
callgrind each, so that start-up cancels out; about five minutes.

Callgrind counts what the program executes itself: of the three readings of the clock per call, which valgrind makes system calls, only the way there.
A step is counted on the thread that trains, its waiting for the other rank too, so it varies from run to run; recording does not. Every other step records: the
figure is that of a step that does."""
import pathlib
import re
import subprocess
import sys
import tempfile

BIN = pathlib.Path("build/dev/bin").resolve()
MODEL = sys.argv[1] if len(sys.argv) > 1 else "784-256-10"
PAIRS = (5, 25)
RECORDING = [f"trireme::profile::(anonymous namespace)::MappedTrace::{name}*" for name in ("queued", "started", "finished")]
STEP = ["double trireme::bench::step_ms*"]


def instructions(pairs, functions):
    """Of each rank."""
    with tempfile.TemporaryDirectory(prefix="trireme_instructions_") as folder:
        toggles = [f"--toggle-collect={name}" for name in functions]
        subprocess.run([BIN / "trireme", "run", "--run-dir", f"{folder}/run", "--nproc-per-node", "2", "valgrind", "--tool=callgrind", *toggles,
                        f"--callgrind-out-file={folder}/out.%p", BIN / "trireme-bench", "overhead", "--model", MODEL, "--repetitions", str(pairs)],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        texts = [path.read_text() for path in pathlib.Path(folder).glob("out.*")]
        counts = sorted(int(found[1]) for text in texts if (found := re.search(r"^summary: (\d+)", text, re.M)))
        if len(counts) != 2:
            sys.exit(f"callgrind left {len(counts)} summaries of 2 ranks; run the command by hand to see why")
        return counts


recording = [(b - a) / (PAIRS[1] - PAIRS[0]) for a, b in zip(*(instructions(pairs, RECORDING) for pairs in PAIRS))]
whole = [(b - a) / 2 / (PAIRS[1] - PAIRS[0]) for a, b in zip(*(instructions(pairs, STEP) for pairs in PAIRS))]
print("| model | rank | instructions of a step | of them recording | part |\n| --- | --- | --- | --- | --- |")
for rank, (mine, all_of_it) in enumerate(zip(recording, whole)):
    print(f"| {MODEL} | {rank} | {all_of_it:,.0f} | {mine:,.0f} | {100 * mine / all_of_it:.4f} % |")
