"""Oracle: the limit itself. Compiling against LibTorch is what a build waits for, so the number of such translation units is capped; the
compile commands of this build say how many there are. Recipes are built one at a time and do not count."""
import collections
import json
import pathlib
import sys

LIMIT = 45
SOURCE = pathlib.Path(sys.argv[1])
commands = json.loads((pathlib.Path(sys.argv[2]) / "compile_commands.json").read_text())

units = set()
for entry in commands:
    path = pathlib.Path(entry["file"])
    if "torch/include" in entry["command"] and path.suffix == ".cpp" and path.is_relative_to(SOURCE) and not path.is_relative_to(SOURCE / "recipes"):
        units.add(str(path.relative_to(SOURCE)))
if "cmake/pch_aten.cpp" not in units:
    sys.exit("the precompiled header is not among the LibTorch units found: this test counts the wrong thing")
for folder, count in sorted(collections.Counter(str(pathlib.Path(unit).parent) for unit in units).items()):
    print(f"{count:3} {folder}")
print(f"{len(units)} LibTorch translation units of {len(commands)}, limit {LIMIT}")
sys.exit(1 if len(units) > LIMIT else 0)
