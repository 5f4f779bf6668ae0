"""Sums what ctest wrote for each preset into build/<preset>/junit.xml. Repeats the end of what each failed test printed, so that whoever has only
the last lines of a run knows the fault, and prints one closing line: 'N passed, N failed, N skipped'."""
import pathlib
import sys
import xml.etree.ElementTree

LINES_OF_A_FAILURE = 25

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
        if kind == "failed":
            lines = [line.rstrip()[:300] for line in (case.findtext("system-out") or "").splitlines() if line.strip()]
            # A rank prints its mistake before gtest's closing summary, which says nothing new.
            print(f"failed, {preset}: {case.get('name')}, after {float(case.get('time') or 0):.1f} s")
            print("".join(f"    {line}\n" for line in lines[-LINES_OF_A_FAILURE:]))
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
