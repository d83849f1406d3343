#!/bin/sh
# --math and --keep-fp32: what the emitted files then hold, that they compile, what the errors say,
# and that the report of --inspect finds what loses most. Results are compared by run_models.py.
. "$(dirname "$0")/lib.sh"

einnet=build/einnet
check 'the program builds' make -s all

# emit NAME MODEL OPTION...
emit() {
    to=$1
    from=$2
    shift 2
    check "$from $*" $einnet emit "$from" -o "$work/$to.cu" --test "$work/${to}_test.cu" "$@"
}

# has FILE PATTERN, has_not FILE PATTERN
has() {
    check "$1 has $2" grep -q -E -e "$2" "$work/$1"
}
has_not() {
    ! grep -n -E -e "$2" "$work/$1" > "$found"
    empty "$1 has no $2"
}

# ---- FP32 means FP32

emit fp32 models/gcn.ein
emit same models/gcn.ein --math fp32
check '--math fp32 is the default' cmp "$work/fp32.cu" "$work/same.cu"
has fp32.cu '^// for .*, FP32$'
has_not fp32.cu 'FAST_TF32|TENSOR_OP|R_16F|DATA_HALF|__half|GemmEx|GemmStridedBatchedEx'
# A library's convolutions may be transforms of some kind; without any there are none.
printf 'ein 1\nmodel large\ninput x: f32[16,512,112,112]\nweight k: f32[512,512,3,3]\n' \
    > "$work/large.ein"
printf 'output y\ny = Conv(x, k; pads=1)\n' >> "$work/large.ein"
emit large "$work/large.ein" --baseline
has large.cu '^//.* cuDNN conv [0-9]'
has large_test.cu 'TOLERANCE = 1e-4'
emit own models/gcn.ein --libs none
has own_test.cu 'TOLERANCE = 1e-5'

# ---- TF32

emit tf32 models/csrnet.ein --math tf32
has tf32.cu '^// for .*, TF32:'
has tf32.cu 'CUBLAS_COMPUTE_32F_FAST_TF32'
has tf32.cu 'CUDNN_TENSOR_OP_MATH'
has tf32.cu '^//.* cuBLAS gemm tf32 '
has tf32.cu '^//.* cuDNN conv tf32 '
has_not tf32.cu '^//.* (cuBLAS sgemm|cuDNN conv [0-9])'
has_not tf32.cu 'basis change|__half|, CUDA_R_16F|[^=] CUDNN_TENSOR_OP_MATH_ALLOW'
has tf32_test.cu 'TOLERANCE = 2e-2'
emit kept models/gcn.ein --math tf32 --keep-fp32 g1,g2.l1 --keep-fp32 y
has kept.cu '^// in FP32 .* g1\.'
check 'products in g1 keep FP32' grep -q -E '^//.* g1\.[a-z].* cuBLAS sgemm ' "$work/kept.cu"
has_not kept.cu '^//.* g1\.[a-z].* tf32 '
has kept.cu '^//.* (cuBLAS gemm|cuDNN conv) tf32 '
check 'emit, then check' $einnet check models/csrnet.ein "$work/tf32.cu" --math tf32
$einnet check models/csrnet.ein "$work/tf32.cu" > "$work/log" 2>&1
[ $? = 1 ] && pass || fail 'check tells another mode' "$work/log"

# What keeps FP32 is not merged with what does not, and may take its epilogue along.
emit epilogue tests/unseen/product_epilogues.ein --math tf32 --keep-fp32 m1,m7 --dim L=3072 \
    --dim P=1280 --dim F=896
strict='^//.* (m1|m7|o1|o7) .*(cuBLAS sgemm|cublasLt matmul) [0-9]'
check 'm1 keeps FP32' test "$(grep -c -E "$strict" "$work/epilogue.cu")" = 2
has epilogue.cu '^//.* cublasLt matmul tf32 .* \+ bias'
has epilogue.cu 'CUDA_R_32F, CUDA_R_32F, 1,'
has epilogue.cu 's->tf32 \? CUBLAS_COMPUTE_32F_FAST_TF32'

# ---- FP16

emit epilogue tests/unseen/product_epilogues.ein --math fp16 --keep-fp32 m0,a0,o0 --dim L=4096 \
    --dim P=2048 --dim F=2048 --gpu a100
has epilogue.cu '^//.* o0 .*cublasLt matmul [0-9].* \+ bias \+ relu'
has epilogue.cu '^//.* o6 .*cublasLt matmul f16 .* \+ bias \+ relu'
has epilogue.cu 'CUDA_R_16F, CUDA_R_32F, 0,'
# It is priced as what it is, by kernels too.
for kept in '' '--keep-fp32 m0,a0,o0'; do
    emit priced tests/unseen/product_epilogues.ein --math fp16 --libs none --rules=-merge \
        --dim L=4096 $kept
    sed -n -E 's|^// +([0-9]+)[.][0-9]+ us est. o0[. ].*|\1|p' "$work/priced.cu"
