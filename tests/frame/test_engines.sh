#!/bin/sh
# Engines of cuDNN's graph API: rows of tables that name them, programs that tables pin them in, on
# the judge with the rows' version of the library and with others, faults planted in such programs.
# Then cuDNN itself, where it is, which plans without a GPU for a device that it is told of.
. "$(dirname "$0")/lib.sh"

einnet=build/einnet
check 'the program builds' make -s all

# ---- rows

# refuse NAME COLUMN ENGINE
refuse() {
    printf 'h200\tconv x algo=%s\t1\t0\tcudnn 91900\n' "$3" > "$work/table"
    $einnet costs "$work/table" > "$work/out" 2> "$work/log"
    [ $? = 3 ] && [ ! -s "$work/out" ] && grep -q "table:1:$2: " "$work/log" && pass ||
        fail "$1" "$work/log"
}
# The engine begins in column 18.
refuse 'no number' 25 engine:
refuse 'a number that is none' 25 engine:x
refuse 'a number too long' 25 engine:12345
refuse 'a number that begins with 0' 25 engine:07
refuse 'something behind the number' 27 engine:28.1
refuse 'a setting without a choice' 29 engine:28,2
refuse 'a setting without a type' 28 engine:28,=1
refuse 'a choice that is none' 30 engine:28,2=x
refuse 'minus nothing' 30 engine:28,2=-0
refuse 'a choice too long' 30 engine:28,2=1234567890
refuse 'types that do not ascend' 32 engine:28,5=1,2=0
refuse 'a type twice' 32 engine:28,2=1,2=0
refuse 'a comma at the end' 32 engine:28,2=1,
many=$(seq 1 25 | sed 's/.*/,&=0/' | tr -d '\n')
refuse 'too many settings' 138 "engine:28$many"
refuse 'another word' 13 motor:28
printf 'h200\tgemm x algo=engine:28\t1\t0\tcublas 1\n' > "$work/table"
$einnet costs "$work/table" > "$work/log" 2>&1
[ $? = 3 ] && grep -q 'table:1:13: ' "$work/log" && pass ||
    fail 'an engine of a product' "$work/log"

# Rows of one call that name engines are told apart, and the same ones merged.
printf 'h200\tconv x algo=%s\t%s\t3\tcudnn 91900\n' engine:28,2=1,12=-1 50 engine:28 60 1 70 \
    > "$work/a"
printf 'h200\tconv x algo=engine:28,2=1,12=-1\t40\t3\tcudnn 91900\n' > "$work/b"
check 'merged' $einnet costs "$work/a" -o "$work/out"
sort "$work/a" > "$work/want"
sort "$work/out" | check 'all rows are kept' cmp - "$work/want"
$einnet costs "$work/a" "$work/b" > "$work/log" 2>&1
[ $? = 3 ] && grep -q "40 ps for 'conv x algo=engine:28,2=1,12=-1', but .*a:1 says 50 ps" \
    "$work/log" && pass || fail 'tables that differ' "$work/log"
check 'merged by age' $einnet costs "$work/a" "$work/b" --prefer last -o "$work/out"
grep -c . "$work/out" | grep -q '^3$' && grep -q -P 'engine:28,2=1,12=-1\t40\t' "$work/out" &&
    pass || fail 'the later row stays' "$work/out"

# ---- programs

# pin ENGINE ARGUMENT...: a table in which this engine makes every convolution of a probe in NCHW.
pin() {
    pinned=$1
    shift
    $einnet probe "$@" --baseline -o "$work/probe.cu" || return 1
    grep -o -E '"conv(_data)? f(32|16) [^"]*"' "$work/probe.cu" | tr -d '"' | grep " nchw " |
        sed "s/.*/h200\t& algo=$pinned\t1000\t1\tcudnn 91900 driver 1/"
}
command -v nvcc > /dev/null || {
    echo 'skipped: nvcc is not on PATH'
    finish
}
model=tests/engine/fused.ein
for math in fp32 fp16 tf32; do
    pin engine:11,2=2,3=1 $model --math $math > "$work/$math.tsv"
    check "$math: emitted" $einnet emit $model --baseline --math $math --costs "$work/$math.tsv" \
        -o "$work/$math.cu" --test "$work/fused_test.cu"
    grep -q '^//.* us measured .* cuDNN conv .*, engine 11$' "$work/$math.cu" && pass ||
        fail "$math: the plan says so"
    # In TF32 the part with CUDA 11 does.
    [ $math = tf32 ] || check "$math: it compiles" nvcc -std=c++14 -arch=sm_90 \
        -Werror all-warnings -Xcompiler -Wall,-Wextra,-Werror -c "$work/$math.cu" -o "$work/$math.o"
