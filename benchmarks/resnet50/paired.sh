#!/usr/bin/env bash
# Two variants at the same moment, each on a GPU of its own, then swapped: what disturbs the host disturbs both alike.
#   OUT=results bash benchmarks/resnet50/paired.sh "by_hand run" "run by_hand" "with_callbacks by_hand" "by_hand with_callbacks"
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
out=${OUT:-$here/results}
work=$(mktemp -d)

one() { # GPU VARIANT
  if [ "$2" = run ]; then
    command=(python3 -m tfvolta run --directory "$work/runs" "$here/untouched.py")
  else
    command=(python3 "$here/$2.py")
  fi
  CUDA_VISIBLE_DEVICES=$1 timeout 150 "${command[@]}" --steps 100 --epochs 4 >"$work/log.$1" 2>&1
  result=$(grep '^RESULT ' "$work/log.$1" | cut -c8-)
  echo "{\"gpu\": $1, \"variant\": \"$2\", \"result\": ${result:-null}}" >>"$out/pairs.jsonl"
}

for pair in "$@"; do
  read -r left right <<<"$pair"
  one 0 "$left" &
  one 1 "$right" &
  wait
  tail -n 2 "$out/pairs.jsonl" | cut -c1-220
done
