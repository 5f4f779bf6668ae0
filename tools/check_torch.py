"""Type-checks every LibTorch translation unit of build/dev against the headers of another LibTorch: tools/check_torch.py build/dev INCLUDE_DIR

INCLUDE_DIR is the `include` folder of that LibTorch; no library of it is needed. The commands are those of the build with the folder replaced;
each precompiled header is made anew, once, since it holds most of the time."""
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time

build = pathlib.Path(sys.argv[1]).resolve()
headers = str(pathlib.Path(sys.argv[2]).resolve())
source = pathlib.Path.cwd()
work = build.parent / "check-torch" / headers.strip("/").replace("/", "_")
work.mkdir(parents=True, exist_ok=True)
jobs = int(os.environ.get("TRIREME_JOBS") or os.cpu_count())


def arguments_of(entry):
    """The command without launcher, output and dependency files, and the precompiled header that it includes, if any."""
    words = shlex.split(entry["command"])
    if pathlib.Path(words[0]).name == "ccache":
        words = words[1:]
    kept, pch, skip = [], None, False
    for index, word in enumerate(words):
        if skip:
            skip = False
        elif word in ("-o", "-MF", "-MT"):
            skip = True
        elif word == "-include" and words[index + 1].endswith("cmake_pch.hxx"):
            pch, skip = pathlib.Path(words[index + 1]), True
        elif word not in ("-c", "-MD", "-Winvalid-pch", entry["file"]):
            kept.append(word)
    torch = next(pathlib.Path(word) for word in kept if word.endswith("torch/include"))
    return [word.replace(str(torch), headers) for word in kept], pch


def run(command, cwd):
    begun = time.monotonic()
    result = subprocess.run(command, cwd=cwd, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return result.returncode, result.stdout, time.monotonic() - begun


units = []
for entry in json.loads((build / "compile_commands.json").read_text()):
    file = pathlib.Path(entry["file"])
    if "torch/include" in entry["command"] and file.suffix == ".cpp" and not file.name.startswith("pch_"):
        units.append((entry, *arguments_of(entry)))
if not units:
    sys.exit(f"no LibTorch unit in {build}/compile_commands.json")

made = {}
for entry, arguments, pch in units:
    if pch and pch not in made:
        made[pch] = work / (pch.parent.name.removesuffix(".dir") + ".hxx")
        made[pch].write_text(pch.read_text())
        empty = made[pch].with_suffix(".cxx")  # as CMake does it: the header is included by an empty file
        empty.write_text("")
        code, output, seconds = run([*arguments, "-x", "c++-header", "-include", made[pch], "-c", empty, "-o", f"{made[pch]}.gch"],
                                    entry["directory"])
        print(f"{seconds:6.1f} s  {made[pch].name}", flush=True)
        if code:
            sys.exit(output)


def check(unit):
    entry, arguments, pch = unit
    include = ["-include", str(made[pch])] if pch else []
    return entry["file"], *run([*arguments, *include, "-fsyntax-only", entry["file"]], entry["directory"])


failed = 0
with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
    for file, code, output, seconds in pool.map(check, units):
        print(f"{seconds:6.1f} s  {'ok  ' if code == 0 else 'FAIL'}  {os.path.relpath(file, source)}", flush=True)
        if code:
            print(output, flush=True)
        failed += code != 0
print(f"{len(units)} units against {headers}: {failed} failed")
sys.exit(1 if failed else 0)
