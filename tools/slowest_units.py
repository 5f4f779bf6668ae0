"""Prints the N translation units that took longest, of all given ninja logs: tools/slowest_units.py 10 build/*/.ninja_log"""
import pathlib
import sys

units = {}
for log in map(pathlib.Path, sys.argv[2:]):
    for line in log.read_text().splitlines()[1:]:
        start, end, _, output, _ = line.split("\t")
        if output.endswith((".o", ".gch")):
            units[f"{log.parent.name}: {output}"] = (int(end) - int(start)) / 1000
print(f"\n===== the {sys.argv[1]} slowest translation units (seconds; with a warm compiler cache they mean nothing)")
for unit, seconds in sorted(units.items(), key=lambda item: -item[1])[: int(sys.argv[1])]:
    print(f"{seconds:7.1f}  {unit}")
