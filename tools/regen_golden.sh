#!/usr/bin/env bash
# Writes all files of tests/golden anew, from this tree. Look at the difference, and commit it alone, with the reason.
#
# The list of losses holds bit for bit on a machine with the CPU it was written on, so write it on the reference machine (docs/build.md).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

./dev build dev --target trireme trireme-train cli_train_procs
bin=$PWD/build/dev/bin
python3 tests/cli/program_test.py "$bin/trireme" "$PWD" --regen
python3 tests/cli/simulate_test.py "$bin/trireme" "$PWD" --regen
"$bin/trireme-train" --help >tests/golden/cli/train_help.txt
TRIREME_REGEN_GOLDEN=1 "$bin/cli_train_procs" --gtest_filter='GoldenLosses.*' --gtest_brief=1
git status --short tests/golden
git --no-pager diff --stat tests/golden
