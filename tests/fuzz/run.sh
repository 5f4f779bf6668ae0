#!/usr/bin/env bash
# Runs every fuzzer of build/fuzz/bin for SECONDS each (default 60), one after the other, and fails at the first crash. What it found new stays
# in build/fuzz/corpus/<name>. Seeds: tests/fuzz/seeds/<name>, where there are some.
#   tests/fuzz/run.sh [SECONDS] [NAME ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=${1:-60}
shift || true
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for program in build/fuzz/bin/fuzz_*; do names+=("${program##*/fuzz_}"); done
fi
for name in "${names[@]}"; do
  corpus=build/fuzz/corpus/$name
  mkdir -p "$corpus"
  folders=("$corpus")
  [ -d "tests/fuzz/seeds/$name" ] && folders+=("tests/fuzz/seeds/$name")
  printf 'fuzz_%s for %s s\n' "$name" "$seconds"
  "build/fuzz/bin/fuzz_$name" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=16384 -print_final_stats=1 \
    -verbosity=0 -artifact_prefix="build/fuzz/" "${folders[@]}" 2>&1 | grep -E 'stat::number_of_executed|stat::peak_rss|ERROR|SUMMARY|==|Test unit' || true
  # The pipe hides the exit code; a crash leaves its input.
  if compgen -G 'build/fuzz/crash-*' >/dev/null || compgen -G 'build/fuzz/timeout-*' >/dev/null || compgen -G 'build/fuzz/oom-*' >/dev/null ||
    compgen -G 'build/fuzz/leak-*' >/dev/null; then
    printf 'fuzz_%s failed: see build/fuzz/{crash,timeout,oom,leak}-*\n' "$name" >&2
    exit 1
  fi
done
