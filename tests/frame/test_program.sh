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

# Plain runs are none of the graph that --check has recorded: that one is replayed there alone.
sed 's/CUDA_CALL(m, "run", cudaGraphLaunch(.*/puts("replayed"); &/' "$work/p.cu" > "$work/r.cu"
check 'replays: build' tests/judge/judgecc --quick -o "$work/r" "$work/p_test.cu" "$work/r.cu"
"$work/r" "$work/p.weights" --check --bench --bench-ms 0.1 > "$work/said" 2>&1
[ "$(grep -c '^replayed$' "$work/said")" = 1 ] && pass || fail 'replays: one' "$work/said"

"$work/p" "$work/p.weights" --check --steps --bench-ms 0.1 > "$work/steps" 2>&1
check '--steps with --check' [ $? = 0 ]
# The plan's lines have a name as their fourth word, the program's as their last.
sed -n -E 's~^// +[0-9.]+ [a-z]+ (est[.]|measured) ([^ ]+) .*~\2~p' "$work/p.cu" > "$work/plan"
sed -n -E 's|^step .* ([^ ]+)$|\1|p' "$work/steps" > "$work/names"
check 'every step of the plan has a time' cmp "$work/plan" "$work/names"
check 'there are several' [ "$(wc -l < "$work/plan")" -gt 3 ]

check '--help' sh -c "'$work/p' --help | grep -q '^usage: .*--check'"
for args in '' '--steps' "$work/p.weights --bench-ms" "$work/p.weights --bench-ms x"; do
    "$work/p" $args > "$work/said" 2>&1
    check "usage: $args" [ $? = 2 ]
done

# Inputs that no file gives: by their sources, the same values as in eval and in the oracle.
cat > "$work/s.ein" << 'END'
ein 1
model s
input a: f32[99] = randn(seed=5, std=0.25)
input b: f16[99] = uniform(seed=6, lo=-3, hi=8)
input c: i64[99] = uniform(seed=7, lo=-5, hi=3000000000)
input d: i8[99] = ones()
input e: f32[99] = zeros()
input f: f32[99]
input g: i32[99]
input h: f32[99] = uniform(lo=0.1, hi=0.7)
output ya, yb, yc, yd, ye, yf, yg, yh
END
for name in a b c d e f g h; do
    echo "y$name[i] = $name[i]" >> "$work/s.ein"
done
check 'sources: emit' build/einnet emit "$work/s.ein" -o "$work/s.cu" --test "$work/s_test.cu"
check 'sources: pack' build/einnet pack "$work/s.ein" -o "$work/s.weights"
check 'sources: build' tests/judge/judgecc --quick -o "$work/s" "$work/s_test.cu" "$work/s.cu"
mkdir "$work/s1"
check 'sources: run' "$work/s" "$work/s.weights" --check --out "$work/s1"
check 'sources: eval' build/einnet eval "$work/s.ein" --out "$work/s2"
check 'sources: oracle' .venv/bin/python tests/oracle/run.py eval "$work/s.ein" --out "$work/s3"
check 'sources: the same values' .venv/bin/python -c "
import numpy as np, sys
for name in 'abcdefgh':
    one, two, three = (np.load('%s/s%d/y%s.npy' % (sys.argv[1], k, name)) for k in (1, 2, 3))
    assert np.array_equal(two, three) and np.array_equal(one, two.astype(one.dtype)), name" "$work"

# Branches of a recorded graph: it gives the same bits in whatever order its edges leave open, and
# no wait of the program is one too many.
check 'towers: emit' build/einnet emit tests/unseen/towers.ein --small -o "$work/t.cu" \
    --test "$work/t_test.cu"
check 'towers: pack' build/einnet pack tests/unseen/towers.ein --small -o "$work/t.weights"
check 'towers: branches' grep -q '^// branches  [234] ' "$work/t.cu"
check 'towers: one branch' sh -c "build/einnet emit tests/unseen/towers.ein --branches 1 -o - |
    grep -c await_event | grep -q '^0$'"
tests/judge/judgecc --quick -o "$work/t" "$work/t_test.cu" "$work/t.cu"
for order in '' rev rand1 rand2 rand3; do
    check "towers: order $order" env JUDGE_ORDER=$order "$work/t" "$work/t.weights" --check
