"""Oracle: the documented form of the rows, closed forms inside the program (column `wrong`), and the table of exit codes. No time is compared
with anything: the machine may be busy."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

BIN = pathlib.Path(sys.argv[1]).resolve()


def bench(*words, code=0):
    with tempfile.TemporaryDirectory(prefix="trireme_bench_test_") as scratch:
        file = pathlib.Path(scratch) / "rows.json"
        done = subprocess.run([BIN / "trireme", "bench", *words, "--json", file], cwd=scratch, text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=250)
        assert done.returncode == code, (words, done)
        left = [path.name for path in pathlib.Path(scratch).iterdir() if path != file]
        assert not left, f"{words} left {left} in the working folder"
        if code:
            return done.stderr
        written = json.loads(file.read_text())
        assert written["schema"] == 1 and done.stdout.strip(), written
        return written["rows"]


rows = bench("comm", "--bytes", "4096,65536", "--repetitions", "3")
assert {row["op"] for row in rows} == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "memcpy"}
assert {row["bytes"] for row in rows} == {4096, 65536}
for row in rows:
    assert row["ranks"] == 2 and row["wrong"] == 0 and row["count"] == row["bytes"] // 4, row
    assert 0 < row["min_us"] <= row["median_us"] <= row["p99_us"] <= row["max_us"], row
    assert abs(row["algbw_gb_per_s"] - row["bytes"] / row["median_us"] / 1e3) < 1e-9, row
# docs/bandwidth.md, with n = 3: what each rank must at least receive, as a multiple of S
factors = {"all_reduce": 4 / 3, "all_gather": 2, "reduce_scatter": 2 / 3, "all_to_all": 2 / 3, "broadcast": 1, "memcpy": 1}
for row in bench("comm", "--bytes", "12288", "--repetitions", "3", "--ranks", "3"):
    assert row["ranks"] == 3 and row["wrong"] == 0, row
    assert abs(row["busbw_gb_per_s"] / row["algbw_gb_per_s"] - factors[row["op"]]) < 1e-9, row

for mode in ("arena", "staged", "bucket_view"):
    (row,) = bench("ddp", "--model", "784-256-10", "--repetitions", "3", "--gradients", mode)
    assert (row["model"], row["ranks"], row["gradients"]) == ("784-256-10", 2, mode), row
    assert row["gradient_bytes"] == 4 * (784 * 256 + 256 + 256 * 10 + 10), row
    # In shared memory two bytes are touched per byte of gradient, staged five (two ranks).
    assert row["bytes_touched"] == row["gradient_bytes"] * (2 if mode == "arena" else 5), row
    assert row["step_ms"] > 0 and row["local_ms"] > 0, row

for flags, what in [([], "collective trace"), (["--leak-watch"], "leak watch")]:
    (row,) = bench("overhead", "--model", "784-256-10", "--repetitions", "20", *flags)
    assert (row["what"], row["model"], row["ranks"], row["repetitions"]) == (what, "784-256-10", 2, 20), row
    assert row["on_ms"] > 0 and row["off_ms"] > 0 and row["upper_us"] >= row["difference_us"] and row["calls"] > 0, row
    assert abs(row["overhead"] - row["difference_us"] / row["off_ms"] / 1e3) < 1e-12, row

launch = {row["what"]: row for row in bench("launch", "--repetitions", "1")}
assert launch.keys() == {"trireme --help", "run true", "hello"} and all(row["median_ms"] > 0 for row in launch.values()), launch

# Without a file the JSON is all that goes to stdout.
done = subprocess.run([BIN / "trireme", "bench", "comm", "--op", "memcpy", "--bytes", "4096", "--repetitions", "2", "--json"], text=True,
                      capture_output=True, timeout=50)
assert done.returncode == 0 and [row["op"] for row in json.loads(done.stdout)["rows"]] == ["memcpy"], done
assert "memcpy" in done.stderr, done

# Each mistake is told once, before there are ranks and folders, in the form of docs/errors.md.
for words, said in [
    ([], "[bench] one of comm, ddp, overhead, launch is required behind 'trireme bench'."),
    (["frob"], "[bench] there is no 'trireme bench frob'. One of comm, ddp, overhead, launch is required."),
    (["comm", "--batch", "3"], "[bench.comm] unknown flag '--batch'"),
    (["comm", "--bytes", "x"], "[bench.comm] --bytes is 'x'; a whole number from 4 to 17,179,869,184 is required."),
    (["ddp", "--set", "foo=1"], "foo"),
    (["ddp", "--gradients", "here"], "'here'"),
    (["comm", "--json", "/no/such/folder/rows.json"], "[bench] cannot write '/no/such/folder/rows.json'"),
    (["launch", "--json", "/"], "[bench] cannot write '/'"),
]:
    with tempfile.TemporaryDirectory(prefix="trireme_bench_test_") as scratch:
        done = subprocess.run([BIN / "trireme", "bench", *words], cwd=scratch, text=True, capture_output=True, timeout=50,
                              env=os.environ | {"TMPDIR": scratch})
        assert done.returncode == (1 if "cannot write" in said else 2) and not done.stdout, (words, done)
        assert said in done.stderr and len(done.stderr.splitlines()) == 1, (words, done.stderr)
        assert not os.listdir(scratch), (words, os.listdir(scratch))

assert "all_to_all" in bench("comm", "--op", "all_to_al", code=2)
# The row names what was measured, whichever flag chose it.
(row,) = bench("ddp", "--model", "784-256-10", "--repetitions", "3", "--set", "gradients=staged")
assert row["gradients"] == "staged", row
assert "'bucket_bytes'" in bench("ddp", "--model", "784-256-10", "--set", "bucket_bytes=0", code=2)
print(len(rows), "rows")
