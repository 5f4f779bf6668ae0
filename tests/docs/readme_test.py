"""Oracle: README.md itself. Its program is the recipe of the repository to the letter, its commands build and run it, and print the lines that
stand below them: the same opening line but for its time, job and port, the same ranks and steps, and losses within 10 % (another CPU rounds
differently over 300 steps of training)."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(sys.argv[1]).resolve()
BUILD = pathlib.Path(sys.argv[2]).resolve()
OPENING = re.compile(r"^\S+ (I \[launch\] job )[0-9a-f]+(: \d+ ranks, logs in runs/)[0-9]{8}-[0-9]{6}-[0-9a-f]+(/logs, store 127\.0\.0\.1:)\d+(.*)$", re.M)
LINE = re.compile(r"\[rank(\d+)\]: rank (\d+) step (\d+) loss ([\d.]+)")

text = (ROOT / "README.md").read_text()
program = re.search(r"```cpp\n(.*?)```", text, re.S)[1]
console = re.search(r"```\n(\$ .*?)```", text, re.S)[1].splitlines()
commands = [line[2:] for line in console if line.startswith("$ ")]
want = {match.groups()[:3]: float(match[4]) for match in map(LINE.match, console) if match}
if len(program.splitlines()) > 15 or len(commands) != 2 or len(want) < 4:
    sys.exit(f"README: a program of {len(program.splitlines())} lines (at most 15), {len(commands)} commands (2), {len(want)} lines of output (4)")
if program != (ROOT / "recipes/hello_ddp/main.cpp").read_text():
    sys.exit("the program of README.md is not recipes/hello_ddp/main.cpp")
if BUILD != ROOT / "build/dev":
    print(f"the commands of README.md build in build/dev; this is {BUILD}")
    sys.exit(77)

subprocess.run(["bash", "-c", commands[0]], cwd=ROOT, check=True, stdin=subprocess.DEVNULL)
with tempfile.TemporaryDirectory(prefix="trireme_readme_") as scratch:  # the run leaves its folder there
    os.symlink(ROOT / "build", pathlib.Path(scratch) / "build")
    output = subprocess.run(["bash", "-c", commands[1]], cwd=scratch, check=True, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            env={k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}).stdout
got = {match.groups()[:3]: float(match[4]) for match in map(LINE.match, output.splitlines()) if match}
print(output)
if OPENING.findall(output) != OPENING.findall("\n".join(console)) or not OPENING.search(output):
    sys.exit(f"README.md shows {console[2]}")
if got.keys() != want.keys() or any(abs(got[key] - want[key]) > 0.1 * want[key] for key in want):
    sys.exit(f"README.md shows {want}")
