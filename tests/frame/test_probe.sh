#!/bin/sh
# Programs that measure library calls and kernels: they are the same whatever the order of the
# models, compile without warnings, run on the judge, and what they print is used by --costs.
. "$(dirname "$0")/lib.sh"

einnet=build/einnet
models='models/cases/conv3x3.ein models/cases/convtranspose.ein'
check 'the program builds' make -s all
check 'a probe of one model' $einnet probe models/cases/conv3x3.ein --small -o "$work/one.cu"
check 'a probe of two models' $einnet probe $models --small -o "$work/two.cu"
check 'and once more' $einnet probe $models --small -o "$work/same.cu"
check 'with the same bytes' cmp "$work/two.cu" "$work/same.cu"
check 'the other way round' $einnet probe models/cases/convtranspose.ein \
    models/cases/conv3x3.ein --small -o "$work/same.cu"
check 'too' cmp "$work/two.cu" "$work/same.cu"
check 'keys are strings in it' grep -o -E '"(conv|conv_data|gemm|kernel) [^"]*"' "$work/two.cu"
tr -d '"' < "$work/log" > "$work/keys"
grep -v '^kernel' "$work/keys" > "$work/calls"
for kind in conv gemm; do
    grep -v "^$kind" "$work/calls" | sed 's/.*/h200\t&\t1000000/' > "$work/but_$kind"
    check "a probe of $kind alone" $einnet probe $models --small --costs "$work/but_$kind" \
        --kernels 0 -o "$work/$kind.cu"
    grep '"kernel ' "$work/$kind.cu" > "$found"
    empty "no kernels with $kind"
