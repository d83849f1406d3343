#!/bin/sh
# The host side of emitted files compiles without warnings against the headers of CUDA 11.8 and
# cuDNN 8, the older end of what the files support. The headers come from the Python registry's
# packages, once, into build/cuda11; without a registry the part is skipped.
. "$(dirname "$0")/lib.sh"

headers=build/cuda11/include
if [ ! -f "$headers/cudnn.h" ]; then
    rm -rf build/cuda11
    mkdir -p build/cuda11/wheels "$headers"
    .venv/bin/python -m pip download -q --no-deps --only-binary=:all: -d build/cuda11/wheels \
        nvidia-cuda-runtime-cu11==11.8.89 nvidia-cuda-nvcc-cu11==11.8.89 \
        nvidia-cublas-cu11==11.10.3.66 nvidia-cudnn-cu11==8.5.0.96 > "$work/log" 2>&1 || {
        rm -rf build/cuda11
        echo 'skipped: the packages with the headers of CUDA 11.8 and cuDNN 8.5 cannot be had'
        echo '0 passed, 0 failed'
        exit 0
    }
    # Only the headers are kept: the libraries are a gigabyte.
    .venv/bin/python - build/cuda11/wheels "$headers" << 'END'
import glob, os, sys, zipfile
for wheel in sorted(glob.glob(os.path.join(sys.argv[1], "*.whl"))):
    with zipfile.ZipFile(wheel) as z:
        for name in z.namelist():
            parts = name.split("/")
            if "include" in parts and not name.endswith("/"):
                path = os.path.join(sys.argv[2], *parts[parts.index("include") + 1:])
                os.makedirs(os.path.dirname(path), exist_ok=True)
                open(path, "wb").write(z.read(name))
END
    rm -rf build/cuda11/wheels
fi

# A program with engines of the graph API and a probe of them; then as with a version that lacks
# what they use.
model=tests/engine/fused.ein
check 'the program builds' make -s all
check 'a probe' build/einnet probe $model --baseline --math tf32 -o "$work/probe.cu"
grep -o -E '"conv(_data)? f32 tf32 [^"]*"' "$work/probe.cu" | tr -d '"' |
    sed 's/.*/h200\t& algo=engine:28,2=1\t1000\t1\tcudnn 8500/' > "$work/table"
check 'a program with engines' build/einnet emit $model --baseline --math tf32 \
    --costs "$work/table" -o "$work/engines.cu"
grep -q 'static int engine_open' "$work/engines.cu" && pass || fail 'engines are pinned'
for file in probe engines; do
    sed 's/^#include <cudnn.h>/&\n#undef CUDNN_VERSION\n#define CUDNN_VERSION 8201/' \
        "$work/$file.cu" > "$work/${file}_before.cu"
done

# Products of different sizes, which later versions take in one call.
mkdir "$work/groups"
.venv/bin/python -c 'import sys
sys.path.insert(0, "tests")
import check_grouped
check_grouped.Groups(sys.argv[1]).invent(["--math", "tf32"])' "$work/groups"
check 'a program with grouped products' build/einnet emit tests/unseen/grouped.ein --math tf32 \
    --costs "$work/groups/costs.tsv" -o "$work/grouped.cu"
grep -q 'cublasGemmGroupedBatchedEx' "$work/grouped.cu" && pass || fail 'products are grouped'
check 'a probe of them' build/einnet probe tests/unseen/grouped.ein --math tf32 --kernels 0 \
    -o "$work/grouped_probe.cu"

for file in out/*.cu out/cases/*.cu "$work/probe.cu" "$work/engines.cu" "$work/probe_before.cu" \
    "$work/engines_before.cu" "$work/grouped.cu" "$work/grouped_probe.cu"; do
    awk -f tests/judge/launch.awk "$file" > "$work/source.cpp"
    check "$file with CUDA 11.8 and cuDNN 8.5" g++ -std=c++17 -fsyntax-only -Wall -Wextra -Werror \
        -Wno-unknown-pragmas -Itests/judge/include -isystem "$headers" "$work/source.cpp"
done
finish
