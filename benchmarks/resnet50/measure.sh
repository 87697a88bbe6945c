#!/usr/bin/env bash
# Runs the variants in turn, each in a process of its own, ROUNDS times, and writes one JSON line for each run.
#   ROUNDS=2 VARIANTS="by_hand run with_callbacks" OUT=results bash benchmarks/resnet50/measure.sh [ARGUMENTS of the scripts]
# The variant `run` is the untouched script under `tfvolta run` with the embedded default config.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
out=${OUT:-$here/results}
work=$(mktemp -d)
for round in $(seq 1 "${ROUNDS:-2}"); do
  for variant in ${VARIANTS:-by_hand run with_callbacks}; do
    if [ "$variant" = run ]; then
      command=(python3 -m tfvolta run --directory "$work/runs" "$here/untouched.py" "$@")
    else
      command=(python3 "$here/$variant.py" "$@")
    fi
    log="$work/$variant.$round.log"
    timeout "${LIMIT:-170}" "${command[@]}" >"$log" 2>&1
    code=$?
    line=$(grep '^RESULT ' "$log" | tail -1 | cut -c8-)
    if [ -z "$line" ]; then
      echo "FAILED $variant round $round, exit code $code"
      tail -n 25 "$log"
      line='{}'
    fi
    echo "{\"variant\": \"$variant\", \"round\": $round, \"exit_code\": $code, \"result\": $line}" | tee -a "$out/resnet50.jsonl" | cut -c1-260
  done
done
for evidence in "$work"/runs/*/evidence.json; do [ -e "$evidence" ] && cp "$evidence" "$out/evidence_$(basename "$(dirname "$evidence")").json"; done
exit 0
