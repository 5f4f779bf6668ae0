"""Runs trireme-train on a small set of images of its own.

Oracle: the run that never stopped. A run that was stopped (at a step, or by SIGTERM in the middle of an epoch) and resumed must leave the
very bytes of checkpoint that the whole run leaves. Files are read by their real readers where those are installed.
"""
import gzip
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

TRAIN = os.path.abspath(sys.argv.pop(1))
TRIREME = os.path.join(os.path.dirname(TRAIN), "trireme")


def write_idx(path, shape, values):
    header = struct.pack(">BBBB", 0, 0, 8, len(shape)) + b"".join(struct.pack(">I", n) for n in shape)
    with gzip.open(path, "wb", compresslevel=1) as out:
        out.write(header + bytes(values))


def make_blank_images(folder, train, test):
    """Eleven black images each; `train` and `test` are (height, width)."""
    os.makedirs(folder)
    for stem, shape in (("train", train), ("t10k", test)):
        write_idx(os.path.join(folder, stem + "-images-idx3-ubyte.gz"), (11, *shape), bytes(11 * shape[0] * shape[1]))
        write_idx(os.path.join(folder, stem + "-labels-idx1-ubyte.gz"), (11,), bytes(i % 10 for i in range(11)))


def make_images(folder, train=1501, test=203):
    """Ten classes, each a bright row at its own height in noise. 1501 leaves an uneven last batch."""
    rng = random.Random(20261130)
    for stem, count in (("train", train), ("t10k", test)):
        pixels = bytearray(rng.getrandbits(6) for _ in range(count * 28 * 28))
        labels = bytearray(i % 10 for i in range(count))
        for i, label in enumerate(labels):
            begin = i * 784 + (2 + 2 * label) * 28
            pixels[begin:begin + 28] = b"\xff" * 28
        write_idx(os.path.join(folder, stem + "-images-idx3-ubyte.gz"), (count, 28, 28), pixels)
        write_idx(os.path.join(folder, stem + "-labels-idx1-ubyte.gz"), (count,), labels)


class TrainTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.data = os.path.join(cls.folder.name, "data")
        os.mkdir(cls.data)
        make_images(cls.data)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def train(self, run, *flags, code=0, environment=None):
        env = {k: v for k, v in os.environ.items() if not k.startswith("TRIREME_")}
        env.update(environment or {})
        command = [TRAIN, "--data", self.data, "--run-dir", self.path(run), "--json", *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env, cwd=self.folder.name)
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout) if code == 0 else done.stderr

    def run_words(self, words, folder, code=0, environment=None):
        """Runs a command line in a folder of its own; returns what subprocess.run does."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("TRIREME_")}
        env.update(environment or {})
        os.makedirs(self.path(folder), exist_ok=True)
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=env, cwd=self.path(folder))
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def tensors(self, run, step):
        with open(self.path(f"{run}/checkpoints/step-{step}/model-00001-of-00001.safetensors"), "rb") as f:
            return f.read()

    def test_learns_and_leaves_its_records(self):
        result = self.train("whole", "--recipe", "mlp", "--epochs", "4", "--global-batch", "64")
        self.assertGreater(result["test_accuracy"], 0.9)  # a bright row tells the class; chance is 0.1
        self.assertEqual(result["ranks"], 2)
        with open(self.path("whole/metrics.jsonl")) as f:
            rows = [json.loads(line) for line in f]
        self.assertEqual(rows[-1]["step"], 4 * 24)
        with open(self.path("whole/config.json")) as f:
            config = json.load(f)
        self.assertEqual(config["config"]["epochs"], 4)
        self.assertIn("--epochs", config["origin"]["epochs"])
        self.assertIn("recipe", config["origin"]["optim.learning_rate"])
        for name in ("logs/rank0.err", "logs/rank1.err", "trace/rank0.trace", "trace/rank1.trace"):
            self.assertTrue(os.path.exists(self.path("whole/" + name)), name)

    def metrics(self, run):
        with open(self.path(run + "/metrics.jsonl")) as f:
            rows = [json.loads(line) for line in f]
        for row in rows:
            row.pop("train/images_per_s", None)
        return rows

    def test_environment_is_weaker_than_flags_and_unknown_names_are_refused(self):
        env = {"TRIREME_TRAIN_OPTIM_MOMENTUM": "0.5", "TRIREME_TRAIN_GLOBAL_BATCH": "128"}
        self.train("env", "--recipe", "mlp", "--max-steps", "1", "--global-batch", "64", environment=env)
        with open(self.path("env/config.json")) as f:
            config = json.load(f)
        self.assertEqual(config["config"]["optim"]["momentum"], 0.5)
        self.assertIn("TRIREME_TRAIN_OPTIM_MOMENTUM", config["origin"]["optim.momentum"])
        self.assertEqual(config["config"]["global_batch"], 64)
        err = self.train("env2", code=2, environment={"TRIREME_TRAIN_OPTIM_MOMENTUN": "0.5"})
        self.assertIn("did you mean 'TRIREME_TRAIN_OPTIM_MOMENTUM'", err)

    def test_help_is_the_golden_text(self):
        """Written by tools/regen_golden.sh."""
        golden = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/cli/train_help.txt")
        with open(golden) as f:
            want = f.read()
        self.assertEqual(subprocess.run([TRAIN, "--help"], capture_output=True, text=True, timeout=120).stdout, want)

    def test_more_ranks_than_the_host_can_bear_are_refused(self):
        done = subprocess.run([TRAIN, "--data", self.data, "--run-dir", self.path("many"), "--ranks", "999"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("ranks is 999", done.stderr)
        self.assertIn("use at most %d" % (8 * os.cpu_count()), done.stderr)
        self.assertFalse(os.path.exists(self.path("many")))

    def test_used_folder_is_refused(self):
        self.train("used", "--recipe", "mlp", "--max-steps", "1")
        self.assertIn("--resume", self.train("used", "--recipe", "mlp", "--max-steps", "1", code=2))

    def test_below_a_launcher_the_named_folder_is_the_runs(self):
        """Oracle: the run that never stopped, started alone. The launcher's folder gets logs and traces only."""
        flags = ["--recipe", "mlp", "--global-batch", "64"]
        self.train("whole-run", *flags, "--max-steps", "9")
        flags += ["--data", self.data]
        run = [TRIREME, "run", "--nproc-per-node", "2", "--run-dir"]
        self.run_words([*run, "job1", TRAIN, *flags, "--max-steps", "4", "--run-dir", "named"], "below")
        self.run_words([*run, "job2", TRAIN, "--resume", "named", "--max-steps", "9"], "below")
        for name in ("metrics.jsonl", "config.json", "tensorboard", "checkpoints/step-4"):
            self.assertTrue(os.path.exists(self.path("below/named/" + name)), name)
        for job in ("job1", "job2"):
            self.assertEqual(sorted(os.listdir(self.path("below/" + job))), ["logs", "trace"])
        self.assertEqual(self.tensors("below/named", 9), self.tensors("whole-run", 9))
        # Nothing was named: the launcher's folder, which must not be used either.
        self.run_words([*run, "job3", TRAIN, *flags, "--max-steps", "1"], "below")
        self.assertTrue(os.path.exists(self.path("below/job3/checkpoints/step-1")))
        done = self.run_words([*run, "job3", TRAIN, *flags, "--max-steps", "1"], "below", code=2)
        self.assertIn("job3' holds the checkpoints of an earlier run", done.stderr)

    def test_one_process_alone_gets_a_dated_folder_for_each_run(self):
        words = [TRAIN, "--recipe", "mlp", "--ranks", "1", "--global-batch", "64", "--data", self.data, "--json"]
        first = json.loads(self.run_words([*words, "--max-steps", "3"], "alone").stdout)["run_dir"]
        with open(first + "/metrics.jsonl", "rb") as f:
            metrics = f.read()
        second = json.loads(self.run_words([*words, "--max-steps", "2"], "alone").stdout)["run_dir"]
        self.assertNotEqual(first, second)
        for folder, step in ((first, 3), (second, 2)):
            self.assertRegex(os.path.relpath(folder, self.path("alone")), r"^runs/\d{8}-\d{6}-[0-9a-f]{12}$")
            self.assertEqual(os.listdir(folder + "/checkpoints"), ["step-%d" % step])
            self.assertTrue(os.path.exists(folder + "/trace/rank0.trace"))
        with open(first + "/metrics.jsonl", "rb") as f:
            self.assertEqual(f.read(), metrics)

    def test_resume_is_stronger_than_every_other_place_for_the_folder(self):
        self.train("strong", "--recipe", "mlp", "--max-steps", "2")
        self.train("weak", "--recipe", "mlp", "--max-steps", "1")
        words = [TRAIN, "--data", self.data, "--resume", self.path("strong"), "--max-steps", "3"]
        self.run_words(words, "any", environment={"TRIREME_TRAIN_RUN_DIR": self.path("weak")})
        self.assertTrue(os.path.exists(self.path("strong/checkpoints/step-3")))
        self.assertEqual(os.listdir(self.path("weak/checkpoints")), ["step-1"])
        done = self.run_words([*words, "--run-dir", self.path("weak")], "any", code=2)
        for words in (self.path("strong"), self.path("weak"), "--run-dir"):
            self.assertIn(words, done.stderr)

    def test_the_newest_run_is_looked_for_once_and_told_to_the_ranks(self):
        flags = ["--recipe", "mlp", "--global-batch", "64", "--data", self.data]
        self.run_words([TRAIN, *flags, "--max-steps", "1", "--run-dir", "runs/first"], "newest")
        self.run_words([TRAIN, "--resume", "--max-steps", "2"], "newest")
        self.assertTrue(os.path.exists(self.path("newest/runs/first/checkpoints/step-2")))
        # A failed job's report holds the command of its ranks.
        self.run_words([TRAIN, "--resume", "--recipe", "vit"], "newest", code=2)
        with open(self.path("newest/runs/first/failure.json")) as f:
            self.assertEqual(json.load(f)["command"][1:], ["--resume=runs/first", "--recipe", "vit"])

    def test_ranks_that_resume_from_different_checkpoints_name_both(self):
        """Oracle: closed form. Each rank is told another folder, as a rank is that could not read the newest checkpoint."""
        self.train("start0", "--recipe", "mlp", "--global-batch", "64", "--max-steps", "2")
        self.train("start1", "--recipe", "mlp", "--global-batch", "64", "--max-steps", "1")
        self.train("start2", "--recipe", "mlp", "--global-batch", "64", "--max-steps", "2", "--seed", "5")
        for other, step in (("start1", 1), ("start2", 2)):
            with self.subTest(other=other):
                resume = 'exec "$0" --max-steps 3 --resume "$(test $RANK = 0 && echo "$1" || echo "$2")"'
                words = ["sh", "-c", resume, TRAIN, self.path("start0"), self.path(other)]
                done = self.run_words([TRIREME, "run", "--nproc-per-node", "2", *words], "split", code=1)
                want = r"rank 0 at step 2, position 128, index (\w{16}); rank 1 at step %d, position %d, index (\w{16});" % (step, step * 64)
                for rank in (0, 1):
                    found = re.search(r"\[train.resume\] rank %d/2: " % rank + want, done.stderr)
                    self.assertIsNotNone(found, done.stderr)
                    self.assertNotEqual(found.group(1), found.group(2))
                self.assertEqual(os.listdir(self.path("start0/checkpoints")), ["step-2"])

    def test_config_json_holds_what_was_used_and_where_it_was_first_said(self):
        flags = ["--recipe", "mlp", "--data", self.data, "--run-dir", "used"]
        run = [TRIREME, "run", "--nproc-per-node", "3", "--run-dir"]
        environment = {"TRIREME_TRAIN_OPTIM_MOMENTUM": "0.5"}
        self.run_words([*run, "job1", TRAIN, *flags, "--lr", "0.02", "--max-steps", "1"], "as-used", environment=environment)

        def read():
            with open(self.path("as-used/used/config.json")) as f:
                document = json.load(f)
            return document["config"], document["origin"]
        for said, steps in (("flag --max-steps", 1), ("flag --max-steps", 2), ("flag --set max_steps", 3)):
            config, origin = read()
            self.assertEqual(config["ranks"], 3)
            self.assertEqual(config["run_dir"], self.path("as-used/used"))
            self.assertEqual((config["max_steps"], origin["max_steps"]), (steps, said))
            self.assertEqual((config["optim"]["learning_rate"], origin["optim.learning_rate"]), (0.02, "flag --lr"))
            self.assertEqual(config["optim"]["momentum"], 0.5)
            self.assertEqual(origin["optim.momentum"], "environment TRIREME_TRAIN_OPTIM_MOMENTUM")
            self.assertEqual(origin["checkpoint.keep"], "default")
            more = ["--max-steps", "2"] if steps == 1 else ["--set", "max_steps=3"]
            self.run_words([*run, "job%d" % (steps + 1), TRAIN, "--resume", "used", *more], "as-used")

    def test_images_that_do_not_fit_are_wrong_use_and_no_bug(self):
        make_blank_images(self.path("oblong"), (28, 20), (28, 20))
        make_blank_images(self.path("uneven"), (28, 28), (28, 20))
        for data, recipe, words in (("oblong", "vit", "28 x 20"), ("uneven", "mlp", "test images 28 x 20")):
            with self.subTest(data=data):
                done = self.run_words([TRAIN, "--data", self.path(data), "--recipe", recipe], "shapes", code=2)
                self.assertIn(words, done.stderr)
        self.run_words([TRAIN, "--data", self.path("oblong"), "--recipe", "mlp", "--max-steps", "1"], "shapes")

    def test_any_number_of_ranks_follows_one_process_on_the_whole_batch(self):
        """Oracle: --ranks 1, which sees the whole batch; mlp has no BatchNorm. 24 steps, the last of 29 images; 3 ranks get uneven shares.

        Only the order of f32 sums differs. The longest sum has k = 784 + 128 + 64 terms (inputs, hidden units, batch), so each step moves
        a value by at most k * 2^-24 of its size, and the learning rate is small enough that steps do not amplify it: 24 steps, 24 times that.
        """
        bound = 24 * (784 + 128 + 64) * 2.0 ** -24
        rows = {}
        for ranks in (1, 2, 3):
            run = "ranks%d" % ranks
            self.train(run, "--recipe", "mlp", "--epochs", "1", "--global-batch", "64", "--ranks", str(ranks), "--set", "log.every=1")
            rows[ranks] = [row["train/loss"] for row in self.metrics(run) if "train/loss" in row]
            self.assertEqual(len(rows[ranks]), 24)
        self.assertGreater(rows[1][0], 2 * rows[1][-1])  # it moves, so that equality means something
        for ranks in (2, 3):
            for step, (want, got) in enumerate(zip(rows[1], rows[ranks])):
                self.assertLess(abs(got - want), bound * want, f"{ranks} ranks, step {step + 1}: {got} and {want}")

    def test_tensorboard_reads_the_events(self):
        try:
            from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        except ImportError:
            self.skipTest("the Python package tensorboard is not installed")
        self.train("board", "--recipe", "mlp", "--max-steps", "40", "--global-batch", "64")
        events = EventAccumulator(self.path("board/tensorboard"))
        events.Reload()
        self.assertEqual([e.step for e in events.Scalars("train/loss")], [20, 24, 40])

    def test_resumed_run_equals_the_whole_one_bit_for_bit(self):
        for recipe in ("mlp", "resnet", "vit"):
            with self.subTest(recipe=recipe):
                flags = ("--recipe", recipe, "--global-batch", "64", "--epochs", "2")
                self.train("a-" + recipe, *flags, "--max-steps", "30")
                self.train("b-" + recipe, *flags, "--max-steps", "11")
                self.train("b-" + recipe, "--resume", self.path("b-" + recipe), "--max-steps", "30")
                self.assertEqual(self.tensors("a-" + recipe, 30), self.tensors("b-" + recipe, 30))
                # The losses too: 11 lies in the middle of a window of 20 steps. The stopped run's own evaluation is a row more.
                rows = [row for row in self.metrics("b-" + recipe) if row["step"] != 11]
                self.assertEqual(self.metrics("a-" + recipe), rows)

    def resume(self, run, *flags):
        """The result, and what the run said about where it goes on to."""
        done = subprocess.run([TRAIN, "--resume", self.path(run), "--json", *flags], capture_output=True, text=True, timeout=120,
                              cwd=self.folder.name)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = [line for line in done.stderr.splitlines() if re.search("going on|go on", line)]
        self.assertLessEqual(len(said), 1, done.stderr)
        return json.loads(done.stdout), "".join(said)

    def test_a_reached_limit_of_steps_does_not_end_the_resumed_run(self):
        """One epoch has 24 steps. A limit said now wins; an old one holds until it is reached, and each time one line says so."""
        flags = ("--recipe", "mlp", "--global-batch", "64", "--epochs", "1")
        self.train("whole-limit", *flags)
        self.train("limit", *flags, "--max-steps", "5")
        result, said = self.resume("limit", "--max-steps", "9")
        self.assertEqual((result["steps"], said), (9, ""))
        with open(self.path("limit/config.json")) as f:
            self.assertEqual(json.load(f)["origin"]["max_steps"], "flag --max-steps")
        result, said = self.resume("limit", "--max-steps", "9")
        self.assertEqual(result["steps"], 9)
        self.assertEqual(said, "nothing is left to train: --max-steps is 9; go on with a higher one, or with 0 to step 24, the end of epoch 1")
        with open(self.path("limit/config.json")) as f:
            self.assertEqual(json.load(f)["config"]["max_steps"], 9)
        result, said = self.resume("limit")
        self.assertEqual(result["steps"], 24)
        self.assertIn("the earlier run's limit, --max-steps 9, is reached: going on to step 24", said)
        self.assertEqual(self.tensors("limit", 24), self.tensors("whole-limit", 24))
        with open(self.path("limit/config.json")) as f:
            config = json.load(f)
        self.assertEqual(config["config"]["max_steps"], 0)
        self.assertIn("limit of 9 steps was reached", config["origin"]["max_steps"])
        result, said = self.resume("limit")
        self.assertIn("this is step 24, the end of epoch 1; go on with a higher --epochs", said)

    def test_sigterm_saves_and_the_run_goes_on_from_there(self):
        flags = ["--recipe", "mlp", "--global-batch", "16", "--epochs", "20", "--set", "log.every=1"]
        self.train("whole-term", *flags, "--max-steps", "600")
        command = [TRAIN, "--data", self.data, "--run-dir", self.path("term"), "--json", *flags, "--max-steps", "600"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder.name)
        # The first line of metrics is the event: training is under way.
        metrics = self.path("term/metrics.jsonl")
        while process.poll() is None and not (os.path.exists(metrics) and os.path.getsize(metrics) > 0):
            pass
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)  # an unfinished run is no success
        stopped = re.search(r'"steps":(\d+)', out)
        self.assertIsNotNone(stopped, err)
        self.assertLess(int(stopped.group(1)), 600)
        self.assertIn("going on to step 600, the earlier run's --max-steps", self.resume("term")[1])
        self.assertEqual(self.tensors("term", 600), self.tensors("whole-term", 600))

    def test_python_safetensors_reads_the_checkpoint(self):
        self.train("shard", "--recipe", "mlp", "--max-steps", "2")
        shard = self.path("shard/checkpoints/step-2/model-00001-of-00001.safetensors")
        # The format by hand: length, JSON, bytes.
        with open(shard, "rb") as f:
            size, = struct.unpack("<Q", f.read(8))
            header = json.loads(f.read(size))
            data = f.read()
        self.assertEqual(header["model.hidden.weight"]["shape"], [128, 784])
        self.assertTrue(any(name.startswith("optim.") for name in header))
        try:
            from safetensors import safe_open
            import numpy  # noqa: F401  what the package makes of tensors here
        except ImportError:
            self.skipTest("the Python packages safetensors and numpy are not installed; the file was only parsed by hand")
        with safe_open(shard, framework="np") as opened:
            self.assertEqual(sorted(opened.keys()), sorted(name for name in header if name != "__metadata__"))
            for name in opened.keys():
                tensor = opened.get_tensor(name)
                self.assertEqual(list(tensor.shape), header[name]["shape"])
                begin, end = header[name]["data_offsets"]
                self.assertEqual(tensor.tobytes(), data[begin:end], name)

    def test_wrong_use_is_named(self):
        cases = [
            (["--recipe", "resnett"], "resnett"),
            (["--set", "optim.learning_rat=1"], "optim.learning_rate"),
            (["--epochs", "zero"], "--epochs"),
            (["--resume", self.path("nowhere")], "nowhere"),
        ]
        for flags, words in cases:
            with self.subTest(flags=flags):
                self.assertIn(words, self.train("wrong", *flags, code=2))

    def test_missing_data_is_named(self):
        done = subprocess.run([TRAIN, "--data", self.path("no-data"), "--run-dir", self.path("none"), "--ranks", "1"], capture_output=True,
                              text=True, timeout=120, cwd=self.folder.name)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no-data", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
