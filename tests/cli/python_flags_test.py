"""Oracle: the argparse parsers of torchrun and torch.distributed.launch in the installed torch. Every flag of theirs must be known to
`trireme run`, in each of its spellings: it may be refused with 'not there yet', but never as unknown. Exit 77: no torch here."""
import importlib.util
import subprocess
import sys

trireme = sys.argv[1]
if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch; ./dev build installs it into .venv")
    sys.exit(77)
from torch.distributed.run import get_args_parser

parser = get_args_parser()
parser.add_argument("--use-env", "--use_env", action="store_true")  # torch.distributed.launch adds this one
VALUES = {"--nnodes": "1", "--nproc-per-node": "1", "--max-restarts": "0", "--redirects": "0", "--tee": "0", "--node-rank": "0",
          "--master-port": "0", "--rdzv-backend": "c10d", "--start-method": "spawn", "--event-log-handler": "null",
          "--signals-to-handle": "SIGTERM", "--shutdown-timeout": "5", "--local-ranks-filter": "0", "--rdzv-endpoint": "127.0.0.1:0"}
faults, refused, count = [], [], 0
for action in parser._actions:
    if not action.option_strings or "--help" in action.option_strings:
        continue
    for name in action.option_strings:
        count += 1
        dashed = next((o for o in action.option_strings if o.startswith("--")), name)
        words = [name] + ([] if action.nargs == 0 else [VALUES.get(dashed, "x")])
        program = "/dev/null" if dashed == "--run-path" else "true"  # which must be a readable script
        done = subprocess.run([trireme, "run", "--dry-run", *words, program], capture_output=True, text=True)
        if "not there yet" in done.stderr:
            refused.append(name)
        elif name not in ("-m", "--module") and (done.returncode != 0 or "rank 0\n" not in done.stdout):
            faults.append(f"{' '.join(words)}: exit {done.returncode}: {done.stderr.strip()}")
print(count, "spellings; not there yet:", *refused)
sys.exit("\n".join(faults) if faults or count < 40 else 0)
