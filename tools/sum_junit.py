"""Sums what ctest wrote for each preset into build/<preset>/junit.xml and prints one closing line: 'N passed, N failed, N skipped'."""
import pathlib
import sys
import xml.etree.ElementTree

total = {"passed": 0, "failed": 0, "skipped": 0}
missing = []
reasons = {}
for preset in sys.argv[1:]:
    path = pathlib.Path("build") / preset / "junit.xml"
    if not path.exists():
        missing.append(preset)
        continue
    counts = dict.fromkeys(total, 0)
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        status = case.get("status")
        kind = "passed" if status == "run" else "failed" if status == "fail" else "skipped"
        counts[kind] += 1
        if kind == "skipped":
            output = case.findtext("system-out") or ""
            lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith(("[", "Note:", "Running"))]
            reasons.setdefault(lines[-1][:200] if lines else "no reason given", []).append(f"{preset}: {case.get('name')}")
    print(f"{preset}: " + ", ".join(f"{number} {kind}" for kind, number in counts.items()))
    for kind in total:
        total[kind] += counts[kind]
for reason, names in sorted(reasons.items()):
    print(f"skipped {len(names)} ({names[0]}{', ...' if len(names) > 1 else ''}): {reason}")
if missing:
    print("no test results of:", *missing)
print(", ".join(f"{number} {kind}" for kind, number in total.items()))
sys.exit(1 if missing or total["failed"] or not total["passed"] else 0)
