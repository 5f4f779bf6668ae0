"""Oracle: Python's own pickle module. Seeded random data and chosen corner cases, written with each protocol 0 to 5 by both of Python's
picklers (C and Python), must read back equal. Usage: pickle_python_test.py PICKLE_TOOL"""
import collections
import io
import json
import math
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile

TOOL = sys.argv[1]


def decode(node):
    if node is None or isinstance(node, bool):
        return node
    (tag, value), = node.items()
    if tag == "i":
        return int(value)
    if tag == "I":
        return int.from_bytes(bytes.fromhex(value), "little", signed=True)
    if tag == "f":
        return float.fromhex(value)
    if tag == "s":
        return bytes.fromhex(value).decode("utf-8", "surrogatepass")
    if tag == "b":
        return bytes.fromhex(value)
    items = [decode(item) for item in value]
    if tag == "d":
        return dict(zip(items[::2], items[1::2]))
    return {"l": list, "t": tuple, "S": set}[tag](items)


def same(a, b):
    if isinstance(b, bytearray):
        b = bytes(b)
    if isinstance(b, frozenset):
        b = set(b)
    if isinstance(b, dict):
        b = dict(b)
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return a == b


def make(rng, depth):
    kind = rng.randrange(14 if depth > 0 else 8)
    if kind == 0:
        return None
    if kind == 1:
        return rng.random() < 0.5
    if kind == 2:
        return rng.choice([0, 1, -1, 255, 256, 65535, 65536, -2**31, 2**31 - 1, 2**31, 2**63 - 1, -2**63, 2**63, -2**63 - 1, 2**200, -2**2100])
    if kind == 3:
        return rng.choice([0.0, -0.0, 1.5, -1e308, 5e-324, math.inf, -math.inf, math.nan, 0.1, math.pi])
    if kind in (4, 5):
        return "".join(rng.choice("abc \n\t\r\\'\"\0\x7f\u00e9\u20ac\U0001f6a3\udc80{") for _ in range(rng.choice([0, 1, 7, 40, 300])))
    if kind == 6:
        return bytes(rng.randrange(256) for _ in range(rng.choice([0, 1, 5, 255, 256, 300])))
    if kind == 7:
        return bytearray(rng.randrange(256) for _ in range(rng.choice([0, 3])))
    if kind in (8, 9):
        return [make(rng, depth - 1) for _ in range(rng.choice([0, 1, 3]))]
    if kind in (10, 11):
        return tuple(make(rng, depth - 1) for _ in range(rng.choice([0, 1, 2, 3, 4])))
    if kind == 12:
        return {rng.choice(["a", "b", "c", 1, 2.5, (1, "x"), b"k", "\u00e9"]): make(rng, depth - 1) for _ in range(rng.choice([0, 1, 4]))}
    return rng.choice([set, frozenset])([rng.randrange(100) for _ in range(rng.choice([0, 1, 5]))] + ["s"])


def cases():
    rng = random.Random(20261130)
    shared = ["shared", {"x": 1}]
    yield [shared, shared, (shared, shared)]
    yield collections.OrderedDict([("b", 1), ("a", 2)])
    yield collections.defaultdict(list, {"k": [1]})
    yield list(range(3000))
    yield {str(i): i for i in range(3000)}
    yield ["x" * 70000, b"y" * 70000]
    deep = []
    for _ in range(300):
        deep = [deep]
    yield deep
    for _ in range(400):
        yield make(rng, 4)


def dumps_in_python(value, protocol):
    out = io.BytesIO()
    pickle._Pickler(out, protocol).dump(value)
    return out.getvalue()


def main():
    done = 0
    with tempfile.TemporaryDirectory() as folder:
        files, values = [], []
        for index, value in enumerate(cases()):
            for protocol in range(6):
                for writer, dumps in (("c", pickle.dumps), ("py", dumps_in_python)):
                    if writer == "py" and index % 4:
                        continue
                    path = pathlib.Path(folder) / f"{index}.{protocol}.{writer}"
                    path.write_bytes(dumps(value, protocol))
                    files.append(path)
                    values.append(value)
        for start in range(0, len(files), 500):
            part = files[start:start + 500]
            lines = subprocess.run([TOOL, *part], capture_output=True, text=True, check=True).stdout.splitlines()
            assert len(lines) == len(part), (len(lines), len(part))
            for path, line, value in zip(part, lines, values[start:]):
                got = decode(json.loads(line)) if not line.startswith("error") else line
                if not same(got, value):
                    sys.exit(f"{path.name}: Python wrote {value!r:.300}, read as {got!r:.300}")
                done += 1
        # Objects of classes are named, never made.
        path = pathlib.Path(folder) / "object"
        for protocol in range(6):
            path.write_bytes(pickle.dumps(pathlib.PurePosixPath("/x"), protocol))
            line = subprocess.run([TOOL, path], capture_output=True, text=True, check=True).stdout
            name = bytes.fromhex(json.loads(line)["o"]).decode()
            assert name in ("pathlib.PurePosixPath", "copy_reg._reconstructor", "copyreg._reconstructor"), name
            done += 1
    print(f"{done} pickles read as Python wrote them")
    assert done > 3000, done


main()