done
grep -n 'CALL(await_event' "$work/t.cu" | cut -d: -f1 > "$work/lines"
[ "$(wc -l < "$work/lines")" -ge 4 ] && pass || fail 'towers: there are waits' "$work/lines"
# In a short run without each third of them.
while read -r line; do
    turn=$(((${turn:-0} + 1) % 3))
    [ -n "${LONG:-}" ] || [ $turn = 1 ] || continue
    sed "${line}d" "$work/t.cu" > "$work/less.cu"
    tests/judge/judgecc --quick -o "$work/less" "$work/t_test.cu" "$work/less.cu"
    heard=no
    for order in rev rand1 rand2 rand3 rand4 rand5 rand6 rand7 rand8 rand9; do
        [ $heard = no ] || break
        JUDGE_ORDER=$order "$work/less" "$work/t.weights" --check > "$work/log" 2>&1 || heard=yes
    done
    [ $heard = yes ] && pass || fail "towers: without the wait of line $line" "$work/t.cu"
done < "$work/lines"

# Workspaces lie over activations that live while no call runs; over an operand of a call they are
# noticed.
build/einnet emit models/mobilenet_v2.ein -o "$work/w.cu"
at=$(sed -n 's/^#define v_workspace ARENA_OF(char, \([0-9]*\))$/\1/p' "$work/w.cu")
check 'workspace: activations have its place' grep -q "^#define v_.* ARENA(${at:-none})\$" \
    "$work/w.cu"
build/einnet emit models/cases/basic_block.ein --small -o "$work/c.cu" --test "$work/c_test.cu"
check 'workspace: pack' build/einnet pack models/cases/basic_block.ein --small -o "$work/c.weights"
at=$(sed -n 's/^#define v_t2 ARENA(\([0-9]*\))$/\1/p' "$work/c.cu")
for place in "${at:-0}" 0; do
    sed "s/v_workspace ARENA_OF(char, 0)/v_workspace ARENA_OF(char, $place)/
        s/\(BLOCK_ARENA_BYTES\) [0-9]*ull/\1 4194304ull/" "$work/c.cu" > "$work/moved.cu"
    tests/judge/judgecc --quick -o "$work/moved" "$work/c_test.cu" "$work/moved.cu"
    "$work/moved" "$work/c.weights" --check > "$work/said" 2>&1
    code=$?
    [ $code = $((place != 0)) ] && pass ||
        fail "workspace at $place: exit code $code" "$work/said"
done

# A caller's program from the header alone.
cat > "$work/m.ein" << 'end'
ein 1
model m
input x: f32[2,4]
weight w: f32[4,3] = randn(seed=1)
output y
y[n,f] = relu(sum(c) x[n,c] * w[c,f])
end
sed 's/2,4/2,5/; s/4,3/5,300/' "$work/m.ein" > "$work/n.ein"
for prefix in net other; do
    model=$work/m.ein
    [ $prefix = net ] || model=$work/n.ein
    check "caller: emit $prefix" build/einnet emit "$model" --prefix $prefix -o "$work/$prefix.cu" \
        --header "$work/$prefix.h"
    check "caller: pack $prefix" build/einnet pack "$model" -o "$work/$prefix.weights"
done
cp tests/frame/caller.cu "$work"
check 'caller: build' tests/judge/judgecc --mode san -o "$work/caller" "$work/caller.cu" \
    "$work/net.cu" "$work/other.cu"
check 'caller: run' sh -c "cd '$work' && ./caller"

# What bench/launch.cu prints of launches.
check 'launches: build' tests/judge/judgecc --quick -o "$work/launch" bench/launch.cu
check 'launches: run' "$work/launch"
[ "$("$work/launch" | grep -c '_ns')" = 6 ] && pass || fail 'launches: six figures'
[ "$(JUDGE_CC=80 "$work/launch" | grep -c '_ns')" = 3 ] && pass || fail 'launches: none is early'

# What bench/limits.cu prints: key, argument, value.
check 'limits: build' tests/judge/judgecc --quick -o "$work/limits" bench/limits.cu
check 'limits: run' "$work/limits" --quick
for key in copy_gbps sgemm_tflops tf32_tflops fp16_tflops; do
    "$work/limits" --quick | grep -q -P "^$key\t[0-9]+\t[0-9.e+-]+$" && pass || fail "limits: $key"
done

# calls MODEL: an invented table, by which a model's calls are what it is planned with.
calls() {
    build/einnet probe "$1" --baseline --kernels 0 -o "$work/probe.cu"
    sed -n -E 's/.*"((conv|gemm) f32 [^"]*)".*/h200\t\1\t1/p' "$work/probe.cu" > "$work/calls.tsv"
}

# create asks a library once about calls of the same sizes: a second question, which would fail, is
# never put.
model=tests/unseen/equal_calls.ein
calls $model
build/einnet emit $model --costs "$work/calls.tsv" -o "$work/q.cu" --test "$work/q_test.cu"
check 'questions: pack' build/einnet pack $model -o "$work/q.weights"
[ "$(grep -c 'CALL(conv_run\|CALL(matmul_run' "$work/q.cu")" = 6 ] && pass ||
    fail 'questions: six calls' "$work/q.cu"
