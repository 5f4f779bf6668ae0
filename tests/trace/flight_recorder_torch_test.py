"""Oracle: the reader these dumps are for. fr_trace of the installed wheel takes the dumps of a healthy job as matching, call by call, and
says of a faulty one what is wrong and who. Usage: flight_recorder_torch_test.py TOOL"""
import json
import pathlib
import pickle
import subprocess
import sys
import tempfile

try:
    import torch.distributed.flight_recorder.fr_trace  # noqa: F401
except Exception as reason:  # a broken wheel is a reason like a missing one
    print(f"SKIPPED: torch.distributed.flight_recorder of this Python cannot be imported: {reason!r}")
    sys.exit(77)

TOOL = sys.argv[1]
faults = []


def expect(what, holds):
    if not holds:
        faults.append(what)


def dumps(scenario, folder):
    subprocess.run([TOOL, scenario, folder], check=True)
    for rank in range(3):
        dump = pickle.loads((folder / f"dump_{rank}").read_bytes())
        as_json = json.loads((folder / f"json_{rank}").read_text())
        for entry in dump["entries"]:
            expect("process_group is a pair, as c10d writes it", isinstance(entry["process_group"], tuple))
            entry["process_group"] = list(entry["process_group"])
        expect(f"{scenario}: pickle and JSON of rank {rank} hold the same", dump == as_json)
        (folder / f"json_{rank}").unlink()


def analysed(scenario):
    """The collectives that fr_trace finds, and what it says."""
    with tempfile.TemporaryDirectory(prefix="trireme_fr_") as name:
        folder = pathlib.Path(name)
        dumps(scenario, folder)
        output = folder.parent / f"{folder.name}.db"
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "torch.distributed.flight_recorder.fr_trace", str(folder), "-p", "dump_", "-o", str(output)],
            capture_output=True, text=True)
        expect(f"{scenario}: fr_trace ends with {done.returncode}: {done.stderr[-2000:]}", done.returncode == 0)
        with open(output, "rb") as file:
            _, database = pickle.load(file)
        output.unlink()
        return database.collectives, done.stdout + done.stderr


found, said = analysed("healthy")
expect(f"eight calls match on all ranks: {[(c.collective_name, c.pass_check) for c in found]}",
       [c.collective_name for c in found] == [f"gloo:{name}" for name in ("all_reduce", "all_reduce", "broadcast", "_all_gather_base",
                                                                           "_reduce_scatter_base", "_reduce_scatter_base", "all_to_all", "barrier")]
       and all(c.pass_check and c.expected_ranks == {0, 1, 2} for c in found))
expect("sizes in and out", found[3].input_sizes == [[6, 4]] and found[3].output_sizes == [[18, 4]] and found[4].output_sizes == [[2, 4]]
       and found[5].output_sizes == [[8]])
found, said = analysed("missing")
expect(f"rank 2 is missing in call 3: {said}", [c.missing_ranks for c in found if c.missing_ranks] == [{2}] and found[2].collective_seq_id == 3)
for scenario, word in (("swapped", "COLLECTIVE_TYPE_MISMATCH"), ("shape", "SIZE_OR_SYNTAX_MISMATCH"), ("state", "COLLECTIVE_STATE_MISMATCH")):
    found, said = analysed(scenario)
    culprit = 2 if scenario == "state" else 1
    bad = [c for c in found if not c.pass_check]
    expect(f"{scenario}: call 2 alone is wrong, by rank {culprit}, {word}: {said}",
           len(bad) == 1 and bad[0].collective_seq_id == 2 and f"Culprit rank {culprit}; Error type: {word}" in said)
print("\n".join(faults) or "five jobs, as fr_trace sees them")
sys.exit(1 if faults else 0)
