"""Oracle: published parameter counts, sums that must hold between the fields of an answer, exit codes and messages of wrong use.
Usage: plan_test.py TRIREME SOURCE"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TRIREME, SOURCE = pathlib.Path(sys.argv.pop(1)).resolve(), pathlib.Path(sys.argv.pop(1)).resolve()
LLAMA = ["--model", "llama3_8b", "--seq-len", "4096"]


def run(*args):
    return subprocess.run([TRIREME, "plan", *map(str, args)], capture_output=True, text=True, timeout=60)


class SearchTest(unittest.TestCase):
    def answer(self, *args):
        done = run(*LLAMA, "--cluster", "2x8xA100-80", "--global-batch", 64, "--json", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_parts_sum_and_degrees_multiply(self):
        found = self.answer("--top", 6)
        self.assertEqual((found["schema"], found["devices"], found["model"]["parameters"]), (1, 16, 8_030_261_248))
        self.assertEqual(found["considered"], found["costed"] + sum(found["rejected"].values()))
        steps = [row["step_s"] for row in found["plans"]]
        self.assertEqual(steps, sorted(steps))
        self.assertEqual(len(steps), 6)
        for row in found["plans"]:
            plan = row["plan"]
            self.assertEqual(plan["dp"] * plan["tp"] * plan["pp"] * plan["cp"], 16)
            self.assertAlmostEqual(sum(term["seconds"] for term in row["time"]), row["step_s"], delta=1e-9)
            self.assertAlmostEqual(64 * 4096 / row["step_s"], row["tokens_per_s"], delta=1e-3)
            self.assertLessEqual(row["peak_bytes"], found["limit_bytes"])
            self.assertAlmostEqual(max(stage["bytes"] for stage in row["memory"]), row["peak_bytes"], delta=1)
            for stage in row["memory"]:
                self.assertAlmostEqual(sum(term["bytes"] for term in stage["terms"]), stage["bytes"], delta=1)

    def test_flags_that_fix_are_obeyed(self):
        for row in self.answer("--tp", "2,4", "--pp", 1, "--recompute", "full")["plans"]:
            self.assertIn(row["plan"]["tp"], (2, 4))
            self.assertEqual((row["plan"]["pp"], row["plan"]["recompute"]), (1, "full"))

    def test_runnable_leaves_out_what_the_runtime_has_not(self):
        done = run("--model", "gpt2", "--seq-len", 1024, "--cluster", "8xA100-80", "--global-batch", 64, "--runnable", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual([(row["plan"]["dp"], row["plan"]["zero_stage"]) for row in found["plans"]], [(8, 0)])
        self.assertGreater(found["rejected"]["not in Trireme's runtime yet"], 0)

    def test_networks_by_operators_are_data_parallel(self):
        done = run("--model", "resnet50", "--cluster", "2x8xA100-80", "--global-batch", 2048, "--zero", "0,3", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        row = json.loads(done.stdout)["plans"][0]
        self.assertEqual((row["plan"]["dp"], row["plan"]["pp"]), (16, 1))
        self.assertAlmostEqual(2048 / row["step_s"], row["tokens_per_s"], delta=1e-3)

    def test_axes_that_networks_by_operators_lack_are_refused(self):
        done = run("--model", "resnet50", "--cluster", "2x8xA100-80", "--global-batch", 2048, "--bucket-mb", 25)
        self.assertRegex(done.stdout, r"\n +[1-9]\d*  a network described by operators is split by data only, without buckets, compression, shard ranks or offload")
        self.assertNotIn("buckets 25", done.stdout)
        self.assertIn("global batch 2048, bf16", done.stdout)
        done = run("--model", "resnet50", "--cluster", "2x8xA100-80", "--global-batch", 2048, "--compress", 0.5, "--json")
        self.assertEqual(json.loads(done.stdout)["plans"][0]["plan"]["compression"], 1)

    def test_schedules_and_named_axes(self):
        for row in self.answer("--pp", 4, "--schedule", "zb1p", "--even-stages")["plans"]:
            self.assertEqual((row["plan"]["schedule"], row["plan"]["stage_layers"]), ("zb1p", []))
        self.assertIn("did you mean", run(*LLAMA, "--cluster", "8xH100", "--global-batch", 8, "--schedul", "zbv").stderr)
        found = self.answer("--zero", 3, "--shard-ranks", 8, "--bucket-mb", 25, "--compress", 0.5, "--offload-optimizer")
        self.assertLessEqual(found["plans"][0]["step_s"], self.answer("--zero", 3)["plans"][0]["step_s"])

    def test_constraints_in_words_mean_the_flags(self):
        words = self.answer("--constraint", "pp <= 2", "--constraint", "20 % spare; no tp across nodes; no zero bubble")
        flags = self.answer("--max-pp", 2, "--spare", 20, "--schedule", "1f1b,interleaved")
        for name in ("plans", "rejected", "limit_bytes"):
            self.assertEqual(words[name], flags[name])
        self.assertIn("--constraint 'pp is 2' is not understood", run(*LLAMA, "--cluster", "8xH100", "--global-batch", 8, "--constraint", "pp is 2").stderr)

    def test_what_the_runtime_lacks_buckets_and_constants_are_told(self):
        found = self.answer("--tp", 2, "--recompute", "none")
        self.assertIn("tp 2", found["plans"][0]["plan"]["not_in_runtime"])
        sizes = found["gradient_buckets"]
        self.assertEqual([size["step_s"] for size in sizes], sorted(size["step_s"] for size in sizes))
        self.assertEqual({size["bytes"] for size in sizes}, {2**n for n in range(20, 31)})
        self.assertTrue(all(constant["source"] for constant in found["constants"]))
        self.assertEqual(sum(constant["source"].startswith("fitted on") for constant in found["constants"] if constant["of"] == "device A100-80") <= 8, True)
        text = run(*LLAMA, "--cluster", "2x8xA100-80", "--global-batch", 64, "--zero", 1, "--explain", "constants").stdout
        for words in ("device A100-80", "matmul_efficiency", "fitted on", "software default", "gradient buckets of ", "not in Trireme's runtime yet: "):
            self.assertIn(words, text)
        for row in json.loads(run("--model", "gpt2", "--seq-len", 1024, "--cluster", "8xA100-80", "--global-batch", 64, "--runnable", "--json").stdout)["plans"]:
            self.assertEqual(row["plan"]["not_in_runtime"], [])

    def test_text_says_what_won_why_others_lost_and_what_was_rejected(self):
        done = run(*LLAMA, "--cluster", "2x8xA100-80", "--global-batch", 64, "--price", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ("the fastest of ", "MFU ", "cost ", "time of the step", "memory of the fullest rank", "the next layouts lost by", " instead of ",
                      "rejected ", "needs more memory than there is"):
            self.assertIn(words, done.stdout)
        for what, words in (("time", "TFLOP/s"), ("memory", "B each")):
            self.assertIn(words, run(*LLAMA, "--cluster", "2x8xA100-80", "--global-batch", 64, "--explain", what).stdout)
        self.assertIn("less memory against less time", run(*LLAMA, "--cluster", "2x8xA100-80", "--global-batch", 64, "--pareto").stdout)

    def test_nothing_fits_says_by_how_many_bytes(self):
        """Case N07."""
        done = run("--model", "llama3_70b", "--cluster", "RTX-4090", "--global-batch", 1, "--seq-len", 2048)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^\[plan\] nothing fits: the nearest plan \(dp 1 .*\) needs .* on pipeline rank 0, .* \(\d+ bytes\) more than the ")
        as_json = json.loads(run("--model", "llama3_70b", "--cluster", "RTX-4090", "--global-batch", 1, "--seq-len", 2048, "--json").stdout)
        self.assertEqual(as_json["plans"], [])
        self.assertGreater(as_json["nearest"]["peak_bytes"], as_json["limit_bytes"])

    def test_impossible_values_name_the_divisibility(self):
        for flag, value, words in (("--micro-batch", 3, "--micro-batch 3 does not divide the global batch of 64"), ("--dp", 3, "--dp 3 does not divide the 16 devices"),
                                   ("--tp", 16, "--tp 16 is more than the 8 devices of one link domain"), ("--ep", 2, "the model has no experts")):
            done = run(*LLAMA, "--cluster", "2x8xA100-80", "--global-batch", 64, flag, value)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)
            self.assertNotIn("have this fault", done.stderr)
        self.assertIn("impossible: --dp 3 does not divide", run(*LLAMA, "--cluster", "2x8xA100-80", "--global-batch", 64, "--dp", "3,4").stdout)
        self.assertEqual(self.answer("--dp", "3,4")["impossible_values"], ["--dp 3 does not divide the 16 devices"])

    def test_fewer_devices_are_named_where_they_are_faster(self):
        gpt2 = ["--model", "gpt2", "--seq-len", 1024, "--global-batch", 64]
        all_of = json.loads(run(*gpt2, "--cluster", "7x8xH100", "--json").stdout)
        fewer = all_of["fewer_devices"]
        self.assertLess(fewer["devices"], 56)
        alone = json.loads(run(*gpt2, "--cluster", f"{fewer['devices'] // 8}x8xH100", "--json").stdout)
        self.assertEqual(alone["plans"][0]["step_s"], fewer["step_s"])
        self.assertLess(fewer["step_s"], all_of["plans"][0]["step_s"])
        self.assertIn(f"{fewer['devices']} devices are faster than 56: ", run(*gpt2, "--cluster", "7x8xH100").stdout)
        self.assertIsNone(self.answer()["fewer_devices"])

    def test_unlike_hosts_say_in_json_what_the_text_says(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "c.json"
            path.write_text(json.dumps({"schema": 1, "price_per_device_hour": 2, "hosts": [
                {"count": 4, "devices": 8, "device": "H100"}, {"count": 1, "devices": 8, "device": "V100-16"}]}))
            ask = ["--model", "gpt2", "--seq-len", 1024, "--global-batch", 64, "--cluster", path, "--precision", "fp16"]
            text, found = run(*ask).stdout, json.loads(run(*ask, "--json").stdout)
            self.assertEqual([(kind["hosts"], kind["device"]) for kind in found["kinds"]], [(4, "H100"), (1, "V100-16")])
            best = found["plans"][0]
            for kind in found["kinds"]:
                self.assertEqual(kind["alone_is_faster"], kind["alone"]["step_s"] < best["step_s"])
                self.assertEqual(kind["alone_is_faster"], f"{kind['device']} alone are faster" in text)
            self.assertTrue(found["kinds"][0]["alone_is_faster"])
            self.assertAlmostEqual(best["cost"], 2 * 40 / 3600 * best["step_s"])
            self.assertIn("(kind 1) and 1 x 8 x V100-16 (kind 2)", text)
            self.assertIn(found["unmodelled"][0], text)
            self.assertIn("--explain time: the terms are told of equal hosts only", run(*ask, "--explain", "time").stderr)
            nothing = run("--model", "llama3_70b", *ask[2:4], "--global-batch", 40, *ask[6:], "--spare", 90)
            self.assertRegex(nothing.stderr, r"of (H100|V100-16), .* \([1-9]\d* bytes\) more than the ")

    def test_wrong_use_is_one_clear_error(self):
        good = [*LLAMA, "--cluster", "8xH100", "--global-batch", 8]
        for args, words in (
                ([*good, "--frob"], "--frob"),
                ([*good[:-1], "0"], "--global-batch 0: 1 to 1,000,000,000"),
                ([*good, "--precision", "fp3"], "--precision fp3: H100 has "),
                ([*good, "--software", "megatron-cor-te"], "megatron-core-te"),
                (["--model", "lama3_8b", *good[2:]], "did you mean 'llama3_8b'?"),
                (["--cluster", "8xH10", *LLAMA, "--global-batch", 8], "H100"),
                (["--model", "llama3_8b", "--cluster", "8xH100", "--global-batch", 8], "--seq-len"),
                ([*good, "--spare", "nan"], "--spare is 'nan'; a number from 0 to 99"),
                ([*good, "--explain", "foo"], "--explain is 'foo'; one of time, memory, constants is required"),
                ([*good, "--schedule", "1f1c"], "--schedule is '1f1c'; one of 1f1b, "),
                (["--model", "qwen3", *good[2:]], "Shipped: qwen3-235b-a22b, qwen3-30b-a3b, qwen3-8b."),
                ([*good, "--tp", "2,x"], "--tp is 'x'; a whole number from 1"),
                (["frob"], "frob")):
            with self.subTest(args=args):
                done = run(*args)
                self.assertIn(done.returncode, (1, 2), done.stdout)
                self.assertIn(words, done.stderr)
                self.assertRegex(done.stderr, r"^\[plan")
                self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)


class ScoreTest(unittest.TestCase):
    COLUMNS = ("source,year,model,params_b,layers,hidden,heads,kv_heads,ffn_hidden,vocab,seq_len,gpu,gpus,gpus_per_node,dp,tp,pp,cp,ep,zero_stage,"
               "micro_batch,global_batch,recompute,precision,virtual_stages,seconds_per_step,samples_per_s,tokens_per_s_per_gpu,tflops_per_gpu,"
               "mfu_pct,peak_mem_gb,note").split(",")
    GOOD = dict(source="made up", model="dense", layers="24", hidden="1024", heads="16", ffn_hidden="4096", vocab="50257", seq_len="1024",
                gpu="A100-80", gpus="8", gpus_per_node="8", dp="8", tp="1", pp="1", cp="1", zero_stage="1", micro_batch="1", global_batch="8",
                recompute="none", precision="bf16", seconds_per_step="0.1")

    def score(self, **changed):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "t.csv"
            row = {**self.GOOD, **changed}
            path.write_text(",".join(self.COLUMNS) + "\n" + ",".join(row.get(name, "") for name in self.COLUMNS) + "\n")
            return run("score", path)

    def test_what_was_assumed_is_told(self):
        """Rows of no known publication: defaults, labelled; a device that nothing was fitted on: labelled."""
        said = self.score().stdout
        for words in ("assumed of 1: cluster unknown: defaults, uncalibrated", "assumed of 1: software unknown: defaults, uncalibrated"):
            self.assertIn(words, said)
        self.assertNotIn("datasheet only", said)
        self.assertIn("assumed of 1: device MI300X: datasheet only", self.score(gpu="MI300X").stdout)
        self.assertIn("assumed of 1: heads not given: 128 wide each", self.score(heads="").stdout)

    def test_impossible_cells_are_named_not_predicted(self):
        self.assertEqual(self.score().returncode, 0, self.score().stderr)
        for column, value in [(name, bad) for name in ("layers", "hidden", "heads", "seq_len", "gpus", "dp", "tp", "pp", "cp", "micro_batch", "global_batch")
                              for bad in ("0", "-1", "0.5", "nan", "inf", "1e30")] + [
                                  ("zero_stage", "9"), ("recompute", "zz"), ("precision", "zz"), ("seconds_per_step", "-1"), ("seconds_per_step", "inf")]:
            with self.subTest(column=column, value=value):
                done = self.score(**{column: value})
                self.assertEqual(done.returncode, 2, done.stdout)
                self.assertRegex(done.stderr, r"^\[plan\.score\] \S*t\.csv:2: column '%s' is " % column)


    def test_what_is_no_file_is_one_error_at_once(self):
        """Folders, devices and pipes wherever a file is asked for; what a file says never reaches the terminal as a command."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            os.mkfifo(folder / "pipe.json")
            table = folder / "t.csv"
            table.write_text(",".join(self.COLUMNS) + "\n" + ",".join(self.GOOD.get(name, "") for name in self.COLUMNS) + "\n")
            for path, words in ((folder / "pipe.json", "it is a pipe"), ("/dev/zero", "it is a device"), (folder, "it is a folder"),
                                (folder / "none.json", "No such file")):
                for args in (["score", path], ["score", path, "--calibrate", 5], ["estimate-memory", "--model", path],
                             ["estimate-memory", "--model", "gpt2", "--cluster", path]):
                    with self.subTest(args=args):
                        done = run(*args)
                        self.assertEqual(done.returncode, 1)
                        self.assertIn(words, done.stderr)
                        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            for out, words in (("", "--out is empty"), (folder, "Is a directory"), (folder / "pipe.json", "cannot write"), (folder / "none/x", "cannot write")):
                done = run("score", table, "--out", out)
                self.assertIn(done.returncode, (1, 2))
                self.assertIn(words, done.stderr)
            for name, text in (("a.json", '{"model_type": "\\u001b[31mx"}'), ("b.json", '{"\\u001b[2J": 1, "schema": 1}'), ("c.json", '{"schema": 1, "name": "\x1b[2J"}'),
                               ("d.csv", table.read_text().replace("dense", "\x1b[2J"))):
                (folder / name).write_text(text)
                done = run("score", folder / name) if name.endswith("csv") else run("estimate-memory", "--model", folder / name)
                self.assertEqual(done.returncode, 2, name)
                self.assertNotIn("\x1b", done.stdout + done.stderr)