check 'questions: build' tests/judge/judgecc --mode san -o "$work/q" "$work/q_test.cu" "$work/q.cu"
for call in cudnnGetConvolutionForwardAlgorithm_v7 cublasLtMatmulAlgoGetHeuristic; do
    check "questions: $call twice" env JUDGE_FAIL_API=$call JUDGE_FAIL_AT=2 "$work/q" \
        "$work/q.weights" --check
    JUDGE_FAIL_API=$call JUDGE_STICKY=1 "$work/q" "$work/q.weights" > "$work/said" 2>&1 &&
        fail "questions: $call once" "$work/said" || pass
done
check 'questions: kernels by other names' env JUDGE_FAIL_API=cublasLtMatmulAlgoGetHeuristic \
    "$work/q" "$work/q.weights" --check

# A library that refuses fused calls what it offers for convolutions.
cat > "$work/f.ein" << 'end'
ein 1
model fused
input x: f32[1,24,56,56]
weight k: f32[24,24,3,3] = randn(seed=1, std=0.1)
weight b: f32[24] = randn(seed=2)
output y
t = Conv(x, k, b; pads=1)
y = Relu(t)
end
calls "$work/f.ein"
build/einnet emit "$work/f.ein" --baseline --costs "$work/calls.tsv" -o "$work/f.cu" \
    --test "$work/f_test.cu"
check 'fused: pack' build/einnet pack "$work/f.ein" -o "$work/f.weights"
check 'fused: one call' grep -q 'CALL(conv_run.*v_b' "$work/f.cu"
check 'fused: build' tests/judge/judgecc --quick -o "$work/f" "$work/f_test.cu" "$work/f.cu"
check 'fused: the library refuses' env JUDGE_CUDNN_REFUSES=fused "$work/f" "$work/f.weights" --check
sed 's/ && conv_fall_back(m, c, s)) *$/ \&\& false)/; s/if (conv_refused(e)) {/if (false) {/' \
    "$work/f.cu" > "$work/r.cu"
check 'fused: build without a second one' tests/judge/judgecc --quick -o "$work/r" \
    "$work/f_test.cu" "$work/r.cu"
JUDGE_CUDNN_REFUSES=fused "$work/r" "$work/f.weights" > "$work/said" 2>&1
[ $? = 5 ] && pass || fail 'fused: it does refuse' "$work/said"

check 'listing: in the default arithmetic too' env JUDGE_CUDNN_LISTS=both "$work/f" \
    "$work/f.weights" --check
check 'fusion: without such calls' env JUDGE_CUDNN_REFUSES=fusion "$work/f" "$work/f.weights" \
    --check

# One whose list lacks the only algorithm that a fused call without an activation has.
sed 's/^y = Relu(t)$/y = Add(t, x)/' "$work/f.ein" > "$work/i.ein"
calls "$work/i.ein"
build/einnet emit "$work/i.ein" --baseline --costs "$work/calls.tsv" -o "$work/i.cu" \
    --test "$work/i_test.cu"
check 'listing: one call' grep -q 'CALL(conv_run.*v_b, v_x' "$work/i.cu"
check 'listing: build' tests/judge/judgecc --quick -o "$work/i" "$work/i_test.cu" "$work/i.cu"
check 'listing: it is asked about' env JUDGE_CUDNN_REFUSES=listing "$work/i" "$work/f.weights" \
    --check
check 'fusion: what is added too' env JUDGE_CUDNN_REFUSES=fusion "$work/i" "$work/f.weights" --check
sed 's/if (!r || only < 0) return r;/return r;/' "$work/i.cu" > "$work/r.cu"
check 'listing: build without asking' tests/judge/judgecc --quick -o "$work/r" \
    "$work/i_test.cu" "$work/r.cu"
JUDGE_CUDNN_REFUSES=listing "$work/r" "$work/f.weights" --check > "$work/said" 2>&1 &&
    fail 'listing: it matters' "$work/said" || pass

# A recorded graph is on the device before its first replay.
JUDGE_FAIL_API=cudaGraphUpload "$work/i" "$work/f.weights" --check > "$work/said" 2>&1
[ $? = 5 ] && grep -q capture "$work/said" && pass || fail 'graphs: uploaded' "$work/said"

# Early launches: kernels begin before the ones before them are over, and nothing shows it. Without
# its wait, or with it behind what it guards, each of them is noticed.
check 'early: emit' build/einnet emit models/fsrcnn.ein --small --libs none -o "$work/e.cu" \
    --test "$work/e_test.cu"
