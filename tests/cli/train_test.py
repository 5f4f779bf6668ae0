"""Runs trireme-train on a small set of images of its own.

Oracle: the run that never stopped. A run that was stopped (at a step, or by SIGTERM in the middle of an epoch) and resumed must leave the
very bytes of checkpoint that the whole run leaves. Files are read by their real readers where those are installed.
"""
import gzip
import json
import os
import pty
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

    def test_mistakes_that_all_ranks_share_are_told_once_before_any_starts(self):
        """Oracle: docs/errors.md. One line, no report of a launcher, no run folder."""
        self.train("shared", "--recipe", "mlp", "--max-steps", "1")
        cases = [
            (["--data", self.path("nowhere")], 1, "nowhere/train-images-idx3-ubyte.gz'"),
            (["--recipe", "vit", "--resume", self.path("shared")], 2, "are of recipe mlp, and recipe is vit (flag --recipe); leave that out"),
            (["--global-batch", "100000000"], 2, "global_batch is 100,000,000 (flag --global-batch), and"),
            (["--epoch", "3"], 2, "unknown flag '--epoch'; did you mean '--epochs'?"),
            (["--epochs", "x"], 2, "key 'epochs' is 'x'; a whole number is required\n"),
            (["--set", "optim.lr=1"], 2, "there are optim.learning_rate, optim.momentum"),
            (["3"], 2, "'3' is one word too many"),
        ]
        for words, code, said in cases:
            with self.subTest(words=words):
                data = [] if "--data" in words else ["--data", self.data]
                done = self.run_words([TRAIN, *data, *words], "shared-mistakes", code=code)
                self.assertIn(said, done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertEqual((done.stdout, os.listdir(self.path("shared-mistakes"))), ("", []))

    def test_the_launchers_number_of_ranks_contradicts_none_in_silence(self):
        words = [TRIREME, "run", "--nproc-per-node", "2", "--run-dir"]
        train = [TRAIN, "--recipe", "mlp", "--data", self.data, "--max-steps"]
        done = self.run_words([*words, "job1", *train, "1", "--ranks", "3"], "numbers", code=2)
        self.assertIn("ranks is 3 (flag --ranks), and trireme run started 2; leave ranks out", done.stderr)
        self.run_words([*train, "1", "--ranks", "1", "--run-dir", "one"], "numbers")
        done = self.run_words([*words, "job2", *train, "2", "--resume", "one"], "numbers")
        self.assertIn("trireme run started 2: those are used, not the 1 of the file", done.stderr)

    def test_used_folder_is_refused(self):
        self.train("used", "--recipe", "mlp", "--max-steps", "1")
        self.assertIn("--resume", self.train("used", "--recipe", "mlp", "--max-steps", "1", code=2))

    def test_below_a_launcher_the_named_folder_is_the_runs(self):
        """Oracle: the run that never stopped, started alone. The launcher's folder gets logs, traces and room for reports only."""
        flags = ["--recipe", "mlp", "--global-batch", "64"]
        self.train("whole-run", *flags, "--max-steps", "9")
        flags += ["--data", self.data]
        run = [TRIREME, "run", "--nproc-per-node", "2", "--run-dir"]
        self.run_words([*run, "job1", TRAIN, *flags, "--max-steps", "4", "--run-dir", "named"], "below")
        self.run_words([*run, "job2", TRAIN, "--resume", "named", "--max-steps", "9"], "below")
        for name in ("metrics.jsonl", "config.json", "tensorboard", "checkpoints/step-4"):
            self.assertTrue(os.path.exists(self.path("below/named/" + name)), name)
        for job in ("job1", "job2"):
            self.assertEqual(sorted(os.listdir(self.path("below/" + job))), ["logs", "reports", "trace"])
        self.assertEqual(self.tensors("below/named", 9), self.tensors("whole-run", 9))
        # Nothing was named: the launcher's folder, which must not be used either.
        self.run_words([*run, "job3", TRAIN, *flags, "--max-steps", "1"], "below")
        self.assertTrue(os.path.exists(self.path("below/job3/checkpoints/step-1")))
        done = self.run_words([*run, "job3", TRAIN, *flags, "--max-steps", "1"], "below", code=2)
        self.assertIn("job3' holds the checkpoints of an earlier run", done.stderr)

    def test_a_restart_continues_from_its_own_jobs_checkpoint(self):
        """Oracle: the run that never stopped. The first attempt ends after 11 steps, and then fails."""
        flags = ["--recipe", "mlp", "--global-batch", "64", "--epochs", "2"]
        self.train("whole-restart", *flags, "--max-steps", "30")
        fail_once = 'if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then "$@" --max-steps 11; exit 3; fi; exec "$@" --max-steps 30'
        run = [TRIREME, "run", "--nproc-per-node", "2", "--max-restarts", "1", "--run-dir"]
        train = [TRAIN, "--data", self.data, *flags]
        for name, more, folder in (("launchers", [], "launchers"), ("named", ["--run-dir", "own"], "own")):
            with self.subTest(folder=name):
                done = self.run_words([*run, name, "sh", "-c", fail_once, "sh", *train, *more], "restart")
                self.assertIn("resumed at step 11 from", done.stderr)
                self.assertIn("steps 12 to 30;", done.stderr)
                self.assertEqual(self.tensors("restart/" + folder, 30), self.tensors("whole-restart", 30))
                # The loss of the 20th step covers what the first attempt had seen; each attempt ended with an evaluation.
                rows = [row for row in self.metrics("restart/" + folder) if row["step"] != 11]
                self.assertEqual(rows, self.metrics("whole-restart"))

    def test_a_restart_before_the_first_checkpoint_begins_anew(self):
        """Oracle: the run that never stopped. Rank 1 is killed when the first step has been noted; there is no checkpoint before the end."""
        flags = ["--recipe", "mlp", "--global-batch", "64", "--epochs", "10000", "--set", "checkpoint.every_epochs=10000", "--set", "log.every=1"]
        self.train("whole-early", *flags, "--max-steps", "3")
        script = """if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then exec "$@" --max-steps 3; fi
            if [ $RANK = 0 ]; then exec "$@"; fi
            "$@" & while [ ! -s job/metrics.jsonl ]; do :; done; kill -9 $!; exit 3"""
        run = [TRIREME, "run", "--nproc-per-node", "2", "--max-restarts", "1", "--run-dir", "job"]
        done = self.run_words([*run, "sh", "-c", script, "sh", TRAIN, "--data", self.data, *flags], "early")
        self.assertIn("restarted before there was a checkpoint: from the beginning", done.stderr)
        self.assertEqual(self.tensors("early/job", 3), self.tensors("whole-early", 3))
        self.assertEqual(self.metrics("early/job"), self.metrics("whole-early"))

    def test_a_restart_does_not_continue_another_job(self):
        """Oracle: what it must not touch, the checkpoint of the earlier job, and the message of a first start."""
        flags = ["--recipe", "mlp", "--data", self.data]
        run = [TRIREME, "run", "--nproc-per-node", "2", "--max-restarts", "1", "--run-dir"]
        self.run_words([*run, "job1", TRAIN, *flags, "--max-steps", "1", "--run-dir", "one"], "foreign")
        before = self.tensors("foreign/one", 1)
        done = self.run_words([*run, "job2", TRAIN, *flags, "--max-steps", "5", "--run-dir", "one"], "foreign", code=2)
        self.assertIn("restart 1 of 1", done.stderr)
        self.assertGreaterEqual(done.stderr.count("'one' holds the checkpoints of an earlier run"), 2)
        self.assertEqual(os.listdir(self.path("foreign/one/checkpoints")), ["step-1"])
        self.assertEqual(self.tensors("foreign/one", 1), before)

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
        # A failed job's report holds the command of its ranks: rank 0 cannot write its metrics.
        os.remove(self.path("newest/runs/first/metrics.jsonl"))
        os.mkdir(self.path("newest/runs/first/metrics.jsonl"))
        self.run_words([TRAIN, "--resume", "--max-steps", "3"], "newest", code=1)
        with open(self.path("newest/runs/first/failure.json")) as f:
            self.assertEqual(json.load(f)["command"][1:], ["--resume=runs/first", "--max-steps", "3"])

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

    def under_way(self, run, *flags):
        """A run that goes on until it is told to end, past its first line of metrics."""
        command = [TRAIN, "--data", self.data, "--run-dir", self.path(run), "--recipe", "mlp", "--global-batch", "16", "--epochs", "10000",
                   "--set", "log.every=1", "--set", "checkpoint.every_epochs=10000", *flags]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder.name)
        metrics = self.path(run + "/metrics.jsonl")
        while process.poll() is None and not (os.path.exists(metrics) and os.path.getsize(metrics) > 0):
            pass
        return process

    def test_one_run_at_a_time_in_a_folder(self):
        first = self.under_way("busy")
        self.assertIn("another run is going on in '%s'" % self.path("busy"), self.train("busy", "--recipe", "mlp", code=2))
        self.assertIsNone(first.poll())
        first.send_signal(signal.SIGTERM)
        first.communicate(timeout=60)
        self.assertEqual(first.returncode, 128 + signal.SIGTERM)

    def test_a_damaged_config_of_a_run_is_refused(self):
        os.makedirs(self.path("deep"))
        for text in ("", "[]", '{"config": ' + "[" * 200000 + "]" * 200000 + "}"):
            with open(self.path("deep/config.json"), "w") as f:
                f.write(text)
            done = self.run_words([TRAIN, "--resume", self.path("deep")], "any", code=2)
            self.assertIn("is not the config.json of a run", done.stderr)

    def test_what_a_kill_at_the_first_save_leaves_is_no_earlier_run(self):
        os.makedirs(self.path("leftover/checkpoints/.tmp-0123456789ab"))
        self.train("leftover", "--recipe", "mlp", "--max-steps", "1")
        self.assertEqual(os.listdir(self.path("leftover/checkpoints")), ["step-1"])

    def test_without_a_launcher_a_second_signal_kills(self):
        process = self.under_way("alone-twice", "--ranks", "1")
        process.send_signal(signal.SIGSTOP)  # both signals are there before it can save
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        process.communicate(timeout=60)
        self.assertIn(process.returncode, (-signal.SIGINT, -signal.SIGTERM))  # whichever is handled last

    def interrupt(self, words, environment, folder):
        """Sends SIGTERM once the run is under way; what it has printed."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("TRIREME_")} | environment
        metrics = self.path(folder + "/my run/metrics.jsonl")
        size = os.path.getsize(metrics) if os.path.exists(metrics) else 0
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.path(folder), env=env)
        while process.poll() is None and not (os.path.exists(metrics) and os.path.getsize(metrics) > size):
            pass
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, err)
        return out

    def test_the_command_that_continues_can_be_pasted(self):
        """Oracle: a shell in the same folder with the same environment, which must run it."""
        bin_dir = os.path.dirname(TRAIN)
        os.makedirs(self.path("paste"))
        words = [TRAIN, "--data", self.data, "--recipe", "mlp", "--global-batch", "16", "--epochs", "10000", "--set", "log.every=1", "--run-dir",
                 "my run"]
        in_path = os.environ["PATH"] + os.pathsep + bin_dir
        for environment, start in (({"PATH": in_path}, "trireme train"), ({}, TRIREME + " train"),
                                   ({"TRIREME_CALLED_AS": "cd %s && ./trireme" % bin_dir}, "cd %s && ./trireme train" % bin_dir)):
            with self.subTest(start=start):
                out = self.interrupt(words, environment, "paste")
                step, command = re.fullmatch(r"interrupted after step ([\d,]+); continue with: (.*)\n", out).groups()
                self.assertEqual(command, start + " --resume 'my run'")
                if "CALLED_AS" in str(environment):
                    continue  # ./dev says so only where its own folder is the working one
                step = int(step.replace(",", ""))
                done = self.run_words(["sh", "-c", "%s --max-steps %d" % (command, step + 1)], "paste", environment=environment)
                self.assertIn("resumed at step %d from" % step, done.stderr)
                words = [TRAIN, "--resume", "my run", "--max-steps", "0"]

    def pid_of_rank(self, rank, run_dir):
        want = {b"RANK=%d" % rank, b"TRIREME_RUN_DIR=" + os.fsencode(run_dir)}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/environ" % pid, "rb") as f:
                    if want <= set(f.read().split(b"\0")):
                        return int(pid)
            except OSError:  # ended meanwhile, or somebody else's
                pass
        self.fail("no rank %d of %s" % (rank, run_dir))

    def test_a_second_signal_says_what_is_left(self):
        """Oracle: the checkpoints on disk. Rank 1 is stopped, so that no step can end and nothing can be saved."""
        flags = ["--recipe", "mlp", "--global-batch", "16", "--epochs", "10000", "--set", "log.every=1", "--set", "checkpoint.every_epochs=10000"]
        self.train("lost", *flags, "--max-steps", "2")
        for run, words, said in (("lost", ["--resume", self.path("lost"), "--max-steps", "0"], "the newest checkpoint is of step 2. Continue with: "),
                                 ("lost-all", [*flags, "--run-dir", self.path("lost-all")], "nothing is left to continue")):
            with self.subTest(run=run):
                metrics = self.path(run + "/metrics.jsonl")
                size = os.path.getsize(metrics) if os.path.exists(metrics) else 0
                process = subprocess.Popen([TRAIN, "--data", self.data, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                while process.poll() is None and not (os.path.exists(metrics) and os.path.getsize(metrics) > size):
                    pass
                os.kill(self.pid_of_rank(1, self.path(run)), signal.SIGSTOP)
                process.send_signal(signal.SIGTERM)
                for line in process.stderr:
                    if "passed on to the ranks" in line:
                        break
                process.send_signal(signal.SIGTERM)
                out, err = process.communicate(timeout=60)
                self.assertEqual((process.returncode, out), (128 + signal.SIGTERM, ""), err)
                self.assertIn("[train] killed before ", err)
                self.assertIn(said, err)

    def test_a_run_that_has_nothing_left_to_do_writes_nothing_twice(self):
        self.train("finished", "--recipe", "mlp", "--global-batch", "64", "--epochs", "1")
        with open(self.path("finished/metrics.jsonl"), "rb") as f:
            metrics = f.read()
        self.assertIn(b"test/accuracy", metrics)
        first = json.loads(metrics.splitlines()[-1])
        result, said = self.resume("finished")
        self.assertIn("nothing is left to train", said)
        self.assertEqual(result["test_accuracy"], first["test/accuracy"])
        with open(self.path("finished/metrics.jsonl"), "rb") as f:
            self.assertEqual(f.read(), metrics)

    def screen(self, data):
        """The lines that a terminal without end shows: carriage returns go back, \\033[K clears; what else is told to it is left out."""
        lines = []
        for line in re.sub(rb"\033\[\?7[lh]", b"", data).replace(b"\r\n", b"\n").split(b"\n"):
            shown = b""
            for piece in line.split(b"\r"):
                shown = piece[3:] if piece.startswith(b"\033[K") else piece + shown[len(piece):]
            lines.append(shown.decode().rstrip(" "))
        return lines

    def on_a_terminal(self, words):
        """What they write to stderr, a terminal."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=theirs, cwd=self.folder.name)
        os.close(theirs)
        data = b""
        try:
            while piece := os.read(ours, 65536):
                data += piece
        except OSError:  # the last writer is gone
            pass
        os.close(ours)
        self.assertEqual(process.wait(), 0, data)
        return data

    def test_the_progress_bar_is_redrawn_in_place_on_a_terminal(self):
        """Oracle: what such a terminal shows, also with two ranks, whose stderr is the launcher's pipe. 2 epochs of 24 steps."""
        words = [TRAIN, "--data", self.data, "--global-batch", "64", "--epochs", "2", "--set", "log.every=1"]
        for ranks, text in (("1", "1 rank"), ("2", "2 ranks")):
            with self.subTest(ranks=ranks):
                data = self.on_a_terminal([*words, "--ranks", ranks, "--run-dir", "bar" + ranks])
                shown = self.screen(data)
                start = "training resnet (96,314 parameters) on %s, 1,501 images, steps 1 to 48; run folder bar%s" % (text, ranks)
                self.assertEqual((shown[0], shown[-1]), (start, ""))
                bar = r"\[#*\.*\] +\d+%  \d+:\d\d left  epoch [012]\.\d/2  loss .* images/s"
                self.assertEqual(len(shown), 6, shown)
                for line, pattern in zip(shown[1:5], (bar, r"step 24: test accuracy \d+\.\d\d %", bar, "step 48: test accuracy .*")):
                    self.assertRegex(line, "^" + pattern + "$")
                self.assertRegex(shown[3], r"^\[#{24}\] 100%  0:00 left  epoch 2\.0/2 ")
                self.assertGreater(data.count(b"\r\033[K"), 2)

    def test_elsewhere_the_progress_bar_is_lines(self):
        done = self.run_words([TRAIN, "--data", self.data, "--recipe", "mlp", "--epochs", "1"], "no-bar")
        self.assertNotRegex(done.stderr, r"[\r\033]")
        self.assertRegex(done.stderr, r"\n\[#{24}\] 100%  0:00 left ")
        self.assertRegex(done.stdout, r"run folder: runs/\d{8}-\d{6}-[0-9a-f]{12}\n$")

    def test_the_document_shows_what_is_written(self):
        """Oracle: the example in docs/formats.md, whose index and header do not depend on the images but for two checksums."""
        self.train("document", "--recipe", "mlp", "--max-steps", "2")
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/formats.md")) as f:
            index, header = re.findall(r"```json\n(.*?)```", f.read().split("## Checkpoints")[1], re.S)[:2]
        with open(self.path("document/checkpoints/step-2/index.json")) as f:
            written = f.read()
        self.assertEqual(*(re.sub('"xxh3_64": "[0-9a-f]{16}"', "", text) for text in (written, index)))
        shard = self.tensors("document", 2)
        size, = struct.unpack("<Q", shard[:8])
        self.assertEqual(shard[8:8 + size].decode(), header.replace("\n", "").replace(" ", "").ljust(size))

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