done > "$work/priced"
[ "$(sed -n 2p "$work/priced")" -gt "$((3 * $(sed -n 1p "$work/priced")))" ] && pass ||
    fail 'FP32 costs what FMA costs' "$work/priced"
emit fp16 models/csrnet.ein --math fp16
has fp16.cu '^// for .*, FP16:'
has fp16.cu 'CUDA_R_16F, CUDA_R_16F, 0}'
has fp16.cu 'CUDNN_DATA_HALF'
has fp16.cu '^// inputs +x: f32'
has fp16.cu '^// outputs +y: f32'
has_not fp16.cu '^//.* (cuBLAS sgemm|cuDNN conv [0-9])'
has_not fp16.cu 'basis change'
has fp16_test.cu 'TOLERANCE = 1e-2'
emit again models/csrnet.ein --math fp16
check 'the same bytes again' cmp "$work/fp16.cu" "$work/again.cu"
emit kept16 models/gcn.ein --math fp16 --keep-fp32 l1
check 'the kept are f32' grep -q -E '^#define v_l1 ARENA\(' "$work/kept16.cu"
check 'the others are not' grep -q -E '^#define v_l2 ARENA_OF\(__half' "$work/kept16.cu"
check 'the plan is proved' $einnet verify models/resnet18.ein --small --math fp16
# A residual sum goes into the product before it, and its norm takes halves.
cat > "$work/block.ein" << 'END'
ein 1
model block
input x: f32[512,512]
weight w: f32[512,512] = randn(seed=1, std=0.1)
weight v: f32[512,512] = randn(seed=2, std=0.1)
weight b: f32[512] = randn(seed=3)
weight g: f32[512] = randn(seed=4)
output y
a = MatMul(x, w)
r = Relu(a)
m = MatMul(r, v)
c = Add(m, b)
s = Add(c, r)
n = LayerNormalization(s, g, b; axis=1)
p = MatMul(n, v)
y = Relu(p)
END
emit block "$work/block.ein" --math fp16
has block.cu '^//.* s .*cublasLt matmul f16 512 x 512 x 512 \+ residual \+ bias'
has block.cu '^#define v_s ARENA_OF\(__half'
has block.cu 'CUDA_R_16F, CUDA_R_16F, 0,'
# Statistics stay f32, and so does what a softmax is taken of.
cat > "$work/norm.ein" << 'END'
ein 1
model norm
input x: f32[1024,1024]
weight w: f32[1024,1024] = randn(seed=1, std=0.1)
weight v: f32[1024,1024] = randn(seed=2, std=0.1)
output y
a = MatMul(x, w)
b = Softmax(a)
c = MatMul(b, v)
y = Relu(c)
END
emit norm "$work/norm.ein" --math fp16
has norm.cu '^#define v_a ARENA\('
has norm.cu '^#define v_b ARENA_OF\(__half'
has norm.cu 'CUDA_R_16F, CUDA_R_32F, 0}'
for math in tf32 fp16; do
    check "explain in $math" $einnet explain models/cases/conv3x3.ein --math $math
    check "keys in $math" $einnet probe models/cases/conv3x3.ein --math $math -o "$work/probe.cu"
done
has probe.cu '"gemm f16 tensor b='
has probe.cu '"conv f16 tensor nchw '

# ---- errors

# refused CODE PATTERN OPTION...
refused() {
    code=$1
    pattern=$2
    shift 2
    within 20 $einnet emit models/gcn.ein -o "$work/none.cu" "$@" > "$work/log" 2>&1
    [ $? = "$code" ] && grep -q -e "$pattern" "$work/log" && pass || fail "refused: $*" "$work/log"
}
refused 2 "not 'fp1'; did you mean 'fp16'" --math fp1
refused 2 "no tensor 'g1.l9'; did you mean 'g1.l" --math fp16 --keep-fp32 g1.l9
refused 2 'separated by commas' --math fp16 --keep-fp32 g1,,y
refused 2 "no tensor 'x'" --math fp16 --keep-fp32 x
refused 2 'V100 SXM2 has no TF32' --math tf32 --gpu v100
refused 2 'given twice' --math tf32 --math fp16
[ ! -e "$work/none.cu" ] && pass || fail 'nothing is written'

# ---- proofs for a report have a budget together: a sum that takes minutes is left out, and what
# ---- else is there stays

cat > "$work/long.ein" << 'END'
ein 1
model long
input x: f32[1,65536,65536]
input z: f32[16,16]
output y, w
s = ReduceSum(x; axes=[1,2], keepdims=0)
y = Relu(s)
m = MatMul(z, z)
w = Relu(m)
END
check 'a report is emitted in time' within 60 $einnet emit "$work/long.ein" --math fp16 \
    --inspect -o "$work/long.cu" --test "$work/long_test.cu"
has long_test.cu '^ +[{]"w", v_w, '
has_not long_test.cu '^ +[{]"[sy]", v_'

if ! command -v nvcc > /dev/null; then
    echo 'skipped: nvcc is not on PATH'
    finish
fi

# ---- the report: b is large, and only what is left of it when most is taken away matters