done
check 'weights' $einnet pack $model -o "$work/fused.weights"

# build NAME: the judge's program of $work/NAME.cu.
check 'the test program' $einnet emit $model --baseline --costs "$work/fp32.tsv" \
    -o "$work/fused.cu" --test "$work/fused_test.cu"
build() {
    sh tests/judge/judgecc --quick -o "$work/$1" "$work/fused_test.cu" "$work/$1.cu"
}
# run CODE NAME VERSION: what the program makes the convolutions with is in $work/ran.
run() {
    within 60 env JUDGE_LEAKCHECK=1 JUDGE_REPORT=launch JUDGE_CUDNN_VERSION="$3" "$work/$2" \
        "$work/fused.weights" --check > "$work/out" 2> "$work/err"
    got=$?
    sed -n 's/^judge: \([a-zA-Z]*\) algorithm /\1 /p' "$work/err" | sort -u > "$work/ran"
    cat "$work/out" "$work/err" > "$work/log"
    [ $got = "$1" ] || echo "exit code $got instead of $1" >> "$work/log"
    [ $got = "$1" ]
}
check 'the judge takes it' build fused
check 'it runs' run 0 fused 91900
echo 'cudnnBackendExecute engine:11,2=2,3=1' | check 'by the engine of the table' cmp - "$work/ran"
check 'with another version too' run 0 fused 91800
echo 'cudnnBackendExecute engine:28,2=1,12=-1' | check 'by the first that it may take' \
    cmp - "$work/ran"
grep 'would be compiled' "$work/err" > "$found"
empty 'which is compiled already'

# fault NAME SED: a program with that fault.
fault() {
    sed "$2" "$work/fused.cu" > "$work/fault.cu"
    cmp -s "$work/fused.cu" "$work/fault.cu" && {
        fail "$1: the fault is planted"
        return
    }
    check "$1: the judge takes it" build fault
}
fault 'another factor' '/static int engine_convolution/,/^}/ s/one = 1.f/one = 0.5f/'
check 'another factor is seen' run 1 fault 91900
fault 'bias and residual exchanged' 's/{x, w, y, bias, z, workspace}/{x, w, y, z, bias, workspace}/'
check 'bias and residual exchanged: it fails' sh -c "! '$work/fault' '$work/fused.weights' --check"
fault 'the bias before the residual' '/static int engine_describe/,/^}/ {
    /s->residual) CALL/ { h; d; }
    /s->fused) CALL/ { p; x; }
}'
check 'the bias before the residual: it runs' run 0 fault 91900
grep -q 'cudnnConvolutionBiasActivationForward' "$work/ran" && pass ||
    fail 'the bias before the residual: but by no engine' "$work/ran"
fault 'tensor cores' 's/NOTE_TENSOR_CORE || false/NOTE_TENSOR_CORE || true/'
check 'tensor cores are seen' run 1 fault 91800
fault 'an engine to be compiled' 's/!= CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION/!= 99/
    s/CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC/99/'
run 0 fault 91800
grep -q 'would be compiled' "$work/err" && pass || fail 'an engine to be compiled' "$work/err"
fault 'descriptors that stay' '/static void conv_close/,/^}/ s/engine_drop(&c->graph,[^;]*;//'
check 'descriptors that stay are seen' run 87 fault 91900

# Where a convolution alone is so much faster that a kernel for the rest pays, it is alone.
block=models/cases/basic_block.ein
pin engine:28,2=1,12=-1 $block > "$work/both.tsv"
plain='3x3, 64 to 64'
sed '/bias=1/ s/\t1000\t/\t900000000\t/' "$work/both.tsv" > "$work/apart.tsv"
for table in both apart; do
    check "$table: emitted" $einnet emit $block --baseline --costs "$work/$table.tsv" \
        -o "$work/block.cu"
    grep '^// .* us measured .* cuDNN conv' "$work/block.cu" > "$work/calls"
    case $table in
    both) grep -q "cuDNN conv $plain + bias + relu, engine 28$" "$work/calls" ;;
    apart) ! grep -q relu "$work/calls" && grep -q "cuDNN conv $plain, engine 28$" "$work/calls" ;;
    esac && pass || fail "$table: calls" "$work/block.cu"