class CalibrateTest(unittest.TestCase):
    FOLDER = SOURCE / "docs/howto/calibrate"

    def test_the_document_shows_what_the_program_says(self):
        """Oracle: docs/howto/calibrate.md itself: its commands run, each of their lines stands there; its cluster files are those beside it."""
        page = (SOURCE / "docs/howto/calibrate.md").read_text()
        commands = [line.removeprefix("$ trireme plan ").split() for line in page.splitlines() if line.startswith("$ trireme plan ")]
        self.assertEqual(len(commands), 2)
        for words in commands:
            done = subprocess.run([TRIREME, "plan", *words], capture_output=True, text=True, timeout=60, cwd=self.FOLDER)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(done.stdout, page)
        for name in ("cluster.json", "calibrated.json"):
            self.assertIn((self.FOLDER / name).read_text(), page)

    def test_own_rows_run_on_the_own_cluster(self):
        """Oracle: fitted constants explain the rows that they were fitted on better than the defaults, and a slower network is slower."""
        def score(*more):
            done = run("score", self.FOLDER / "measured.csv", "--software", "megatron-2021", "--json", *more)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)["files"][0]
        fit = score("--cluster", self.FOLDER / "cluster.json", "--calibrate", 5)["calibration"]
        self.assertEqual((len(fit["lines"]), fit["rest"], fit["other_rows"]), (5, 4, 0))
        self.assertEqual(set(fit["constants"]["ours"]), {"launch_seconds", "link_latency", "network_efficiency"})
        self.assertLess(score("--cluster", self.FOLDER / "calibrated.json")["mape"], score("--cluster", self.FOLDER / "cluster.json")["mape"])
        all_rows = score("--cluster", self.FOLDER / "cluster.json", "--calibrate", 9)["calibration"]
        self.assertEqual((len(all_rows["lines"]), all_rows["rest"]), (9, 0))
        with tempfile.TemporaryDirectory() as folder:
            slow = pathlib.Path(folder) / "slow.json"
            slow.write_text((self.FOLDER / "calibrated.json").read_text().replace("25e9", "2.5e9"))
            self.assertGreater(score("--cluster", slow)["bias"], score("--cluster", self.FOLDER / "calibrated.json")["bias"] + 0.05)
            slow.write_text('{"schema": 1, "hosts": [{"devices": 8, "device": "H100"}, {"devices": 4, "device": "H100"}]}')
            self.assertIn("its hosts differ", run("score", self.FOLDER / "measured.csv", "--cluster", slow).stderr)
        self.assertIn("did you mean 'megatron-2021'?", run("score", self.FOLDER / "measured.csv", "--software", "megatron-201").stderr)


