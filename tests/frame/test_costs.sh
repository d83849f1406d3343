#!/bin/sh
# Tables of costs: rows that are none, tables that differ, merging; algorithms that a table pins,
# with the version of the library that it names and with another one.
. "$(dirname "$0")/lib.sh"

einnet=build/einnet
check 'the program builds' make -s all

# ---- rows

# refuse NAME PLACE TEXT: the row (printf's format) is refused, with file, line and column.
refuse() {
    printf "$3" > "$work/table"
    $einnet costs "$work/table" > "$work/out" 2> "$work/log"
    [ $? = 3 ] && [ ! -s "$work/out" ] && grep -q "table:$2: " "$work/log" && pass ||
        fail "$1" "$work/log"
}
# An error of a table names the table, not the model that is to be planned with it.
printf 'h200\n' > "$work/table"
$einnet emit models/dcgan.ein --costs "$work/table" -o - 2>&1 > "$work/out" | head -1 > "$work/log"
grep -q "^[^ ]*table:1:5: the key" "$work/log" && pass || fail 'the table of an error' "$work/log"
refuse 'no key' 1:5 'h200'
grep -q 'with a tab between two' "$work/log" && pass || fail 'it says what a row is' "$work/log"
refuse 'an empty key' 2:6 '# comment\nh200\t\t1\n'
refuse 'no device' 1:1 '\tgemm\t1\n'
refuse 'no cost' 1:11 'h200\tgemm \n'
refuse 'a cost below 0' 1:12 'h200\tgemm \t-1\t0\tcublas 1\n'
refuse 'a cost with a fraction' 1:13 'h200\tgemm x\t1.5\t0\tcublas 1\n'
refuse 'a cost without an end' 1:13 'h200\tgemm x\t1234567890123456789\n'
refuse 'a spread that is none' 1:15 'h200\tgemm x\t1\tx\tcublas 1\n'
refuse 'six fields' 1:22 'h200\tgemm x\t1\t0\tcudn\t1\n'
refuse 'no time at all' 1:13 'h200\tgemm x\t0\t0\tcublas 1\n'
refuse 'a call that is none' 1:6 'h200\tgem x\t1\t0\tcublas 1\n'
refuse 'a control character' 1:8 'h200\tge\001mm\t1\t0\tcublas 1\n'
refuse 'an algorithm that cuDNN lacks' 1:13 'h200\tconv x algo=8\t1\t0\tcudnn 1\n'
refuse 'one of data' 1:18 'h200\tconv_data x algo=6\t1\t0\tcudnn 1\n'
refuse 'one of cublasLt with eight numbers' 1:13 'h200\tgemm x algo=lt:1.2.3.4.5.6.7.8\t1\t0\tc\n'
refuse 'one with ten' 1:13 'h200\tgemm x algo=lt:1.2.3.4.5.6.7.8.9.1\t1\t0\tc\n'
refuse 'one that leaves its text' 1:13 'h200\tgemm x algo=lt:1.2.3.4.5.6.7.8.}\t1\t0\tc\n'
id=0123456789abcdef
refuse 'one of a kernel' 1:34 "h200\tkernel map $id algo=1\t1\t0\tc\n"
refuse 'a tile that is none' 1:38 "h200\tkernel product $id algo=\$\t1\t0\tc\n"
refuse 'a product without a tile' 1:6 "h200\tkernel product $id\t1\t0\tc\n"
refuse 'a kind that is none' 1:6 "h200\tkernel maps $id\t1\t0\tc\n"
refuse 'a kernel by its name' 1:6 'h200\tkernel k_map_12345678\t1\t0\tc\n'
refuse 'an ID that is too short' 1:6 'h200\tkernel map 0123456789abcde\t1\t0\tc\n'
refuse 'one that is too long' 1:6 "h200\tkernel map ${id}0\t1\t0\tc\n"
refuse 'one in capitals' 1:6 'h200\tkernel map 0123456789ABCDEF\t1\t0\tc\n'
# Keys of kernels that the manual shows are keys.
tr '\n' ' ' < gen/ein.h | sed 's|  *// *| |g' | grep -o '`kernel [^`]*`' | tr -d '`' > "$work/keys"
[ "$(wc -l < "$work/keys")" -ge 2 ] && pass || fail 'the manual shows keys' "$work/keys"
sed 's/.*/h200\t&\t1\t0\tc/' "$work/keys" > "$work/table"
check 'keys of the manual' $einnet costs "$work/table"
refuse 'no KIND' 1:6 "h200\tkernel $id\t1\t0\tc\n"
grep -q "'kernel KIND ID', ID 16 hexadecimal digits" "$work/log" && pass || fail 'it says why'
for kind in map transpose reduce place row band basis attention stitch siblings chain; do
    printf 'h200\tkernel %s %s\t1\t0\tc\n' $kind $id