done

# A choice that the engine does not have, an engine with other arithmetic: what the library chooses.
for refused in engine:11,2=9 engine:26,2=1,13=0; do
    sed "s/engine:11,2=2,3=1/$refused/" "$work/fp32.tsv" > "$work/refused.tsv"
    check "$refused: emitted" $einnet emit $model --baseline --costs "$work/refused.tsv" \
        -o "$work/refused.cu"
    mv "$work/refused.cu" "$work/$(echo "$refused" | tr ':,=' '___').cu"
done
for refused in engine_11_2_9 engine_26_2_1_13_0; do
    check "$refused: the judge takes it" build $refused
    check "$refused: it runs" run 0 $refused 91900
    echo 'cudnnBackendExecute engine:28,2=1,12=-1' | check "$refused: another engine" \
        cmp - "$work/ran"
done

# Whatever cuDNN's calls answer, results are right or the program says why not.
check 'failing calls' env EMIT="--baseline --costs $work/fp32.tsv" RUN=--check \
    bash tests/run_faults.sh $model

# ---- models

forward='models/cases/basic_block.ein models/cases/convtranspose.ein'
forward="$forward models/cases/dilated_conv.ein tests/unseen/conv_epilogues.ein"
forward="$forward tests/unseen/conv_groups.ein tests/unseen/conv_pads.ein"
forward="$forward tests/unseen/conv_1d_3d.ein"
for each in $forward; do
    pin engine:11,2=4,3=0 "$each" --small >> "$work/models.tsv"
done
sort -u "$work/models.tsv" > "$work/all.tsv"
check 'models' .venv/bin/python tests/run_models.py --baseline --costs "$work/all.tsv" $forward
for math in tf32 fp16; do
    for each in tests/unseen/conv_epilogues.ein tests/unseen/deconv_odd.ein; do
        pin engine:26,2=1,13=0 "$each" --small --math $math > "$work/$math.tsv"
        check "$math: $each" .venv/bin/python tests/run_models.py --baseline --math $math \
            --costs "$work/$math.tsv" "$each"
    done
done

# ---- cuDNN itself

lib=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")/lib
real() {
    nvcc -std=c++14 -arch=sm_90 -Itests/engine "$@" -lcudnn -lcublas -lcublasLt
}
printf '#include <cudnn.h>\nint main() { return cudnnGetVersion() < 91100; }\n' > "$work/has.cu"
nvcc "$work/has.cu" -o "$work/has" -lcudnn > "$work/log" 2>&1 &&
    LD_LIBRARY_PATH=$lib "$work/has" >> "$work/log" 2>&1 || {
    echo 'skipped: cuDNN 9.11 or later, which plans without a GPU, is not here'
    finish
}
export LD_LIBRARY_PATH="$lib"
for math in fp32 fp16; do
    models='tests/unseen/conv_epilogues.ein'
    [ $math = fp32 ] || models="$model tests/unseen/conv_groups.ein"
    check "$math: a probe" $einnet probe $models --small --baseline --math $math \
        -o "$work/probe.cu"
    check "$math: with cuDNN" real "-DPROBE=\"$work/probe.cu\"" tests/engine/list.cu \
        -o "$work/list"
    for device in h200 agx-orin; do
        "$work/list" $device > "$work/$math.$device" 2> "$work/log" && pass ||
            fail "$math: engines for $device have plans" "$work/log"
        grep '^0 engines' "$work/log" > "$found"
        empty "$math: every convolution has engines for $device"
    done
done
check "pinned: a table" $einnet costs "$work/fp32.h200" -o "$work/table"
check "pinned: emitted" $einnet emit tests/unseen/conv_epilogues.ein --small --baseline \
    --prefix plan --gpu h200 --costs "$work/table" -o "$work/plan.cu"
check "pinned: with cuDNN" real "-DPROGRAM=\"$work/plan.cu\"" tests/engine/open.cu \
    -o "$work/open"
check "pinned: the engines of the table, and with another version others" \
    "$work/open" h200
finish