cat > "$work/cancel.ein" << 'END'
ein 1
model cancel
input x: f32[1,16,8,8]
weight k: f32[16,16,3,3] = randn(seed=1, std=0.08)
weight q: f32[16,16,3,3] = randn(seed=2, std=0.08)
output y
t = Conv(x, k; pads=1)
b[n,c,h,w] = t[n,c,h,w] + 300
u = Conv(b, q; pads=1)
y[n,c,h,w] = 0.0001 * u[n,c,h,w] + b[n,c,h,w] - 300
END
# report NAME CODE OPTION...: the output of --errors in $work/NAME.
report() {
    r=$1
    code=$2
    shift 2
    emit "$r" "$work/cancel.ein" --math fp16 --inspect "$@"
    check "the judge takes $r" sh tests/judge/judgecc --mode san -o "$work/$r" \
        "$work/${r}_test.cu" "$work/$r.cu"
    "$work/$r" "$work/w" --errors > "$work/$r.txt" 2>&1
    got=$?
    [ $got = "$code" ] && pass || fail "$r: exit code $got" "$work/$r.txt"
}
check 'weights are packed' $einnet pack "$work/cancel.ein" -o "$work/w"
report all 1
has all.txt '^error b  '
has all.txt '^error y  '
has all.txt '^    y, by 0\.0.* from b$'
report but_b 0 --keep-fp32 b
has but_b.txt '^check y: error 0\.000.*: ok$'
emit plain "$work/cancel.ein" --math fp16
has_not plain_test.cu 'stored_values|--errors'

# ---- a device without TF32

check 'the judge takes tf32' sh tests/judge/judgecc --quick -o "$work/t" "$work/tf32_test.cu" \
    "$work/tf32.cu"
check 'weights of csrnet' $einnet pack models/csrnet.ein -o "$work/csrnet.w"
JUDGE_CC=75 "$work/t" "$work/csrnet.w" > "$work/log" 2>&1
[ $? = 5 ] && grep -q 'uses TF32.*compute capability 8.0' "$work/log" && pass ||
    fail 'a device without TF32' "$work/log"

# ---- devices with less shared memory

emit large tests/unseen/tensor_tiles.ein --math fp16 --libs none --small
most=$(sed -n 's/.*launch(.*, 256, \([0-9]*\), .*/\1/p' "$work/large.cu" | sort -n | tail -1)
[ "${most:-0}" -gt 49152 ] && pass || fail "large.cu: no kernel has more than 48 KiB: $most"
check 'its weights' $einnet pack tests/unseen/tensor_tiles.ein --small -o "$work/large.w"
check 'the judge takes large kernels' sh tests/judge/judgecc --quick -o "$work/large" \
    "$work/large_test.cu" "$work/large.cu"
check '99 KiB are enough' env JUDGE_CC=89 "$work/large" "$work/large.w" --check
sed "s/$most/102400/" "$work/large.cu" > "$work/larger.cu"
check 'the judge takes larger ones' sh tests/judge/judgecc --quick -o "$work/larger" \
    "$work/large_test.cu" "$work/larger.cu"
JUDGE_CC=89 "$work/larger" "$work/large.w" > "$work/log" 2>&1
[ $? = 5 ] && grep -q 'k_product.*more shared memory than the device has' "$work/log" && pass ||
    fail 'a device with too little shared memory' "$work/log"

# ---- the compiler

# Without LONG for the oldest GPU with such tensor cores; the newest one's are in test_nvcc.sh.
models='resnet18 ../tests/unseen/attention'
[ -z "${LONG:-}" ] || models="$models longformer_short dcgan cases/basic_block"
for model in $models; do
    for math in tf32 fp16; do
        arch=
        for cc in $([ $math = tf32 ] && echo 87 || echo 75) ${LONG:+90}; do
            nvcc --list-gpu-arch | grep -q "_$cc\$" &&
                arch="$arch -gencode arch=compute_$cc,code=sm_$cc"
        done
        emit compiled "models/$model.ein" --math $math
        check "$model in $math compiles" nvcc -std=c++14 -Werror all-warnings \
            -Xcompiler -Wall,-Wextra,-Werror -Xptxas -warn-spills,-warn-lmem-usage \
            -Xptxas -Werror $arch -c "$work/compiled.cu" -o "$work/compiled.o"
    done
done
check 'so does a report' nvcc -std=c++14 -Werror all-warnings -Xcompiler -Wall,-Wextra,-Werror \
    -arch=sm_90 -c "$work/all_test.cu" -o "$work/compiled.o"

# The host side, against older headers, which test_cuda11.sh keeps.
if [ -f build/cuda11/include/cudnn.h ]; then
    for math in tf32 fp16; do
        awk -f tests/judge/launch.awk "$work/$math.cu" > "$work/source.cpp"
        check "$math with CUDA 11.8 and cuDNN 8.5" g++ -std=c++17 -fsyntax-only -Wall -Wextra \
            -Werror -Wno-unknown-pragmas -Itests/judge/include -isystem build/cuda11/include \
            "$work/source.cpp"
    done
else
    echo 'skipped: the headers of CUDA 11.8 and cuDNN 8.5 are not there'
fi
finish