check 'early: pack' build/einnet pack models/fsrcnn.ein --small -o "$work/e.weights"
tests/judge/judgecc --quick -o "$work/e" "$work/e_test.cu" "$work/e.cu"
ahead() { JUDGE_REPORT=launch "$@" 2>&1 | grep -c 'begun ahead$'; }
[ "$(ahead "$work/e" "$work/e.weights" --check)" -ge 4 ] && pass || fail 'early: some begin ahead'
[ "$(ahead "$work/e" "$work/e.weights" --check --no-early-launch)" = 0 ] && pass ||
    fail 'early: --no-early-launch'
[ "$(ahead env JUDGE_CC=80 "$work/e" "$work/e.weights" --check)" = 0 ] && pass ||
    fail 'early: none before sm_90'
for order in '' rev rand1 rand2; do
    check "early: order $order" env JUDGE_ORDER=$order "$work/e" "$work/e.weights" --check
done
# The last kernel lets nothing in early: what comes behind the run is the caller's.
sed 's/(launch(m, LAST, /(launch(m, MIDDLE, /' "$work/e.cu" > "$work/less.cu"
tests/judge/judgecc --quick -o "$work/less" "$work/e_test.cu" "$work/less.cu"
"$work/less" "$work/e.weights" > "$work/log" 2>&1
[ $? = 86 ] && grep -q 'lets the next one in early' "$work/log" && pass ||
    fail 'early: the last kernel' "$work/log"
sed -n -E 's/.*CALL\(launch\(m, (MIDDLE|LAST), ([a-z_0-9]*), .*/\2/p' "$work/e.cu" | sort -u |
    head -n 4 > "$work/kernels"
[ "$(wc -l < "$work/kernels")" -ge 3 ] && pass || fail 'early: there are such kernels' "$work/e.cu"
while read -r kernel; do
    for how in without late; do
        awk -v kernel="$kernel" -v how=$how -v wait='await_previous(next_early);' '
            /__global__/ { inside = index($0, kernel "(") > 0 }
            inside && /await_previous[(]/ { next }
            inside && /^}/ && how == "late" { print "    " wait }
            inside && /return;/ && how == "late" { sub(/return;/, "{ " wait " return; }") }
            /^}/ { inside = 0 }
            { print }' "$work/e.cu" > "$work/less.cu"
        if ! tests/judge/judgecc --quick -o "$work/less" "$work/e_test.cu" "$work/less.cu"; then
            fail "early: $kernel $how its wait: build"
            continue
        fi
        heard=no
        for order in rand1 rand2 rand3; do
            JUDGE_ORDER=$order "$work/less" "$work/e.weights" --check > "$work/log" 2>&1 ||
                heard=yes
        done
        [ $heard = yes ] && pass || fail "early: $kernel $how its wait" "$work/e.cu"
    done
done < "$work/kernels"

# An error of the caller's own, which nobody asked for, is not taken for a launch's.
sed 's/return ::\(fsrcnn_run(.*)\);/cudaSetDevice(99); int r = ::\1; cudaGetLastError(); return r;/
    ' "$work/e_test.cu" > "$work/a_test.cu"
check 'errors: one is planted' grep -q 'cudaSetDevice(99)' "$work/a_test.cu"
check 'errors: build' tests/judge/judgecc --quick -o "$work/a" "$work/a_test.cu" "$work/e.cu"
check 'errors: an earlier one' env JUDGE_CC=80 "$work/a" "$work/e.weights" --check
sed 's/launch_now<P...>(.*));/cudaGetLastError());/' "$work/e.cu" > "$work/a.cu"
check 'errors: build without launches' tests/judge/judgecc --quick -o "$work/a" "$work/a_test.cu" \
    "$work/a.cu"
JUDGE_CC=80 "$work/a" "$work/e.weights" > "$work/said" 2>&1
grep -q 'invalid device ordinal' "$work/said" && pass || fail 'errors: it is one' "$work/said"

# Kernels that ask for shared memory say both how much and that blocks are to share an SM.
check 'shared memory: how much, and the split' sh -c "build/einnet emit \
    tests/unseen/tensor_tiles.ein --small --math fp16 --libs none -o - |
    grep -c 'AttributeMaxDynamicSharedMemorySize\|AttributePreferredSharedMemoryCarveout' |
    grep -q '^2$'"

# Maps in front of products are part of their loads; nothing is, where nothing may be fused.
front=tests/unseen/preactivation.ein
check 'loads: no kernel stores a map' sh -c "build/einnet emit $front --libs none --baseline -o - |
    grep -c 'us est.* k_map_' | grep -q '^0$'"
check 'loads: without fusion' sh -c "build/einnet emit $front --libs none --rules=-fuse -o - |
    grep -c 'us est.* k_map_' | grep -q '^[5-9]$'"
check 'loads: proved' build/einnet verify $front --libs none
finish
