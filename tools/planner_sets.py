"""The parts of tables of published measurements that bench/results/planner.md gives a figure for, as 'trireme plan score --rows' predicts them.

Usage: tools/planner_sets.py TRIREME FOLDER    (FOLDER holds the tables; bench/results/planner.md says which)
Prints for each part: rows predicted / rows with a measured time, mean absolute error, mean error, share within 10 %."""
import collections
import csv
import pathlib
import re
import subprocess
import sys

PLAN = ("model", "gpu", "gpus", "seq_len", "precision", "dp", "global_batch", "tp", "pp", "cp", "ep", "micro_batch", "virtual_stages")
INPUT_BOUND = {29, 35, 37, 43, 45}  # lines of dlperf_resnet50_bert_v100.csv: slower than their neighbours by what feeds them


def scored(trireme, path):
    """Rows with what was measured and predicted; a row without either has None."""
    said = subprocess.run([trireme, "plan", "score", path, "--rows"], capture_output=True, text=True, check=True).stdout
    times = {int(m[1]): (float(m[2]), float(m[3])) for m in re.finditer(r"line (\d+): measured (\S+) s, predicted (\S+) s", said)}
    refused = {int(line) for line in re.findall(r"line (\d+) refused", said)}
    with open(path, newline="") as file:
        for number, row in enumerate(csv.DictReader(file), start=2):
            yield {**row, "line": number, "times": times.get(number), "timed": number in times or number in refused and has_time(row)}


def has_time(row):
    return any(row[name] for name in ("seconds_per_step", "samples_per_s", "tokens_per_s_per_gpu"))


def newest(rows):
    """Of each plan the rows of its newest release."""
    def release(row):
        return tuple(map(int, re.search(r"\((\d+(?:\.\d+)+)", row["source"])[1].split(".")))
    plans = collections.defaultdict(list)
    for row in rows:
        plans[tuple(row[name] for name in PLAN)].append(row)
    return [row for group in plans.values() for row in group if release(row) == max(map(release, group))]


def show(name, rows):
    errors = [predicted / measured - 1 for measured, predicted in (row["times"] for row in rows if row["times"])]
    if errors:
        print(f"{name:58} {len(errors):4} / {sum(row['timed'] for row in rows):<4} {100 * sum(map(abs, errors)) / len(errors):6.2f} % "
              f"{100 * sum(errors) / len(errors):+7.2f} % {100 * sum(abs(e) <= 0.1 for e in errors) / len(errors):4.0f} %")


def scaling(rows):
    """Error of t(n) / t(1) of one framework."""
    groups = collections.defaultdict(list)
    for row in rows:
        if row["times"]:
            framework = re.split("[;,]", row["note"])[0]
            groups[(row["source"], framework, *(row[n] for n in ("model", "gpu", "precision", "micro_batch", "seq_len")))].append(row)
    errors = []
    for group in groups.values():
        one = next((row for row in group if row["gpus"] == "1"), None)
        for row in group if one else []:
            if row["gpus"] != "1":
                errors.append(row["times"][1] / one["times"][1] / (row["times"][0] / one["times"][0]) - 1)
    print(f"{'scaling t(n) / t(1), not bound by input':58} {len(errors):4}        {100 * sum(map(abs, errors)) / len(errors):6.2f} %")


def main():
    trireme, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    table = {name: list(scored(trireme, folder / f"{name}.csv")) for name in (
        "megatron_bridge_h100_b200_gb200", "nvidia_dgxc_recipes_h100_gb200", "simumax_b200_time_and_memory", "misc_llm_fsdp_megatron",
        "megatron_sc21_and_readmes_a100_v100", "resnet50_dataparallel_dle_horovod", "dlperf_resnet50_bert_v100")}

    def part(name, wanted):
        return [row for row in table[name] if wanted(row)]
    dense = part("megatron_bridge_h100_b200_gb200", lambda row: "LLAMA" in row["model"])
    experts = part("megatron_bridge_h100_b200_gb200", lambda row: row["model"] in ("DeepSeekV3", "Qwen3_30B_a3B"))
    dgxc = part("nvidia_dgxc_recipes_h100_gb200", lambda row: "DeepSeek" in row["model"])
    simumax = part("simumax_b200_time_and_memory", lambda row: "deepseek" in row["model"])
    images = part("dlperf_resnet50_bert_v100", lambda row: row["line"] not in INPUT_BOUND)
    show("SC21, A100", part("megatron_sc21_and_readmes_a100_v100", lambda row: "A100" in row["gpu"]))
    show("Megatron-Bridge, dense, newest release of each plan", newest(dense))
    show("Megatron-Bridge, dense, all releases", dense)
    show("Megatron-Bridge, DeepSeek V3 and Qwen3 30B, newest", newest(experts))
    show("Megatron-Bridge, DeepSeek V3 and Qwen3 30B, all", experts)
    show("dgxc, DeepSeek V3", dgxc)
    show("SimuMax, DeepSeek V2 and V3", simumax)
    show("DeepSeek and Qwen3 30B of the three, newest", newest(experts) + dgxc + simumax)
    show("DeepSeek V2 and V3 of the three, newest", [row for row in newest(experts) if "DeepSeek" in row["model"]] + dgxc + simumax)
    show("Qwen3 30B, newest", [row for row in newest(experts) if "Qwen3" in row["model"]])
    show("SimuMax, Llama", part("simumax_b200_time_and_memory", lambda row: "llama" in row["model"]))
    show("dgxc, Llama and Nemotron-4", part("nvidia_dgxc_recipes_h100_gb200", lambda row: re.match("Llama3|Nemotron4", row["model"])))
    show("fms-fsdp", part("misc_llm_fsdp_megatron", lambda row: "fms" in row["source"]))
    show("DeepLearningExamples and Horovod", table["resnet50_dataparallel_dle_horovod"])
    show("DLPerf ResNet-50 and BERT, not bound by input", images)
    scaling(table["resnet50_dataparallel_dle_horovod"] + images)


if __name__ == "__main__":
    main()
