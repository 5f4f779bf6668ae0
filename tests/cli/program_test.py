"""Oracle: golden texts in tests/golden/cli (written by tools/regen_golden.sh), the exit codes of docs/errors.md, and for
completion the shells themselves."""
import json
import os
import pathlib
import pty
import re
import shutil
import stat
import subprocess
import sys
import tempfile

trireme, source = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
regen = "--regen" in sys.argv
golden = source / "tests/golden/cli"
faults = []


folder_of_all = tempfile.TemporaryDirectory()


def run(*args, **more):
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"} | more.pop("env", {})
    return subprocess.run([str(more.pop("program", trireme)), *args], capture_output=True, text=True, env=environment,
                          cwd=folder_of_all.name, **more)


def expect(what, truth):
    if not truth:
        faults.append(what)


def same_as_golden(name, text):
    path = golden / name
    if regen:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    expect(f"{path} differs; look at the difference, then run tools/regen_golden.sh", path.exists() and path.read_text() == text)


same_as_golden("help.txt", run("--help").stdout)
same_as_golden("run_help.txt", run("run", "--help").stdout)
same_as_golden("doctor_help.txt", run("doctor", "--help").stdout)
same_as_golden("completion_help.txt", run("completion", "--help").stdout)
plan = run("run", "--dry-run", "--nproc-per-node", "2", "--run-dir", "/runs/x", "sh", "-c", "echo 'a b'").stdout
same_as_golden("dry_run.txt", plan)
as_json = json.loads(run("run", "--dry-run", "--json", "--nproc-per-node", "2", "sh").stdout)
expect("--dry-run --json", as_json["schema"] == 1 and [r["env"]["RANK"] for r in as_json["ranks"]] == ["0", "1"])
no_text = run("run", "--dry-run", "--json", "sh", "-c", "\udcff")  # a byte that is no UTF-8
expect("--dry-run --json with bytes", no_text.returncode == 0 and json.loads(no_text.stdout)["ranks"][0]["command"][2] == "\ufffd")
expect("--dry-run must start nothing", not os.listdir(folder_of_all.name))

version = run("--version")
expect(f"version: {version.stdout}", version.returncode == 0 and all(w in version.stdout for w in ("trireme   0.", "commit", "compiler  GNU")))

for args, code, words in [
    ([], 2, "usage: trireme COMMAND"),
    (["rum"], 2, "unknown command 'rum'; did you mean 'run'?"),
    (["xyzzyplugh"], 2, "unknown command 'xyzzyplugh'. "),
    (["--nonsense"], 2, "unknown flag '--nonsense'."),
    (["--versoin"], 2, "unknown flag '--versoin'; did you mean '--version'?"),
    (["../evil"], 2, "unknown command '../evil'"),
    (["doctor", "--form"], 2, "unknown flag '--form'; did you mean '--from'?"),
    (["completion", "fish"], 2, "'fish' is no shell that is known"),
    (["completion", "bash", "extra"], 2, "'extra' is one word too many"),
    (["run", "--nproc-per-node", "2"], 2, "no program was given"),
]:
    done = run(*args)
    expect(f"{args}: exit {done.returncode}, not {code}: {done.stderr}", done.returncode == code and words in done.stderr)

done = run("run", "true", env={"TRIREME_LOG": "frob"})
expect(f"TRIREME_LOG=frob: exit {done.returncode}: {done.stderr}",
       done.returncode == 2 and "TRIREME_LOG='frob': unknown level 'frob'" in done.stderr and len(done.stderr.splitlines()) == 1)
expect("TRIREME_LOG=frob must start nothing", not os.listdir(folder_of_all.name))

done = run("run", "--run-dir", "/proc/no-folder-here", "true")
expect(f"unusable run folder: {done.stderr}", done.returncode == 1 and "Choose another with --run-dir." in done.stderr)

# Output that is lost is no success, whatever command it was. The device is one of our own: a program that replaces /dev/full as root spoils it for all.
full = pathlib.Path(folder_of_all.name) / "full"
try:
    os.mknod(full, stat.S_IFCHR | 0o600, os.makedev(1, 7))
    open(full, "w").close()
except OSError as error:
    print(f"no device of our own can be made ({error}): lost output is tried on /dev/full")
    full = pathlib.Path("/dev/full")
for args in (["--help"], ["--version"], ["run", "--help"], ["run", "--dry-run", "sh"], ["run", "--dry-run", "--json", "sh"], ["completion", "bash"],
             ["completion", "--help"], ["plan", "--help"], ["plan", "score", "--help"], ["plan", "estimate-memory", "--help"],
             ["plan", "estimate-memory", "--model", "gpt2"], ["plan", "estimate-memory", "--model", "gpt2", "--json"],
             ["plan", "--model", "gpt2", "--cluster", "8xH100", "--global-batch", "64", "--seq-len", "1024"],
             ["plan", "--model", "gpt2", "--cluster", "8xH100", "--global-batch", "64", "--seq-len", "1024", "--json"],
             ["simulate", "--help"], ["simulate"], ["simulate", "--json"], ["simulate", "--csv", "/dev/stdout"]):
    with open(full, "w") as lost:
        done = subprocess.run([str(trireme), *args], stdout=lost, stderr=subprocess.PIPE, text=True, cwd=folder_of_all.name)
    expect(f"{args} into a full disk: exit {done.returncode}: {done.stderr}",
           done.returncode == 1 and len(done.stderr.splitlines()) == 1 and ("was lost" in done.stderr or "No space left" in done.stderr))
