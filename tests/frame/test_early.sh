#!/bin/sh
# Products of ours fetch weights before the kernel before them is over (programmatic dependent
# launch), and norms their scales: the race checker has nothing against that, and notices when it is
# the other factor, or the row itself.
. "$(dirname "$0")/lib.sh"

model=$work/twice.ein
cat > "$model" << 'END'
ein 1
model twice
input x: f32[192,192]
weight v: f32[192,256] = randn(seed=1, std=0.1)
weight w: f32[256,192] = randn(seed=2, std=0.1)
output y
r = MatMul(x, v)
t = Tanh(r)
y = MatMul(t, w)
END
for math in fp32 tf32; do
    check "$math: emit" build/einnet emit "$model" --libs none --math $math -o "$work/p.cu" \
        --test "$work/p_test.cu"
    check "$math: pack" build/einnet pack "$model" -o "$work/p.weights"
    check "$math: weights are early" grep -q -E 'multiply.*<.*(true|false), [12]>' "$work/p.cu"
    check "$math: build" tests/judge/judgecc --mode race -o "$work/p" --light "$work/p_test.cu" \
        "$work/p.cu"
    JUDGE_LEAKCHECK=1 "$work/p" "$work/p.weights" --check > "$work/said" 2>&1
    check "$math: right" [ $? = 0 ]
    sed -E 's/(multiply.*<.*(true|false), )1>/\13>/; s/(multiply.*<.*(true|false), )2>/\11>/
        s/(multiply.*<.*(true|false), )3>/\12>/' "$work/p.cu" > "$work/q.cu"
    check "$math: build with the factors exchanged" tests/judge/judgecc --mode race -o "$work/q" \
        --light "$work/p_test.cu" "$work/q.cu"
    "$work/q" "$work/p.weights" --check > "$work/said" 2>&1
    check "$math: it is noticed" [ $? = 88 ]
    check "$math: as what it is" grep -q 'access before cudaGridDependencySynchronize' "$work/said"
done

model=$work/norms.ein
cat > "$model" << 'END'
ein 1
model norms
input x: f32[24,200]
weight scale: f32[200] = uniform(lo=0.5, hi=1.5)
weight bias: f32[200] = randn(std=0.1)
weight k: f32[200,200] = randn(std=0.1)
output y
t = MatMul(x, k)
y = LayerNormalization(t, scale, bias; epsilon=1e-5)
END
check 'norm: emit' build/einnet emit "$model" -o "$work/p.cu" --test "$work/p_test.cu"
check 'norm: pack' build/einnet pack "$model" -o "$work/p.weights"
for from in p q; do
    # The row's own reads in front of the wait.
    [ $from = p ] || awk '/void __launch_bounds__.* k_row/ { row = 1 }
        row && /await_previous/ { row = 0; print "    const float ahead = p2[threadIdx.x];"; print
            print "    if (ahead != ahead) return;"; next }
        { print }' "$work/p.cu" > "$work/q.cu"
    check "norm: build $from" tests/judge/judgecc --mode race -o "$work/$from" --light \
        "$work/p_test.cu" "$work/$from.cu"
done
check 'norm: weights are early' awk '
    /w0\[j\] = / { early = 1 }
    /await_previous/ && early { found = 1 }
    END { exit !found }' "$work/p.cu"
JUDGE_LEAKCHECK=1 "$work/p" "$work/p.weights" --check > "$work/said" 2>&1
check 'norm: right' [ $? = 0 ]
"$work/q" "$work/p.weights" --check > "$work/said" 2>&1
check 'norm: it is noticed' [ $? = 88 ]
check 'norm: as what it is' grep -q 'access before cudaGridDependencySynchronize' "$work/said"
finish