class MemoryTest(unittest.TestCase):
    def test_weights_of_a_model(self):
        """Case N01: a configuration that names no dtype, or another, still has two bytes a weight."""
        config = {"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
                  "intermediate_size": 28672, "vocab_size": 128256, "torch_dtype": "float32", "tie_word_embeddings": False}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "config.json"
            path.write_text(json.dumps(config))
            done = run("estimate-memory", "--model", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("141,107,412,992 bytes  131.42 GiB", done.stdout)

    def test_exit_code_and_smallest_change(self):
        done = run("estimate-memory", *LLAMA, "--cluster", "4xA100-80", "--json")
        self.assertEqual(done.returncode, 1, done.stderr)
        answer = json.loads(done.stdout)
        self.assertFalse(answer["fits"])
        self.assertGreater(answer["peak_bytes"], answer["limit_bytes"])
        self.assertEqual(answer["smallest_change"]["changes"], "ZeRO 3 instead of 0")
        again = run("estimate-memory", *LLAMA, "--cluster", "4xA100-80", "--zero", 3)
        self.assertEqual(again.returncode, 0, again.stdout + again.stderr)
        self.assertIn("fits, ", again.stdout)

    def test_interleaved_plans_fill_their_pipeline(self):
        done = run("estimate-memory", *LLAMA, "--cluster", "8xA100-80", "--pp", 4, "--virtual-stages", 2, "--zero", 1)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("global batch 8 x 4096", done.stdout)  # dp 2 x pp 4 micro-steps
        self.assertIn("interleaved x 2", done.stdout)
        plain = json.loads(run("estimate-memory", *LLAMA, "--cluster", "8xA100-80", "--pp", 4, "--zero", 1, "--json").stdout)
        both = json.loads(run("estimate-memory", *LLAMA, "--cluster", "8xA100-80", "--pp", 4, "--virtual-stages", 2, "--zero", 1, "--json").stdout)
        self.assertGreater(both["peak_bytes"], plain["peak_bytes"])  # interleaving keeps more activations
        self.assertIn("pp 4 x 3 virtual stages = 12 does not divide the 32 layers",
                      run("estimate-memory", *LLAMA, "--cluster", "8xA100-80", "--pp", 4, "--virtual-stages", 3).stderr)
        self.assertIn("2 virtual stages need a pipeline", run("estimate-memory", *LLAMA, "--cluster", "8xA100-80", "--virtual-stages", 2).stderr)

    def test_a_model_shorter_than_the_usual_sequence(self):
        self.assertEqual(run("estimate-memory", "--model", "gpt2", "--cluster", "1xH100").returncode, 0)

    def test_a_flag_without_effect_is_refused(self):
        for flag, value in (("--global-batch", 8), ("--seq-len", 9), ("--precision", "fp8"), ("--software", "default"), ("--tp", 2), ("--pp", 2), ("--cp", 2),
                            ("--ep", 2), ("--micro-batch", 2), ("--virtual-stages", 2), ("--zero", 1), ("--recompute", "full"), ("--spare", 5)):
            done = run("estimate-memory", "--model", "gpt2", flag, value)
            self.assertEqual((done.returncode, done.stdout), (2, ""), flag)
            self.assertIn(f"{flag} goes with --cluster", done.stderr)

    def test_networks_by_operators_are_split_by_data(self):
        done = run("estimate-memory", "--model", "resnet50", "--cluster", "8xRTX-3090", "--micro-batch", 64)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("dp 8  micro-batch 64  recompute none  ZeRO 0", done.stdout)
        done = run("estimate-memory", "--model", "resnet50", "--cluster", "8xRTX-3090", "--micro-batch", 512)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("micro-batch 256 instead of 512", done.stdout)
        self.assertIn("split by data only", run("estimate-memory", "--model", "resnet50", "--cluster", "8xRTX-3090", "--tp", 2).stderr)

    def test_degrees_that_do_not_divide_the_devices(self):
        done = run("estimate-memory", *LLAMA, "--cluster", "4xA100-80", "--tp", 3)
        self.assertEqual(done.returncode, 2)
        self.assertIn("tp 3 x pp 1 x cp 1 = 3 does not divide the 4 devices", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
