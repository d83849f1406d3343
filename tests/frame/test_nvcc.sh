#!/bin/sh
# Emitted files compile with nvcc, warnings are errors, no kernel spills (those of the test program,
# which are as plain as their equations, may), and a program linked from them says in words that
# there is no GPU.
. "$(dirname "$0")/lib.sh"

flags='-std=c++14 -Werror all-warnings -Xcompiler -Wall,-Wextra,-Werror'
no_spills='-Xptxas -warn-spills,-warn-lmem-usage -Xptxas -Werror'

# An architecture that the toolkit no longer knows is left out.
arch=
for cc in 75 87 90; do
    if nvcc --list-gpu-arch | grep -q "_$cc\$"; then
        arch="$arch -gencode arch=compute_$cc,code=sm_$cc"
    else
        echo "skipped: sm_$cc is not known to this nvcc"
    fi
done
# What sm_90 has beside sm_87 are the same few lines in every kernel (templates/await.cu). Programs
# without libraries, which have most kernels, are compiled for all (in a short run one of them);
# others in turn for sm_75, or for sm_87 and assembled for both.
older=${arch%% -gencode arch=compute_87*}
newer=' -gencode arch=compute_87,code=[sm_87,sm_90]'
case $arch in
*sm_75*sm_87*sm_90) ;;
*) older=$arch newer=$arch ;;
esac

# compile SOURCE OBJECT ARCHITECTURES OPTION...
compile() {
    source=$1
    object=$2
    targets=$3
    shift 3
    nvcc $flags "$@" $targets -c "$source" -o "$object"
}

turn=$newer
for file in out/*.cu out/cases/*.cu; do
    case $file in *_test.cu) continue ;; esac
    check "$file compiles" compile "$file" "$work/$(basename "$file" .cu).o" "$turn" \
        $no_spills
    case $turn in "$newer") turn=$older ;; *) turn=$newer ;; esac
done
for name in ${LONG:+resnet18} srcnn ${LONG:+longformer_short}; do
    build/einnet emit models/$name.ein --libs none -o "$work/$name.cu"
    check "$name without libraries compiles" compile "$work/$name.cu" "$work/$name.own.o" "$arch" \
        $no_spills
done
# What warpgroups multiply: by their own instructions, and without a wait between these.
for math in fp16 tf32; do
    build/einnet emit models/csrnet.ein --math $math --libs none -o "$work/groups.cu"
    check "$math: it says what to compile it for" grep -q '^// compile   for sm_90a' \
        "$work/groups.cu"
    check "$math: products by warpgroups compile" nvcc $flags -ptx -arch=sm_90a \
        "$work/groups.cu" -o "$work/groups.ptx"
    check "$math: wgmma" grep -q "wgmma.mma_async.sync.aligned.m64n.*${math#*p}" "$work/groups.ptx"
    ptxas -v -warn-spills -warn-lmem-usage -Werror -arch=sm_90a "$work/groups.ptx" \
        -o "$work/groups.cubin" > "$work/groups.log" 2>&1 && pass ||
        fail "$math: products by warpgroups are assembled" "$work/groups.log"
    grep -q 'k_product' "$work/groups.log" && ! grep -q 'C75[0-9][0-9]' "$work/groups.log" &&
        pass || fail "$math: no wait between the products of warpgroups" "$work/groups.log"
done
# Kernels that take less of what stands in front of them than those of out/ do.
for name in attention_graph online_forms; do
    build/einnet emit tests/unseen/$name.ein --math tf32 -o "$work/$name.cu"
    check "$name on tensor cores compiles" compile "$work/$name.cu" "$work/$name.o" "$newer"
done
build/einnet emit models/srcnn.ein --libs none -o "$work/srcnn.cu" --test "$work/srcnn_test.cu"
check 'a program without libraries links with cudart alone' nvcc -std=c++14 -arch=sm_75 \
    "$work/srcnn_test.cu" "$work/srcnn.cu" -o "$work/srcnn" -lcudart
check 'out/resnet18_test.cu compiles' compile out/resnet18_test.cu "$work/resnet18_test.o" \
    "$newer"
check 'as a host without exceptions and types' nvcc -std=c++14 -Werror all-warnings \
    -Xcompiler -fno-exceptions,-fno-rtti -arch=sm_75 -c out/srcnn.cu -o "$work/bare.o"
echo '#include "resnet18.h"
int main(void) { return resnet18_describe() == 0; }' > "$work/use.c"
cuda=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
check 'the header as C' gcc -std=c11 $warn_c -isystem "$cuda/include" \
    -Iout -c "$work/use.c" -o "$work/use.o"
check 'the program links' nvcc "$work/resnet18_test.o" "$work/resnet18.o" -o "$work/resnet18" \
    -lcudart -lcudnn -lcublas -lcublasLt
check 'weights are packed' build/einnet pack models/resnet18.ein -o "$work/resnet18.weights"
if nvidia-smi > /dev/null 2>&1; then
    check 'it proves itself on this GPU' "$work/resnet18" "$work/resnet18.weights" --check
else
    "$work/resnet18" "$work/resnet18.weights" --check > "$work/log" 2>&1
    [ $? = 77 ] && [ -s "$work/log" ] && pass ||
        fail 'without a GPU: exit code 77 and a message' "$work/log"
fi
finish
