"""Oracle: the layer table of ARCHITECTURE.md. Every #include of the repository is compared with it, so that the table cannot be wrong about
the code. The rules about third-party headers that the table cannot show stand in THIRD_PARTY below. First, the checker itself must find
planted faults, so it cannot pass by looking at nothing."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(sys.argv[1])
TORCH_HEADER = re.compile(r"^(torch|ATen|c10|caffe2)/")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')
# header prefix -> where it may be included: "cpp" = in .cpp files, "notorch" = in .cpp files that include no LibTorch, "cli" = src/cli only.
THIRD_PARTY = {"fmt/": "notorch", "spdlog/": "notorch", "CLI/": "cli", "nlohmann/json.hpp": "cpp", "simdjson.h": "notorch", "zlib.h": "cpp",
               "xxhash.h": "cpp"}
FEATURE_IF = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif)\b.*\b(USE_C10D_\w+|TRIREME_(CUDA|MPI|HAVE_\w+)|TORCH_VERSION_\w+|USE_CUDA)\b")
FEATURE_IF_ALLOWED = ("src/comm/backends/", "src/base/torch/")


def read_table(text):
    """part -> (needs LibTorch, parts it may include)."""
    table = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 4 and cells[1] in ("yes", "no"):
            table[cells[0]] = (cells[1] == "yes", set(cells[2].split()) | {cells[0]})
    return table


def part_of(path, parts):
    """The part that a path below src/ (or include/trireme/) belongs to: the longest row that it starts with."""
    if re.match(r"cli/((train|bench)_[^/]*|(train|bench)/.*)$", path):
        return "cli/torch"
    found = [part for part in parts if path.startswith(part + "/")]
    return max(found, key=len) if found else None


def check_file(name, text, table):
    """The faults of one file, as sentences."""
    faults = []
    public = name.startswith("include/")
    recipe = name.startswith("recipes/")
    inner = name.removeprefix("src/").removeprefix("include/trireme/")
    part = "recipes" if recipe else part_of(inner, table)
    umbrella = name == "include/trireme/trireme.h"
    if part is None and not umbrella:
        return [f"{name}: belongs to no part of the table"]
    torch_allowed, allowed = (True, {"everything"}) if umbrella else table[part]
    if public and not umbrella and inner.count("/") == 1 and inner.startswith("comm/"):
        torch_allowed = True
    includes = [(number, match[1], match[2]) for number, line in enumerate(text.splitlines(), 1) if (match := INCLUDE.match(line))]
    has_torch = any(TORCH_HEADER.match(header) for _, _, header in includes)
    for number, quote, header in includes:
        where = f"{name}:{number}"
        if TORCH_HEADER.match(header):
            if not torch_allowed:
                faults.append(f"{where}: {part} does without LibTorch, and includes {header}")
            if public and header == "torch/torch.h":
                faults.append(f"{where}: public headers name the narrowest LibTorch header, never torch/torch.h")
            continue
        kind = next((rule for prefix, rule in THIRD_PARTY.items() if header.startswith(prefix)), None)
        if kind:
            if not name.endswith(".cpp"):
                faults.append(f"{where}: {header} in a header slows every file that includes it")
            if kind == "cli" and not name.startswith("src/cli/"):
                faults.append(f"{where}: {header} is for src/cli only")
            if kind == "notorch" and has_torch:
                faults.append(f"{where}: {header} beside LibTorch, which brings another version of it")
            continue
        if recipe:
            if quote == '"' and "/" in header and not header.startswith(("trireme/", "models/")):
                faults.append(f"{where}: recipes use public headers only, not {header}")
            continue
        if header.startswith("trireme/"):
            target = header.removeprefix("trireme/")
            if target == "trireme.h":
                if part != "cli/torch":
                    faults.append(f"{where}: trireme/trireme.h is for users")
                continue
        elif quote == '"':
            if public:
                faults.append(f"{where}: a public header includes {header}, which is not installed")
                continue
            target = header
            if target.startswith("models/") and part == "cli/torch":  # recipes/models, which train_* trains
                continue
        else:
            continue
        target_part = part_of(target, table)
        if target_part is None:
            if "/" in target:
                faults.append(f"{where}: {header} belongs to no part of the table")
        elif "everything" not in allowed and target_part not in allowed:
            faults.append(f"{where}: {part} may not include {target_part} ({header})")
    if not name.startswith(FEATURE_IF_ALLOWED) and not public:
        for number, line in enumerate(text.splitlines(), 1):
            if FEATURE_IF.match(line):
                faults.append(f"{name}:{number}: a feature or version is asked for outside {' and '.join(FEATURE_IF_ALLOWED)}: {line.strip()}")
    return faults


def check_checker(table):
    planted = {
        "src/base/a.cpp": '#include "rendezvous/socket.h"\n',
        "src/comm/transport/a.cpp": "#include <ATen/ATen.h>\n",
        "src/comm/transport/b.cpp": '#include "comm/group_state.h"\n',
        "src/rendezvous/a.h": "#include <nlohmann/json.hpp>\n",
        "src/parallel/a.cpp": "#include <spdlog/spdlog.h>\n#include <ATen/ATen.h>\n",
        "src/cli/cmd_x.cpp": '#include "parallel/ddp.h"\n',
        "src/launch/a.cpp": "#include <CLI/CLI.hpp>\n",
        "src/unknown/a.cpp": "",
        "src/parallel/b.cpp": "#if TORCH_VERSION_MINOR > 13\n",
        "include/trireme/comm/a.h": "#include <torch/torch.h>\n",
        "include/trireme/comm/b.h": '#include "comm/group_state.h"\n',
        "recipes/x/main.cpp": '#include "comm/group_state.h"\n',
    }
    for name, text in planted.items():
        if not check_file(name, text, table):
            sys.exit(f"the checker finds no fault in the planted {name}: {text!r}")
    for name, text in {"src/parallel/a.cpp": '#include "comm/group_state.h"\n#include "trireme/base/error.h"\n#include <vector>\n',
                       "src/cli/bench_x.cpp": '#include "comm/group_state.h"\n'}.items():
        if check_file(name, text, table):
            sys.exit(f"the checker finds a fault in the right {name}: {check_file(name, text, table)}")


def main():
    table = read_table((ROOT / "ARCHITECTURE.md").read_text())
    if len(table) < 15 or "base" not in table:
        sys.exit(f"ARCHITECTURE.md: the layer table has {len(table)} rows; expected at least 15")
    check_checker(table)
    files = [path for folder in ("src", "include", "recipes") for path in sorted((ROOT / folder).rglob("*")) if path.suffix in (".h", ".cpp")]
    faults = [fault for path in files for fault in check_file(str(path.relative_to(ROOT)), path.read_text(), table)]
    print(*faults, sep="\n")
    print(f"{len(files)} files, {len(table)} parts, {len(faults)} faults")
    sys.exit(1 if faults or len(files) < 10 else 0)


main()