done > "$work/kinds"
# Whatever a probe asks for, a table may tell.
$einnet probe tests/unseen/places.ein tests/unseen/reduces.ein tests/unseen/norms.ein \
    tests/unseen/eq_bands.ein tests/unseen/siblings.ein tests/unseen/attention.ein \
    tests/unseen/depth_space.ein tests/unseen/tensor_tiles.ein -o "$work/asks.cu"
sed -n 's/^ *{"\(kernel [^"]*\)", "[0-9a-f]*",.*/h200\t\1\t1\t0\tc/p' "$work/asks.cu" |
    sort -u > "$work/asks"
for table in kinds asks; do
    n=$($einnet costs "$work/$table" 2> "$work/log" | grep -c '^h200')
    [ "$n" -ge 9 ] && [ "$n" = "$(grep -c . "$work/$table")" ] && pass ||
        fail "$table: rows of every kind" "$work/log"
done
python3 -c 'import random, sys
sys.stdout.buffer.write(b"x" + random.Random(7).randbytes(3000).translate(None, b"\n\t"))' \
    > "$work/noise"
$einnet costs "$work/noise" > "$work/log" 2>&1
[ $? = 3 ] && pass || fail 'noise'

# ---- merging

printf 'h200\tconv x algo=1\t50\t3\tcudnn 91900\nl4\tgemm y\t70\t1\tcublas 130100\n' > "$work/a"
printf 'h200\tconv x algo=1\t40\t3\tcudnn 91900\nh200\tgemm y\t7\t1\tcublas 130100\n' > "$work/b"
printf 'h200\tconv x algo=1\t90\t3\tcudnn 91901\r\nh200\tconv x algo=0\t45\t\tcudnn 91900\n' \
    > "$work/c"
$einnet costs "$work/a" "$work/b" > "$work/out" 2> "$work/log"
[ $? = 3 ] && [ ! -s "$work/out" ] && grep -q 'b:1:1: 40 ps .*/a:1 says 50 ps' "$work/log" &&
    pass || fail 'tables that differ' "$work/log"
for prefer in first:50 last:40 fastest:40; do
    $einnet costs "$work/a" "$work/b" --prefer ${prefer%:*} 2> "$work/log" |
        grep -q -P "^h200\tconv x algo=1\t${prefer#*:}\t" && pass ||
        fail "prefer $prefer" "$work/log"
done
check 'merged' $einnet costs "$work/c" "$work/a" -o "$work/merged"
printf '%s\t%s\t%s\t%s\t%s\n' h200 'conv x algo=0' 45 '' 'cudnn 91900' \
    h200 'conv x algo=1' 50 3 'cudnn 91900' h200 'conv x algo=1' 90 3 'cudnn 91901' \
    l4 'gemm y' 70 1 'cublas 130100' > "$work/want"
check 'it is sorted, and keeps versions and devices' cmp "$work/merged" "$work/want"
check 'merged again' $einnet costs "$work/merged" -o "$work/again"
check 'it is the same' cmp "$work/merged" "$work/again"

# ---- which row counts

# fastest WANTED ROW...: picoseconds of the row that a call is planned with.
key='gemm f32 fma b=1 m=64 n=64 k=64 ta=0 tb=0 lda=64 ldb=64 ldc=64'
lt='KEY algo=lt:1.2.3.4.5.6.7.8.9'
fastest() {
    want=$1
    shift
    for row; do printf "$row\n" | sed "s/KEY/$key/"; done > "$work/table"
    got=$($einnet costs "$work/table" --estimates | cut -f2)
    [ "$got" = "$want" ] && pass || fail "the row of $want ps, not of $got"
}
fastest 30 'h200\tKEY\t40\t1\tcublas 10' "h200\t$lt\t30\t1\tcublas 10"
fastest 40 'h200\tKEY\t40\t1\tcublas 10' "h200\t$lt\t50\t1\tcublas 10"
fastest 40 'h200\tKEY\t40\t1\tcublas 11' 'h200\tKEY\t30\t1\tcublas 10'
fastest 40 'h200\tKEY\t40\t1\tcublas 9 cublaslt 7' "h200\t$lt\t50\t1\tcublas 9 cublaslt 12"
fastest 50 'l4\tKEY\t40\t1\tcublas 10' 'h200\tKEY\t50\t1\tcublas 10'
fastest '' 'l4\tKEY\t40\t1\tcublas 10' 'h200\tkernel map 0123456789abcdef\t50'

# ---- pinning

