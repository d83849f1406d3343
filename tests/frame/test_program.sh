#!/bin/sh
# What the companion test program offers beside --check, run by the judge: figures as JSON, times of
# steps under the plan's names, arguments that are refused.
. "$(dirname "$0")/lib.sh"

model=tests/unseen/attention.ein
check 'emit' build/einnet emit $model --small -o "$work/p.cu" --test "$work/p_test.cu"
check 'pack' build/einnet pack $model --small -o "$work/p.weights"
check 'build' tests/judge/judgecc --mode san -o "$work/p" "$work/p_test.cu" "$work/p.cu"
export JUDGE_LEAKCHECK=1 OPENBLAS_NUM_THREADS=1

check '--bench' "$work/p" "$work/p.weights" --bench --bench-ms 0.1
"$work/p" "$work/p.weights" --check --bench --bench-ms 0.1 > "$work/json" 2> "$work/said"
check 'its figures are JSON' .venv/bin/python -c "
import json, sys
f = json.load(open(sys.argv[1]))
assert f['median_us'] > 0 and f['cold_median_us'] > 0 and f['latency_median_us'] > 0
assert f['model'] == 'attention' and f['error'] < 1e-5 and f['input_sets'] > 1" "$work/json"

"$work/p" "$work/p.weights" --check --steps --bench-ms 0.1 > "$work/steps" 2>&1
check '--steps with --check' [ $? = 0 ]
# The plan's lines have a name as their fourth word, the program's as their last.
sed -n -E 's~^// +[0-9.]+ [a-z]+ (est[.]|measured) ([^ ]+) .*~\2~p' "$work/p.cu" > "$work/plan"
sed -n -E 's|^step .* ([^ ]+)$|\1|p' "$work/steps" > "$work/names"
check 'every step of the plan has a time' cmp "$work/plan" "$work/names"
check 'there are several' [ "$(wc -l < "$work/plan")" -gt 3 ]

for args in '' '--steps' "$work/p.weights --bench-ms" "$work/p.weights --bench-ms x"; do
    "$work/p" $args > "$work/said" 2>&1
    check "usage: $args" [ $? = 2 ]
done
finish