done
check 'a probe of kernels alone' $einnet probe $models --small --part 2/2 -o "$work/kernel.cu"
check 'it calls no library' sh -c "! grep -E -q 'cudnn|cublas' $work/kernel.cu"
epilogues=tests/unseen/product_epilogues.ein
for math in fp32:fma tf32:tf32 fp16:tensor; do
    kind=${math#*:}
    math=${math%:*}
    check "$math: a probe of products with epilogues" $einnet probe $epilogues --math $math \
        --kernels 0 -o "$work/math.cu"
    check "$math: they are measured" grep -q "\"gemm f.. $kind .* bias=1 z=1 act=" \
        "$work/math.cu"
done

# Names of their elements' types begin as those of others do.
for type in bool i8 i32 i64 f16; do
    printf '%s\n' 'ein 1' 'model typed' "input m: $type[64]" 'input x: f32[64,8]' 'output y' \
        'y[n,c] = select(m[n] != 0, exp(x[n,c]), x[n,c-1]) where pad x 0' > "$work/typed.ein"
    check "$type: a probe of a map that reads it" $einnet probe "$work/typed.ein" \
        -o "$work/typed.cu"
    check "$type: it is measured" grep -q '"kernel map ' "$work/typed.cu"
done

# What is more than cuDNN counts is no call of it.
printf '%s\n' 'ein 1' 'model long' 'input x: f32[1,4,3000000000]' 'weight k: f32[4,4,3] = ones()' \
    'output y' 'y = Conv(x, k; pads=1)' > "$work/long.ein"
check 'a probe of a convolution that is too large for cuDNN' $einnet probe "$work/long.ein" \
    -o "$work/long.cu"
check 'it is no call' sh -c "! grep -q '\"conv' $work/long.cu"

# ---- parts

parts_of() { # NAME OPTION...
    name=$1
    shift
    check "$name" $einnet probe $models --small "$@" -o "$work/part.cu"
    grep -o -E '"(conv|conv_data|gemm|kernel) [^"]*"' "$work/part.cu" | tr -d '"'
}
{
    parts_of 'part 1 of 3' --part 1/3
    parts_of 'part 2 of 3' --part 2/3
    parts_of 'part 3 of 3' --part 3/3
} | sort > "$work/parts"
sort "$work/keys" > "$work/whole"
check 'parts are the whole' cmp "$work/whole" "$work/parts"
[ "$(parts_of 'two kernels' --kernels 2 | grep -c '^kernel')" = 2 ] && pass || fail 'two kernels'
for wrong in 0/3 4/3 1 1/x 1/ /2 99999999999/2; do
    $einnet probe $models --small --part $wrong -o "$work/part.cu" 2> "$work/log"
    [ $? = 2 ] && grep -q "needs I/N" "$work/log" && pass || fail "part $wrong" "$work/log"
done
$einnet probe $models --small --kernels x -o "$work/part.cu" 2> "$work/log"
[ $? = 2 ] && grep -q -e '--kernels needs a number' "$work/log" && pass || fail '--kernels x'

if ! command -v nvcc > /dev/null; then
    echo 'skipped: nvcc is not on PATH'
    finish
fi
for name in one two conv gemm kernel; do
    check "$name.cu compiles" nvcc -std=c++14 -arch=sm_90 -Werror all-warnings \
        -Xcompiler -Wall,-Wextra,-Werror -c "$work/$name.cu" -o "$work/$name.o"
done

check 'the judge takes it' sh tests/judge/judgecc --mode san -o "$work/probe" "$work/two.cu"
for kind in conv gemm kernel; do
    check "the judge takes $kind alone" sh tests/judge/judgecc -o "$work/$kind" "$work/$kind.cu"
done

# run CODE NAME COMMAND...: output in $work/out, messages in $work/err.
run() {
    want=$1
    name=$2
    shift 2
    within 120 "$@" > "$work/out" 2> "$work/err" < /dev/null
    got=$?
    [ $got = "$want" ] && pass || {
        echo "exit code $got instead of $want" >> "$work/err"
        fail "$name" "$work/err"
    }
}

JUDGE_LEAKCHECK=1
export JUDGE_LEAKCHECK
run 0 'keys without a GPU' env JUDGE_NO_DEVICE=1 "$work/probe" --list
# A run that is cut short has rows of every kind: what takes least time comes first.
{
    grep '^kernel' "$work/keys"
    tac "$work/calls"
} > "$work/order"
check 'kernels, then products, then convolutions' cmp "$work/out" "$work/order"
check 'calls are in order' sort -c -u "$work/calls"
sort "$work/keys" | uniq -d > "$found"
empty 'no key is there twice'
for kind in 'conv f32' 'conv_data f32' 'gemm f32'; do
    check "there is a $kind" grep -q "^$kind fma " "$work/keys"
done
run 77 'no GPU' env JUDGE_NO_DEVICE=1 "$work/probe"
[ -s "$work/err" ] && pass || fail 'no GPU: no message'
run 2 'an unknown option' "$work/probe" --lost
run 0 'help' "$work/probe" --help
grep -q '^usage: .*--have TABLE' "$work/out" && pass || fail 'help says what there is' "$work/out"
run 2 'a deadline that is none' "$work/probe" --deadline soon
run 3 'a table that is not there' "$work/probe" --have "$work/none"
run 75 'no time' "$work/probe" --deadline 0.000001
[ ! -s "$work/out" ] && pass || fail 'no time: rows' "$work/out"

run 0 'products' "$work/gemm" --device test
grep -v -P '^test\tgemm f32 [^\t]+\t\d+\t\d+\tcublas \d+ cublaslt \d+ driver \d+$' "$work/out" \
    > "$found"
empty 'rows of products'
run 0 'convolutions' "$work/conv" --device test
algorithm='(\d|engine:\d+(,\d+=-?\d+)*)'
grep -v -P "^(#.*|test\tconv[^\t]+ algo=$algorithm\t\d+\t\d+\tcudnn \d+ driver \d+)$" \
    "$work/out" > "$found"
empty 'rows of convolutions'
run 0 'kernels' "$work/kernel" --device test
row='kernel [a-z]+ [0-9a-f]{16}( algo=[0-9x.p]+)?\t\d+\t\d+\teinnet \d+ text [0-9a-f]{8} driver \d+'
grep -v -P "^test\t$row$" "$work/out" > "$found"
empty 'rows of kernels'
[ -s "$work/out" ] && pass || fail 'there are kernels'

# Until it is done, as a machine that is lent for a while would.
: > "$work/table"
got=75
for turn in $(seq 300); do
    [ $got = 75 ] || break
    within 120 "$work/probe" --have "$work/table" --deadline 2 > "$work/out" 2> "$work/err"
    got=$?
    cat "$work/out" >> "$work/table"
done
[ $got = 0 ] && pass || fail 'it ends' "$work/err"
grep -v '^#' "$work/table" |
    grep -v -P '^h200\t[^\t]+\t\d+\t\d+\tcudnn \d+ cublas \d+ cublaslt \d+ driver \d+$' |
    grep -v -P '^h200\tkernel [^\t]+\t\d+\t\d+\teinnet \d+ text \w+ driver \d+$' > "$found"
empty 'rows have five fields'
grep -v '^#' "$work/table" | cut -f2 | sort | uniq -d > "$found"
empty 'no algorithm was measured twice'
grep -v '^#' "$work/table" | cut -f2 | sed '/^kernel/!s/ algo=.*//' | sort -u > "$work/measured"
grep -q ' algo=lt:' "$work/table" && pass || fail 'algorithms of cublasLt'
grep -q ' algo=engine:28,2=1,12=-1.' "$work/table" && pass || fail 'engines of cuDNN'
grep -E '^[^#]* algo=engine:(26|5|70|33)[^0-9]' "$work/table" > "$found"
empty 'engines that no program may take'
check 'every key was measured' cmp "$work/whole" "$work/measured"
sed 's/ text [0-9a-f]*/ text 00000000/' "$work/table" > "$work/older"
run 0 'kernels of another text are other kernels' "$work/probe" --have "$work/older" --list
grep '^kernel' "$work/keys" > "$work/kernels"
check 'they are measured again' cmp "$work/out" "$work/kernels"
run 0 'nothing is left' "$work/probe" --have "$work/table" --list
[ ! -s "$work/out" ] && pass || fail 'nothing is left' "$work/out"
key=$(sed -n 3p "$work/keys")
printf '# %s: replay: failed\n# %s algo=1: no\n' "$key" "$(head -n 1 "$work/keys")" > "$work/lost"
run 0 'what failed is left out' "$work/probe" --have "$work/lost" --list
grep -v -x -F -e "$key" "$work/order" > "$work/rest"
check 'and nothing else' cmp "$work/rest" "$work/out"
run 0 'others are, on another device' "$work/probe" --have "$work/table" --device x --list
check 'all of them' cmp "$work/order" "$work/out"

# The rows are taken as they are; a CPU's times let no library win, so these get better ones.
check 'emit takes the table' $einnet emit models/cases/conv3x3.ein --small \
    --costs "$work/table" -o "$work/slow.cu"
awk -F '\t' -v OFS='\t' '!/^#/ && $2 !~ /^kernel/ { $3 = 1000; print }' "$work/table" \
    > "$work/fast"
check 'emit takes the other table' $einnet emit models/cases/conv3x3.ein --small \
    --costs "$work/fast" -o "$work/fast.cu"
check 'a library call is measured' grep -E -q '^// .* us measured .*(cuDNN|cuBLAS)' "$work/fast.cu"
grep -E '^// .* us est\. .*(cuDNN|cuBLAS)' "$work/fast.cu" > "$found"
empty 'all are'
check 'a probe with the table' $einnet probe $models --small --costs "$work/table" \
    -o "$work/rest.cu"
grep -F -f "$work/keys" "$work/rest.cu" > "$found"
empty 'measured keys are not asked for'
finish
