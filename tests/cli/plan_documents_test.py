"""Oracle: the program. What docs/ shows of 'trireme plan' and 'trireme simulate' is what it says, times that it took itself left aside.

Usage: plan_documents_test.py TRIREME SOURCE [--write]     (--write puts what the program says into the pages)"""
import pathlib
import re
import subprocess
import sys

TRIREME, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
PAGES = {"howto/which_plan.md": 1, "howto/does_it_fit.md": 2, "planner_costs.md": 1, "cli.md": 2}
BLOCK = re.compile(r"(?<=\n)```\n\$ trireme ((?:plan|simulate) [^\n]+)\n(.*?)```\n", re.S)


def said_by(command):
    done = subprocess.run([TRIREME, *command.split()], capture_output=True, text=True, timeout=60)
    return (done.stdout + done.stderr).lstrip("\n")


def comparable(text):
    return re.sub(r"costed, in [0-9.]+ \w+", "costed, in TIME", text)


faults = []
for name, number in PAGES.items():
    page = SOURCE / "docs" / name
    text = page.read_text()
    blocks = BLOCK.findall(text)
    if len(blocks) != number:
        faults.append(f"{page}: {len(blocks)} commands with their output were found, {number} are expected")
    for command, shown in blocks:
        said = said_by(command)
        if comparable(said) == comparable(shown):
            continue
        text = text.replace(shown, said)
        pairs = zip(comparable(said).splitlines() + [""], comparable(shown).splitlines() + [""])
        faults += [f"{page}: trireme {command}\n  says   {one}\n  shows  {other}" for one, other in pairs if one != other][:3]
    if "--write" in sys.argv:
        page.write_text(text)
print(*faults, sep="\n")
if "--write" not in sys.argv:
    sys.exit(1 if faults else 0)
