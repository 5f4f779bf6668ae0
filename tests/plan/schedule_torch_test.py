"""Oracle: the real reader. torch.distributed.pipelining of the installed wheel makes the same schedules as our generators, parses, validates
and dry-runs what we write, and what it writes we read, prove and write back unchanged. Usage: schedule_torch_test.py TOOL"""
import subprocess
import sys
import types

try:
    from torch.distributed.pipelining import schedules as ts
except Exception as reason:  # a broken wheel is a reason like a missing one
    print(f"SKIPPED: torch.distributed.pipelining of this Python cannot be imported: {reason!r}")
    sys.exit(77)

TOOL = sys.argv[1]
checked = dict.fromkeys(("equal lists", "ours run in torch", "theirs proven by us"), 0)


def tool(*arguments, text=""):
    done = subprocess.run([TOOL, *map(str, arguments)], input=text, capture_output=True, text=True)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout


def parse(text):
    return {rank: [ts._Action.from_str(cell) for cell in line.split(",")] for rank, line in enumerate(text.splitlines())}


def flat(actions):
    """Without idle slots and reductions, B as I then W: two notations of one list become equal."""
    result = []
    for action in actions:
        if action is None or action.computation_type == ts.REDUCE_GRAD:
            continue
        if action.computation_type == ts.FULL_BACKWARD:
            result += [action._replace(computation_type=ts.BACKWARD_INPUT), action._replace(computation_type=ts.BACKWARD_WEIGHT)]
        else:
            result.append(action)
    return result


def torch_lists(name, p, v, m):
    """What torch generates for these sizes, without stages and process groups: the generators read only a few attributes."""
    stage = types.SimpleNamespace()
    rounds = max(1, m // p)
    fields = dict(pp_group_size=p, n_local_stages=v, _n_microbatches=m, num_stages=p * v, _num_stages=p * v, _stages=[stage] * v,
                  number_of_rounds=rounds, microbatches_per_round=m // rounds)
    if name in ("gpipe", "1f1b") and v == 1:
        cls = {"gpipe": ts.ScheduleGPipe, "1f1b": ts.Schedule1F1B}[name]
        return cls._get_pipeline_order(types.SimpleNamespace(**fields))
    cls = {"interleaved": ts.ScheduleInterleaved1F1B, "zb1p": ts.ScheduleInterleavedZeroBubble, "zbv": ts.ScheduleZBVZeroBubble}[name]
    return {rank: cls._calculate_single_rank_operations(types.SimpleNamespace(**fields, rank=rank), rank) for rank in range(p)}


def stage_places(name, p, v):
    return {s: s if s < p else 2 * p - 1 - s for s in range(2 * p)} if name == "zbv" else {s: s % p for s in range(p * v)}


def sizes(name):
    for p in (1, 2, 3, 4, 8):
        for v in {"gpipe": (1,), "1f1b": (1,), "zb2p": (1,), "zbv": (2,)}.get(name, (1, 2, 3)):
            for m in (1, 2, 4, 8, 12, 16) if p < 8 else (8, 16):
                if m % max(1, m // p) == 0:  # torch asks for it
                    yield p, v, m


for name in ("gpipe", "1f1b", "interleaved", "zb1p", "zb2p", "zbv"):
    for p, v, m in sizes(name):
        case = (name, p, v, m)
        ours = parse(tool("compute", *case))
        # Of torch's 1F1B the last rank's list counts its forwards from 1, and fewer micro-batches than ranks give forwards that do not
        # exist; its interleaved schedule with one chunk warms up longer than 1F1B. The rest must be equal.
        if name != "zb2p" and not (name == "1f1b" and m < p) and not (name == "interleaved" and v == 1):
            theirs = torch_lists(*case)
            for rank in range(p - 1 if name == "1f1b" else p):
                assert flat(ours[rank]) == flat(theirs[rank]), (case, rank, ours[rank], theirs[rank])
            checked["equal lists"] += 1

        place = stage_places(name, p, v)
        full = parse(tool("full", *case))
        assert ts._validate_schedule(full, p, p * v, m) == place, case
        ts._simulate_comms_compute(full, place.__getitem__, p * v)
        checked["ours run in torch"] += 1

        # torch's own lowering of the same list, with its gathers and reductions, through our reader, proof and writer.
        lowered = {rank: ts._add_reduce_grad(ts._add_unshard_reshard(actions), m) for rank, actions in ours.items()}
        lowered = ts._add_send_recv(lowered, place.__getitem__, p * v)
        text = "".join(",".join(map(str, lowered[rank])) + "\n" for rank in range(p))
        assert tool("check", text=text) == "ok\n", (case, tool("check", text=text))
        again = tool("rewrite", text=text)
        if name.startswith("zb"):  # an I that stands right before its W is written as the B that it runs as
            assert all(flat(parse(again)[rank]) == flat(lowered[rank]) for rank in range(p)), case
        else:
            assert again == text, case
        checked["theirs proven by us"] += 1

# DualPipeV, which we only read: two chunks run forward and backward at once.
for p, m in ((2, 4), (4, 8), (4, 10)):
    fields = dict(pp_group_size=p, _n_microbatches=m, num_stages=2 * p, _num_stages=2 * p, n_local_stages=2)
    lists = {r: ts.ScheduleDualPipeV._calculate_single_rank_operations(types.SimpleNamespace(**fields, rank=r), r) for r in range(p)}
    place = stage_places("zbv", p, 2)
    text = "".join(",".join("" if a is None else str(a) for a in lists[r]) + "\n" for r in range(p))
    lowered = tool("lower", text=text)
    assert "OVERLAP_F_B" in lowered
    assert tool("check", text=lowered) == "ok\n", (p, m, tool("check", text=lowered))
    ts._validate_schedule(parse(lowered), p, 2 * p, m)
    checked["theirs proven by us"] += 1

print(", ".join(f"{what}: {count}" for what, count in checked.items()))
assert min(checked.values()) > 50, checked
