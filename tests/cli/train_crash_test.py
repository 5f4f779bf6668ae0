"""Case C01 through the program: ranks killed in the middle of a save, and a disk that has no room for the next checkpoint.

Oracle: the run itself. Every epoch is one step; it shows its test accuracy and then saves. So after a kill the newest checkpoint is of the last
step that was shown, or of the one before; the resumed run must start from it without passing over any, and leave no rest of the killed save.
TRIREME_SOAK=full in the environment: all 50 kills, else a seeded tenth.
"""
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

TRAIN = os.path.abspath(sys.argv.pop(1))
SEED = 20261130
IMAGES = 96


def make_images(folder):
    rng = random.Random(SEED)
    for stem in ("train", "t10k"):
        pixels = bytes(rng.getrandbits(8) for _ in range(IMAGES * 784))
        with open(os.path.join(folder, stem + "-images-idx3-ubyte"), "wb") as f:
            f.write(struct.pack(">IIII", 0x803, IMAGES, 28, 28) + pixels)
        with open(os.path.join(folder, stem + "-labels-idx1-ubyte"), "wb") as f:
            f.write(struct.pack(">II", 0x801, IMAGES) + bytes(i % 10 for i in range(IMAGES)))


class TrainCrashTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        make_images(self.folder.name)
        self.run_dir = os.path.join(self.folder.name, "run")
        self.checkpoints = os.path.join(self.run_dir, "checkpoints")
        self.new = [TRAIN, "--data", self.folder.name, "--run-dir", self.run_dir, "--recipe", "mlp", "--epochs", "100000",
                    "--global-batch", str(IMAGES)]
        self.resume = [TRAIN, "--resume", self.run_dir]

    def tearDown(self):
        self.folder.cleanup()

    def names(self):
        return os.listdir(self.checkpoints) if os.path.isdir(self.checkpoints) else []

    def leftovers(self):
        return [name for name in self.names() if name.startswith(".tmp-")]

    def steps(self):
        return sorted(int(name[5:]) for name in self.names() if name.startswith("step-"))

    def last_shown_step(self):
        with open(os.path.join(self.run_dir, "metrics.jsonl")) as f:
            return max(json.loads(line)["step"] for line in f if line.endswith("\n") and "test/accuracy" in line)

    def rank_pid(self, rank):
        """From the header of its trace (docs/formats.md)."""
        with open(os.path.join(self.run_dir, "trace", "rank%d.trace" % rank), "rb") as f:
            return struct.unpack_from("<I", f.read(0x20), 0x1C)[0]

    def stop_in_a_save(self, process):
        """Stops the rank that saves (0) while the folder of an unfinished save is there, and returns its pid."""
        saver = self.rank_pid(0)
        while process.poll() is None:
            if not self.leftovers():
                continue
            os.kill(saver, signal.SIGSTOP)
            # A signal to stop is carried out by the time the kernel shows the state.
            while process.poll() is None:
                with open("/proc/%d/stat" % saver) as f:
                    if f.read().rsplit(")", 1)[1].split()[0] == "T":
                        break
            if self.leftovers():
                return saver
            os.kill(saver, signal.SIGCONT)  # the save was through before it stopped
        self.fail("the program ended by itself")

    def test_killed_in_the_middle_of_saves(self):
        kills = 50 if os.environ.get("TRIREME_SOAK") == "full" else 5
        rng = random.Random(SEED)
        in_save = 0
        command = self.new
        for kill in range(kills):
            with self.subTest(seed=SEED, kill=kill):
                known = set(self.leftovers())
                before = self.steps()[-1:]
                process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=self.folder.name)
                # The event: the third save of this process is under way.
                saves = 0
                while process.poll() is None and saves < 3:
                    fresh = set(self.leftovers()) - known
                    saves += len(fresh)
                    known |= fresh
                if kill % 5 == 0:  # surely within a save, whatever the machine's pace
                    os.kill(self.stop_in_a_save(process), signal.SIGKILL)
                else:
                    time.sleep(rng.random() * 0.004)  # the seeded moment, not a wait
                    os.kill(self.rank_pid(rng.randrange(2)), signal.SIGKILL)
                err = process.communicate(timeout=100)[1]
                self.assertEqual(process.returncode, 128 + signal.SIGKILL, err)
                in_save += 1 if self.leftovers() else 0
                self.assertNotIn("passing over", err)
                for step in before:
                    self.assertIn("resumed at step %d from" % step, err)
                self.assertIn(self.steps()[-1] - self.last_shown_step(), (0, -1))
                command = self.resume
        newest = self.steps()[-1]
        done = subprocess.run([*self.resume, "--max-steps", str(newest + 1)], capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("resumed at step %d from" % newest, done.stderr)
        self.assertNotIn("passing over", done.stderr)
        self.assertEqual((self.leftovers(), self.steps()[-1]), ([], newest + 1))
        print("%d of %d kills left the rest of a save" % (in_save, kills))
        self.assertGreaterEqual(in_save, (kills + 4) // 5)

    def test_no_room_for_the_next_checkpoint(self):
        """A tmpfs of the test's own: traces and one checkpoint take 2.0 MB, a second one 0.8 MB more."""
        if shutil.which("unshare") is None:
            self.skipTest("the program unshare is not there")
        small = os.path.join(self.folder.name, "small")
        os.mkdir(small)
        script = ('mount -t tmpfs -o "size=$0" none "$1" || exit 99; small=$1; copy=$2; shift 2; '
                  '"$@"; code=$?; cp -a "$small/run" "$copy"; exit $code')
        for size in ("2100k", "2400k", "2700k"):
            with self.subTest(size=size):
                copy = os.path.join(self.folder.name, "copy-" + size)
                command = ["unshare", "-m" if os.geteuid() == 0 else "-Urm", "sh", "-c", script, size, small, copy, *self.new]
                command[command.index("--run-dir") + 1] = os.path.join(small, "run")
                done = subprocess.run(command, capture_output=True, text=True, timeout=100)
                if done.returncode == 99 or "unshare failed" in done.stderr:
                    self.skipTest("no tmpfs of one's own can be mounted here: " + done.stderr.strip())
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertRegex(done.stderr, r"\[launch\] FAILED, 1 of 2 ranks\. First, [0-9:]+: rank 0 ")  # the cause, not who heard of it
                mine = re.findall(r"^\[checkpoint\.save\] .*", done.stderr, re.M)
                self.assertEqual(len(mine), 1, done.stderr)
                self.assertRegex(mine[0], r"/\.tmp-\w+/.*: No space left on device\. Free some space .*earlier checkpoints are still there")
                others = re.findall(r"^\[rank1\]: (.*)", done.stderr, re.M)
                self.assertEqual(others, ["[train] rank 1/2: rank 0 could not save step 2, so this rank ends too; the message of rank 0 says why."])
                # With room the run goes on from the one that was kept.
                self.run_dir, self.checkpoints = copy, os.path.join(copy, "checkpoints")
                self.assertEqual((self.leftovers(), self.steps()), ([], [1]))
                again = subprocess.run([TRAIN, "--resume", copy, "--max-steps", "3"], capture_output=True, text=True, timeout=100)
                self.assertEqual(again.returncode, 0, again.stderr)
                self.assertIn("resumed at step 1 from", again.stderr)
                self.assertEqual(self.steps(), [2, 3])


if __name__ == "__main__":
    unittest.main(verbosity=1)