models='tests/unseen/conv_epilogues.ein tests/unseen/product_epilogues.ein'
models="$models models/cases/convtranspose.ein"
# A table in which the libraries' calls cost nearly nothing, and two algorithms of each differ:
# `conv` is cuDNN's number, `lt` what follows `lt:`.
cheap_table() {
    $einnet probe "$1" --small $4 -o "$work/probe.cu" || return 1
    grep -o -E '"(conv|conv_data|gemm) f32 [^"]*"' "$work/probe.cu" | tr -d '"' |
        awk -v OFS='\t' -v conv="$2" -v lt="$3" '
            /^conv/ { print "h200", $0 " algo=" conv, 1000, 1, "cudnn 91900 driver 1"
                      print "h200", $0 " algo=" 1 - conv, 2000, 1, "cudnn 91900 driver 1" }
            /^gemm/ { version = "cublas 1 cublaslt 130100"
                      print "h200", $0 " algo=lt:" lt, 1000, 1, version
                      print "h200", $0 " algo=lt:7.20.12.1.0.0.0.0.0", 2000, 1, version }'
}
for model in $models; do
    model_name=$(basename "$model" .ein)
    check "$model_name: a table" cheap_table "$model" 0 9.18.0.2.2.0.0.0.0 --baseline
    cheap_table "$model" 0 9.18.0.2.2.0.0.0.0 --baseline > "$work/$model_name.tsv"
    check "$model_name: emitted with it" $einnet emit "$model" --small --baseline \
        --costs "$work/$model_name.tsv" -o "$work/$model_name.cu" \
        --test "$work/${model_name}_test.cu"
    grep -q ' us measured .*\(cuDNN\|cublasLt\)' "$work/$model_name.cu" && pass ||
        fail "$model_name: nothing is measured"
done
grep -c 'cublasLt matmul' "$work/product_epilogues.cu" | grep -q -v '^[0-7]$' && pass ||
    fail 'products are pinned'
grep -q '// .* cuDNN conv 3x3, .* + residual + bias + relu' "$work/conv_epilogues.cu" && pass ||
    fail 'convolutions are fused'

command -v nvcc > /dev/null || {
    echo 'skipped: nvcc is not on PATH'
    finish
}
for model in $models; do
    model_name=$(basename "$model" .ein)
    check "$model_name compiles" nvcc -std=c++14 -arch=sm_90 -Werror all-warnings \
        -Xcompiler -Wall,-Wextra,-Werror -c "$work/$model_name.cu" -o "$work/$model_name.o"
    check "$model_name: the judge takes it" sh tests/judge/judgecc -o "$work/$model_name" \
        "$work/${model_name}_test.cu" "$work/$model_name.cu"
    check "$model_name: weights" $einnet pack "$model" --small -o "$work/$model_name.weights"
    check "$model_name: results" .venv/bin/python tests/run_models.py --baseline \
        --costs "$work/$model_name.tsv" "$model"
done

# algorithms MODEL CUDNN CUBLAS: what the program runs under these versions, each once.
algorithms() {
    JUDGE_REPORT=launch JUDGE_CUDNN_VERSION=$2 JUDGE_CUBLAS_VERSION=$3 JUDGE_LEAKCHECK=1 \
        "$work/$1" "$work/$1.weights" --check 2>&1 > "$work/out" |
        sed -n 's/^judge: \([a-zA-Z]*\) algorithm /\1 /p' | sort -u > "$work/ran"
    [ -s "$work/ran" ]
}
check 'products run' algorithms product_epilogues 91900 130100
check 'by the algorithm of the table alone' sh -c \
    "! grep -v '^cublasLtMatmul 9.18.0.2.2$' '$work/ran'"
check 'with another version too' algorithms product_epilogues 91900 130101
check 'by that which the library chooses' sh -c \
    "! grep -v '^cublasLtMatmul 7.20.12.1.0$' '$work/ran'"
check 'an offer that leaves the GPU idle' env JUDGE_CUBLAS_IDLE=1 "$work/product_epilogues" \
    "$work/product_epilogues.weights" --check
JUDGE_CUBLAS_IDLE=1 algorithms product_epilogues 91900 130101
check 'is passed over' sh -c "! grep -v '^cublasLtMatmul 7.15.12.1.0$' '$work/ran'"
check 'convolutions run' algorithms conv_epilogues 91900 130100
check 'by that of the table' grep -q '^cudnnConvolutionBiasActivationForward 0$' "$work/ran"
check 'and what only another algorithm does' \
    grep -q '^cudnnConvolutionBiasActivationForward 1$' "$work/ran"
check 'with another version too' algorithms conv_epilogues 91801 130100
grep '^cudnnConvolutionBiasActivationForward 0$' "$work/ran" > "$found"
empty 'not by that of the table'

# An algorithm that this library does not have is refused in create.
cheap_table tests/unseen/product_epilogues.ein 0 9.999.0.2.2.0.0.0.0 --baseline |
    grep -v '7.20.12' > "$work/lost.tsv"
check 'emitted with one that is not there' $einnet emit tests/unseen/product_epilogues.ein --small \
    --baseline --costs "$work/lost.tsv" -o "$work/product_epilogues.cu"
check 'the judge takes that' sh tests/judge/judgecc -o "$work/product_epilogues" \
    "$work/product_epilogues_test.cu" "$work/product_epilogues.cu"
check 'it runs' algorithms product_epilogues 91900 130100
check 'by what the library chooses' sh -c "! grep -v '^cublasLtMatmul 7.20.12.1.0$' '$work/ran'"
finish