done = subprocess.run(["sh", "-c", '"$0" --help >&-', str(trireme)], stderr=subprocess.PIPE, text=True)
expect(f"closed output: exit {done.returncode}: {done.stderr}", done.returncode == 1 and "Bad file descriptor" in done.stderr)
expect("a device stays one", stat.S_ISCHR(full.stat().st_mode))
full.name == "full" and full.parent == pathlib.Path(folder_of_all.name) and full.unlink()

# Lines get a prefix here, so no rank may redraw one, although the launcher's stderr is a terminal.
ours, theirs = pty.openpty()
done = subprocess.run([str(trireme), "run", "--run-dir", "terminal", "sh", "-c", "echo ${TRIREME_TERMINAL-unset}"], stdout=subprocess.PIPE,
                      stderr=theirs, text=True, cwd=folder_of_all.name)
expect(f"TRIREME_TERMINAL: {done.stdout}", done.stdout == "[rank0]: unset\n")
os.close(ours), os.close(theirs)

with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    # git-style: beside itself first, then PATH; arguments as they are, exit code passed on.
    beside, elsewhere = folder / "bin", folder / "elsewhere"
    beside.mkdir(), elsewhere.mkdir()
    shutil.copy(trireme, beside / "trireme")
    for place, text in ((beside, "beside"), (elsewhere, "path")):
        script = place / "trireme-hello"
        script.write_text(f'#!/bin/sh\necho {text} "$#" "$1"\nexit 9\n')
        script.chmod(0o755)
    path = {"PATH": f"{elsewhere}:{os.environ['PATH']}"}
    done = run("hello", "a b", "--help", program=beside / "trireme", env=path)
    expect(f"beside: {done.stdout}", (done.stdout, done.returncode) == ("beside 2 a b\n", 9))
    (beside / "trireme-hello").unlink()
    done = run("hello", "a b", "--help", program=beside / "trireme", env=path)
    expect(f"path: {done.stdout}", (done.stdout, done.returncode) == ("path 2 a b\n", 9))
    done = run("train", program=beside / "trireme", env={"PATH": "/usr/bin:/bin"})
    expect(f"train: {done.stderr}", done.returncode == 4 and "--target trireme-train" in done.stderr)
    fake = beside / "trireme-train"
    fake.write_text("""#!/bin/sh
echo '{"torch_built": "2.13.0", "torch_loaded": "2.13.0+cpu", "backends": [{"name": "host", "ok": true, "reason": ""},
{"name": "nccl", "ok": false, "reason": "this is a CPU build"}]}'
""")
    fake.chmod(0o755)
    text = run("--version", program=beside / "trireme").stdout
    expect(text, "built with 2.13.0, loaded 2.13.0+cpu" in text and "host: available" in text and "nccl: not available, this is a CPU build" in text)

bash = subprocess.run(["bash", "-c", """source <("$0" completion bash)
complete_line() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _trireme; printf '%s ' "${COMPREPLY[@]}"; echo; }
complete_line trireme ru
complete_line trireme run --nproc
complete_line trireme completion ''
complete_line trireme plan estimate-memory --spa
complete_line trireme plan --par""", str(trireme)], capture_output=True, text=True)
expect(f"bash: {bash.stdout} {bash.stderr}", bash.stdout.splitlines() == ["run ", "--nproc-per-node ", "bash zsh ", "--spare ", "--pareto "])
flags = {word for word in run("run", "--help").stdout.replace(",", " ").split() if word.startswith("--")}
flags -= {"--nproc_per_node"} | set(run("run", "--help").stdout.split("not there yet:")[1].replace(",", " ").split())
flags |= {word.split(",")[-1] for word in (golden / "train_help.txt").read_text().split() if re.fullmatch(r"(-h,)?--[a-z-]+", word)}
for part in (["score"], ["estimate-memory"]):
    found = re.findall(r"^  (?:-h,)?(--[a-z-]+)", run("plan", *part, "--help").stdout, re.M)
    expect(f"plan {part} --help was not understood: {found}", len(found) > 5)
    flags |= set(found)
for shell in ("bash", "zsh"):
    script = run("completion", shell).stdout
    expect(f"{shell} completion lacks {sorted(f for f in flags if f not in script)}", all(flag in script for flag in flags))
if shutil.which("zsh"):
    zsh = subprocess.run(["zsh", "-n"], input=run("completion", "zsh").stdout, capture_output=True, text=True)
    expect(f"zsh: {zsh.stderr}", zsh.returncode == 0)
else:
    print("zsh is not installed: its script was read by nobody")

print(*faults, sep="\n")
sys.exit(1 if faults else 0)
