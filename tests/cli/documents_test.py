"""Oracle: the source. Every environment variable that it reads or gives to ranks must stand in docs/env.md, every flag of `trireme run` in
docs/cli.md, every error kind with its exit code in docs/errors.md."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
faults = []

pages = {name: (root / "docs" / name).read_text() for name in ("env.md", "cli.md", "errors.md")}
variables = set()
for path in [*(root / "src").rglob("*.cpp"), *(root / "src").rglob("*.h")]:
    text = path.read_text()
    variables |= set(re.findall(r'(?:getenv|env_value)\("([A-Z][A-Z0-9_]+)"', text)) | set(re.findall(r'envname\("([A-Z][A-Z0-9_]+)"', text))
    if path.name == "job_env.cpp":
        variables |= set(re.findall(r'env\.(?:text|number)\("([A-Z][A-Z0-9_]+)"', text))
    if path.name == "rank_env.cpp":
        variables |= set(re.findall(r'\{"([A-Z][A-Z0-9_]+)",', text)) | set(re.findall(r'env\["([A-Z][A-Z0-9_]+)"\]', text))
faults += [f"docs/env.md lacks {name}" for name in sorted(variables) if f"`{name}`" not in pages["env.md"]]

flags = set(re.findall(r'add\.(?:value|toggle)\("(--[a-z-]+)"', (root / "src/cli/run_flags.cpp").read_text()))
faults += [f"docs/cli.md lacks {flag}" for flag in sorted(flags - {"--json"}) if f"`{flag}" not in pages["cli.md"]]

kinds = re.findall(r"^  (k[A-Z]\w+),", (root / "include/trireme/base/error.h").read_text(), re.M)
code, pending = {}, []
for line in (root / "src/base/error.cpp").read_text().split("int exit_code(ErrorKind")[1].splitlines():
    if found := re.search(r"case ErrorKind::(k\w+):", line):
        pending.append(found[1])
    elif found := re.search(r"return (\d+);", line):
        code |= dict.fromkeys(pending, found[1])
        pending = []
for kind in kinds:
    row = re.search(rf"^\| `{kind}` \|.*\| (\d+) \|$", pages["errors.md"], re.M)
    if not row or row[1] != code.get(kind, "1"):
        faults.append(f"docs/errors.md: {kind} must have a row that ends with exit code {code.get(kind, '1')}")

# A test that a page cites exists, in whichever form: Suite.Name, Suite.*.
tests = {}
for path in (root / "tests").rglob("*_test.cpp"):
    for suite, name in re.findall(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", path.read_text()):
        tests.setdefault(suite, set()).add(name)
cited = re.findall(r"`([A-Z]\w+)\.([A-Z]\w+|\*)`", (root / "docs/numerics.md").read_text())
faults += [f"docs/numerics.md cites {suite}.{name}, which is no test" for suite, name in cited
           if suite not in tests or (name != "*" and name not in tests[suite])]
if len(cited) < 10:
    faults.append("docs/numerics.md was not understood: too few tests are cited")

# A filter for a component that TRIREME_LOG does not know is refused, so every component that logs must be known.
known = set(re.findall(r'"([a-z._]+)"', re.search(r"kComponents = \{(.*?)\};", (root / "src/base/log.cpp").read_text(), re.S)[1]))
for path in (root / "src").rglob("*.cpp"):
    for component in re.findall(r'log::(?:info|warn|error|debug)\(\s*"([^"]+)"', path.read_text()):
        if component not in known:
            faults.append(f"{path}: logs as '{component}', which src/base/log.cpp does not know")

print(len(variables), "variables,", len(flags), "flags,", len(kinds), "kinds")
if len(variables) < 30 or len(flags) < 30 or len(kinds) < 10:
    faults.append("the source was not understood: too few names were found")
print(*faults, sep="\n")
sys.exit(1 if faults else 0)
