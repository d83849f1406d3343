#!/usr/bin/env bash
# Builds every program of out/ with its test program, checks it on the GPU and times it. Needs nvcc,
# cuDNN and cuBLAS, and neither a network nor what the generator is built with: where the
# repository can be built, `make gpu-kit` puts a static generator and the test programs in
# build/gpu/. Copy the repository with that folder to a machine with a GPU; there the one command is
#
#     bash bench/gpu.sh
#
# Results go to $OUT, by default bench/results/raw/:
#     device.tsv     GPU, driver, libraries, clocks, what a launch costs
#     NAME.tsv       measured costs (h200.tsv on an H200), rows as bench/costs/ holds them
#     build.tsv      program, ok or not, seconds, bytes of the executable
#     check.tsv      program, ok or not, relative L2 error, seconds, last words
#     bench.jsonl    one object a program: times in microseconds
#     clocks.tsv     clocks, temperature and power beside each of them
#     figures.tsv    templates' bandwidth, forms of operator cases, layers with and without calls
#     limits.tsv     bandwidth by size, peaks, cuDNN's algorithms
#     sanitize.tsv   compute-sanitizer on small sizes; tells, decides nothing
#     peers.tsv      our programs, without derivation, and the peers: one row a measurement
#     peers_clocks.tsv   clocks beside them
#     summary.md     the table, also printed
#     failures.txt   what the failed ones said
# and tables and plots, made of peers.tsv, to bench/results/ ($OUT/report where OUT is set).
# A program is MODEL, MODEL_small, MODEL_base (without derivation, where that makes a difference),
# MODEL_n1 or MODEL_n16 (batch 1 and 16, where the model's own batch is another). _tf32 or _fp16
# behind it is its arithmetic, FP32 without; then _costs says that it was planned with measured
# costs, where that makes a difference. Finished items are kept in build/gpu-run/ and not done again
# until their sources change, so a run that was stopped continues where it was. Costs that a table
# has are not measured again: delete it to do so.
#
# Exit codes: 0 all is well, 1 something failed (the rest was still done), 2 usage, 75 the budget is
# used up (run it again), 77 no GPU or no nvcc.
set -u
cd "$(dirname "$0")/.." || exit 5
export LC_ALL=C

usage() {
    cat << 'END'
usage: bash bench/gpu.sh [OPTION]...
  --phase NAME      only this one: device limits emit probe build check bench templates peers
                    sanitize report summary; may be repeated
  --only MODEL      only this model (resnet18, cases/conv3x3); may be repeated
  --budget SECONDS  begin no item after this time
  --jobs N          compilers at a time; default: the number of cores
  --arch ARCH       default: the GPU's, or sm_90 where there is none
  --gpu NAME        the GPU's name in tables of costs (h200); default: told by its own name
  --peers LIST      of eager, compile, jax; default: all that $PYTHON (python3) can import
  --rounds N        paired rounds of a comparison; default 5
  --stand-in        no GPU: small sizes, the judge instead of nvcc, peers on the CPU; tries the
                    whole path in build/stand-in*/, and its times mean nothing
  --fresh           forget what earlier runs finished
END
}

kit=build/gpu
work=build/gpu-run
out=${OUT:-bench/results/raw}
nvcc=${NVCC:-nvcc}
phases=
only=
budget=
arch=
name=
jobs=$(nproc 2> /dev/null || echo 1)
stopped=no
gpu=no
fresh=no
stand_in=no
device=cuda
small=()
probe_kernels=120       # in a program; nvcc takes some 0.1 s for each
probe_parts=16
. bench/contest.sh
. bench/figures.sh

while [ $# -gt 0 ]; do
    case $1 in
    --phase | --only | --budget | --jobs | --arch | --gpu | --peers | --rounds)
        [ $# -gt 1 ] || { usage >&2; exit 2; }
        case $1 in
        --phase)
            case $2 in
            device | limits | emit | probe | build | check | bench | templates | peers | \
                sanitize | report | summary)
                phases="$phases $2" ;;
            *) echo "gpu.sh: no phase '$2'" >&2; exit 2 ;;
            esac ;;
        --only) only="$only $2" ;;
        --budget) budget=$2 ;;
        --jobs) jobs=$2 ;;
        --arch) arch=$2 ;;
        --gpu) name=$2 ;;
        --peers) peers=$2 ;;
        --rounds) rounds=$2 ;;
        esac
        shift 2 ;;
    --stand-in) stand_in=yes; shift ;;
    --fresh) fresh=yes; shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "gpu.sh: unknown option '$1'" >&2; usage >&2; exit 2 ;;
    esac
done
for number in "${budget:-1}" "$jobs" "$rounds"; do
    case $number in '' | *[!0-9]* | 0*) echo "gpu.sh: '$number': not a number" >&2; exit 2 ;; esac
done
if [ $stand_in = yes ]; then
    kit=build/stand-in
    work=build/stand-in-run
    out=${OUT:-build/stand-in-out}
    nvcc=tests/judge/judgecc
    small=(--small)
    device=cpu
    name=${name:-h200}
    bench_ms=0.2
    sets=2
    export OPENBLAS_NUM_THREADS=1
fi
[ $fresh = no ] || rm -rf "$work"
mkdir -p "$kit" "$work" "$out" || exit 5

wanted() {
    [ -z "$phases" ] && return 0
    case " $phases " in *" $1 "*) return 0 ;; esac
    return 1
}

# selected MODEL: `--only` names it, by its path below models/ or its last part.
selected() {
    [ -z "$only" ] && return 0
    case " $only " in *" $1 "* | *" ${1##*/} "*) return 0 ;; esac
    return 1
}

# Whether another item may begin; says so once when not.
may_begin() {
    [ -n "$budget" ] && [ "$SECONDS" -ge "$budget" ] || return 0
    [ "$stopped" = yes ] || echo "stopped: $budget seconds are used; run it again to go on"
    stopped=yes
    return 1
}

# limit SECONDS: a limit for one item, less near the budget's end, but never below 20.
limit() {
    local left=$1
    [ -z "$budget" ] || left=$((budget - SECONDS + 20))
    [ "$left" -lt "$1" ] || left=$1
    [ "$left" -gt 20 ] || left=20
    echo "$left"
}

# ---- finished items: work/PHASE/ITEM holds the key that it was made from, then its row ----

done_already() { # PHASE ITEM KEY
    [ -f "$work/$1/$2.row" ] && [ "$(head -n 1 "$work/$1/$2.row")" = "$3" ]
}

record() { # PHASE ITEM KEY ROW
    mkdir -p "$(dirname "$work/$1/$2")"
    printf '%s\n%s\n' "$3" "$4" > "$work/$1/$2.row.new"
    mv "$work/$1/$2.row.new" "$work/$1/$2.row"
}

# The row of an item, if it is about the sources as they are now.
row() { # PHASE ITEM
    local key
    case $1 in
    build) key=$(key_of "$2") ;;
    *) key=$(run_key "$2") ;;
    esac
    ! done_already "$1" "$2" "$key" || tail -n +2 "$work/$1/$2.row"
}

# rows PHASE: the rows of all items, in their order.
rows() {
    local item
    for item in $(items); do row "$1" "$item"; done
}

# The last line that says something, without tabs.
last_words() {
    grep -v '^[[:space:]]*$' "$1" | tail -n 1 | tr '\t' ' ' | cut -c1-200
}

# ---- models and programs ----

models() {
    local file
    for file in models/*.ein models/cases/*.ein; do
        file=${file#models/}
        file=${file%.ein}
        if selected "$file"; then echo "$file"; fi
    done
}

# The arithmetic of programs beside FP32, as suffixes of their names. Devices before Ampere have no
# TF32.
maths() {
    case $(sed -n 's/^sm\t//p' "$work/device.tsv" 2> /dev/null) in
    [1-7].*) echo _fp16 ;;
    *) echo _tf32 _fp16 ;;
    esac
}

# Programs in order, small ones first: those whose test program exists.
items() {
    local math
    items_of _small '' _base _n1 _n16 _costs _n1_costs _n16_costs _n1_base _n16_base
    for math in $(maths); do
        items_of $math _n1$math _n16$math ${math}_costs _n1${math}_costs _n16${math}_costs \
            ${math}_base _n1${math}_base _n16${math}_base
    done
}

items_of() { # SUFFIX...
    local model suffix
    for suffix in "$@"; do
        for model in $(models); do
            [ ! -f "$kit/$model${suffix}_test.cu" ] || echo "$model$suffix"
        done
    done
}

# The program's own file: the one in out/ where there is one.
source_of() {
    if [ -f "out/$1.cu" ] && [ $stand_in = no ]; then
        echo "out/$1.cu"
    else
        echo "$kit/$1.cu"
    fi
}

# The packed weights of a program: one file serves every plan and batch size.
weights_of() {
    local item=$1
    while [ ! -f "models/${item%_small}.ein" ]; do      # a model's own name may end like a suffix
        case $item in
        *_n1 | *_n16 | *_base | *_costs | *_tf32 | *_fp16) item=${item%_*} ;;
        *) break ;;
        esac
    done
    echo "$work/weights/$item"
}

key_of() {
    { cat "$(source_of "$1")" "$kit/$1_test.cu"; echo "${flags[@]}"; } | sha256sum | cut -c1-16
}

# The key of what ran: a program with its weights.
run_key() {
    echo "$(key_of "$1") $(head -n 1 "$(weights_of "$1").row" 2> /dev/null)"
}

generator() {
    local file
    for file in build/einnet "$kit/einnet"; do
        if [ -x "$file" ] && "$file" --version > /dev/null 2>&1; then
            echo "$file"
            return
        fi
    done
}

# ---- emit: test programs, and programs of sizes that out/ does not hold ----

emit_one() { # ITEM MODEL OPTION...
    local item=$1 model=$2 log=$work/emit/$1.log
    shift 2
    mkdir -p "$(dirname "$log")" "$(dirname "$kit/$item")"
    if "$einnet" emit "models/$model.ein" "$@" "${small[@]}" -o "$kit/$item.cu" \
        --test "$kit/${item}_test.cu" 2> "$log"; then
        rm -f "$work/emit/$item.row"
    else
        rm -f "$kit/$item.cu" "$kit/${item}_test.cu"
        record emit "$item" - "$item"$'\tfailed\t\t\t'"$(head -n 1 "$log")"
        echo "emit $item: failed: $(head -n 1 "$log")"
    fi
}

# Rows of models that were not emitted; they are no items.
emit_failures() {
    find "$work/emit" -name '*.row' -exec grep -h -P '\tfailed\t' {} + 2> /dev/null | sort
}

# Of batch 1 and 16 those that the model has not by itself.
batches() { # MODEL
    local n batch
    batch=$(sed -n -E 's/^dim (.*, )?N = ([0-9]+)(,.*)?$/\2/p' "models/$1.ein" | head -n 1)
    for n in 1 16; do
        if [ -n "$batch" ] && [ "$batch" != $n ]; then echo $n; fi
    done
}

emit_all() {
    local model n math
    if [ -z "$einnet" ]; then
        echo 'emit: the generator does not run here; the files in build/gpu/ are taken as they are'
        return
    fi
    rm -rf "$work/emit"
    for model in $(models); do
        emit_one "$model" "$model"
        [ $stand_in = yes ] || ! grep -q '^small ' "models/$model.ein" ||
            emit_one "${model}_small" "$model" --small
        emit_one "${model}_base" "$model" --baseline
        if cmp -s "$kit/${model}_base.cu" "$kit/$model.cu"; then
            rm "$kit/${model}_base.cu" "$kit/${model}_base_test.cu"
        fi
        [ $stand_in = no ] || continue
        for n in $(batches "$model"); do
            emit_one "${model}_n$n" "$model" --dim N=$n --prefix "${model##*/}_n$n"
        done
        for math in tf32 fp16; do
            emit_one "${model}_$math" "$model" --math $math --prefix "${model##*/}_$math"
            for n in $(batches "$model"); do
                emit_one "${model}_n${n}_$math" "$model" --math $math --dim N=$n \
                    --prefix "${model##*/}_n${n}_$math"
            done
        done
    done
    contest_emit
    echo "emit: $(items | wc -l) programs in $kit/"
}

# ---- device ----

# Builds bench/device.cu. cuDNN and cuBLAS stand where nvcc looks, or in the Python packages that
# carry them; what the compiler has to be told goes into `include` and `libraries`.
build_device() {
    local folder file name
    include=()
    libraries=(-lcudart -lcudnn -lcublas -lcublasLt)
    compile_device && return
    mkdir -p "$work/lib"
    for folder in $(python3 -c 'import site, sys
print(*[p + "/nvidia" for p in site.getsitepackages() + sys.path if p])' 2> /dev/null); do
        [ -d "$folder" ] || continue
        for file in "$folder"/*/include; do
            if [ -f "$file/cudnn.h" ] || [ -f "$file/cublas_v2.h" ]; then
                include+=(-I "$file")
            fi
        done
        for file in "$folder"/*/lib/libcudnn.so* "$folder"/*/lib/libcublas{,Lt}.so*; do
            [ -f "$file" ] || continue
            name=${file##*/}
            ln -sf "$file" "$work/lib/${name%%.so*}.so"
            libraries+=(-Xlinker "-rpath=${file%/*}")
        done
        [ ${#include[@]} = 0 ] || break
    done
    libraries=(-L "$work/lib" "${libraries[@]}")
    compile_device
}

compile_device() {
    "$nvcc" "${include[@]}" bench/device.cu -o "$work/device" "${libraries[@]}" \
        > "$work/device.log" 2>&1
}

clocks() {
    nvidia-smi --query-gpu=clocks.sm,clocks.mem,temperature.gpu,power.draw \
        --format=csv,noheader 2> /dev/null | head -n 1 | sed 's/, /\t/g'
}

record_device() {
    local code
    if ! build_device; then
        echo "device: bench/device.cu does not build: $(last_words "$work/device.log")"
        return
    fi
    "$work/device" > "$work/device.tsv" 2>> "$work/device.log"
    code=$?
    [ $code != 0 ] || gpu=yes
    [ $code = 0 ] || [ $code = 77 ] || echo "device: bench/device.cu ends with exit code $code"
    {
        printf 'nvcc\t%s\n' "$("$nvcc" --version | grep release | sed 's/.*release //')"
        printf 'host\t%s cores, %s\n' "$(nproc)" \
            "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2> /dev/null | head -n 1)"
        printf 'clocks_idle\t%s\n' "$(clocks | tr '\t' ' ')"
        nvidia-smi --query-gpu=driver_version,clocks.max.sm,clocks.max.mem,power.limit \
            --format=csv,noheader 2> /dev/null | head -n 1 | sed 's/^/smi\t/'
    } >> "$work/device.tsv"
}

# What launches cost, as more lines of device.tsv; built for this GPU, whose kernels may be launched
# early. Measured once.
record_launches() {
    if [ -s "$work/launch.tsv" ]; then
        cat "$work/launch.tsv" >> "$work/device.tsv"
        return
    fi
    if ! "$nvcc" -O3 -std=c++14 "-arch=$arch" bench/launch.cu -o "$work/launch" -lcudart \
        > "$work/launch.log" 2>&1; then
        echo "device: bench/launch.cu does not build: $(last_words "$work/launch.log")"
        return
    fi
    if ! timeout 60 "$work/launch" > "$work/launch.tsv" 2>> "$work/launch.log"; then
        echo "device: bench/launch.cu fails: $(last_words "$work/launch.log")"
        rm -f "$work/launch.tsv"
        return
    fi
    cat "$work/launch.tsv" >> "$work/device.tsv"
}

# ---- limits: what the device and its libraries reach ----

limits_all() {
    local key log=$work/limits.log
    key=$(cat bench/limits.cu "$work/device.tsv" | grep -v '^clocks_idle' | sha256sum | cut -c1-16)
    ! done_already limits all "$key" || return 0
    may_begin || return
    if ! "$nvcc" "${flags[@]}" "${include[@]}" bench/limits.cu -o "$work/limits.program" \
        "${libraries[@]}" > "$log" 2>&1; then
        echo "limits: bench/limits.cu does not build: $(last_words "$log")"
        return
    fi
    seconds=$(limit 120)
    if timeout "$seconds" "$work/limits.program" > "$work/limits.tsv" 2> "$log" < /dev/null; then
        record limits all "$key" "$(cat "$work/limits.tsv")"
        echo "limits: $(grep -c -v '^#' "$work/limits.tsv") figures"
    else
        echo "limits: failed: $(last_words "$log")"
    fi
}

# ---- probe: costs measured, programs planned with them ----

# The name of this GPU in tables of costs; fails where it has none.
device_name() {
    case $(sed -n 's/^gpu\t//p' "$work/device.tsv") in
    *H200*) echo h200 ;;
    *H100*) echo h100 ;;
    *A100*40GB*) echo a100-40 ;;
    *A100*) echo a100 ;;
    *V100*) echo v100 ;;
    *L4) echo l4 ;;
    *'RTX 4090') echo rtx4090 ;;
    *) return 1 ;;
    esac
}

# Sets `costs`: the options that name the tables there are for this GPU.
find_costs() {
    local file
    costs=(--gpu "$name")
    for file in "bench/costs/$name.tsv" "$out/$name.tsv"; do
        [ ! -s "$file" ] || costs+=(--costs "$file")
    done
}

# Moves whole rows that a probe has printed, stopped or not, to the table.
collect_rows() { # FILE
    [ -f "$1" ] || return 0
    grep -P "^$name\t[^\t]+\t\d+\t\d+\t.+$" "$1" >> "$out/$name.tsv"
    rm "$1"
}

# Emits and builds one of several programs; a failure leaves what it said and no program.
build_probe() { # BASE PART/PARTS EINNET'S ARGUMENTS...
    local base=$1_${2%/*} part=$2
    shift 2
    rm -f "$base"
    "$einnet" probe "$@" --part "$part" "${costs[@]}" -o "$base.cu" 2> "$base.log" &&
        "$nvcc" "${flags[@]}" "${include[@]}" "$base.cu" -o "$base" "${libraries[@]}" \
            > "$base.log" 2>&1
}

# Measures the calls and kernels that no table has; fails when there is no program for it. With new
# costs the search may ask for others: some rounds of it. Kernels are compiled in parts, side by
# side; the first part has the calls and the best plans' kernels.
probe_group() { # ITEM EINNET'S ARGUMENTS...
    local item=$1 base=$work/probe/$1 round before code part parts kernels
    shift
    mkdir -p "$(dirname "$base")"
    for part in "$base"_*.rows; do collect_rows "$part"; done
    rm -f "$base.notes"
    for round in 1 2 3; do
        find_costs
        if ! "$einnet" probe "$@" "${costs[@]}" -o "$base.cu" 2> "$base.log"; then
            echo "probe $item: failed: $(head -n 1 "$base.log")"
            return 1
        fi
        ! grep -q '^// The tables have every call' "$base.cu" || return 0
        may_begin || return 0
        kernels=$(sed -n 's|^// and [0-9]* kernels of \([0-9]*\) that .*|\1|p' "$base.cu")
        parts=$(((${kernels:-0} + probe_kernels - 1) / probe_kernels))
        [ "$parts" -gt 0 ] || parts=1
        [ "$parts" -le "$probe_parts" ] || parts=$probe_parts
        for ((part = 1; part <= parts; part++)); do
            in_parallel build_probe "$base" "$part/$parts" "$@"
        done
        wait
        code=0
        for ((part = 1; part <= parts && code == 0; part++)); do
            run_probe "$item" "$base" "$part" "$round"
            code=$?
        done
        [ $code = 0 ] || return $((code == 1))
    done
}

# Runs one part: 0 when all was measured, 1 when there is no program, 2 when it was stopped.
run_probe() { # ITEM BASE PART ROUND
    local base=$2_$3 code before
    if [ ! -x "$base" ]; then
        echo "probe $1, part $3: no program: $(last_words "$base.log")"
        [ "$3" != 1 ]
        return
    fi
    may_begin || return 2
    seconds=$(limit 590)
    before=$(wc -l < "$out/$name.tsv")
    timeout $((seconds + 60)) "$base" --device "$name" --deadline "$seconds" \
        > "$base.rows" 2> "$base.log" < /dev/null
    code=$?
    [ $code != 75 ] || [ "$seconds" = 590 ] || stopped=yes
    grep '^#' "$base.rows" >> "$2.notes"
    collect_rows "$base.rows"
    echo "probe $1, round $4, part $3: $(($(wc -l < "$out/$name.tsv") - before)) rows," \
        "$(last_words "$base.log")"
    [ $code = 0 ] || return 2
}

# All models in one program; where that cannot be, each in its own.
probe_models() { # ITEM MODELS [OPTION...]
    local item=$1 models=$2 model files=()
    shift 2
    [ -n "$models" ] || return 0
    for model in $models; do files+=("models/$model.ein"); done
    ! probe_group "$item" "${files[@]}" "$@" || return 0
    for model in $models; do
        may_begin || return 0
        probe_group "$item/$model" "models/$model.ein" "$@"
    done
}

# Emits a program with measured costs, unless its code is that of SOURCE.
emit_costs() { # ITEM SOURCE MODEL OPTION...
    local item=$1 source=$2
    emit_one "$item" "${@:3}" "${costs[@]}"
    if [ -f "$kit/$item.cu" ] && [ -f "$source" ] &&
        cmp -s <(grep -v '^ *//' "$source") <(grep -v '^ *//' "$kit/$item.cu"); then
        rm "$kit/$item.cu" "$kit/${item}_test.cu"
    fi
}

probe_all() {
    local model n math
    [ -n "$name" ] || name=$(device_name) || {
        echo 'probe: the generator has no row for this GPU; see --gpu'
        return
    }
    [ -n "$einnet" ] || { echo 'probe: the generator does not run here'; return; }
    touch "$out/$name.tsv"
    for math in '' $(maths); do
        probe_models "all$math" "$(models)" ${math:+--math ${math#_}}
        for n in 1 16; do
            probe_models "all_n$n$math" "$(for model in $(models); do
                ! batches "$model" | grep -q -x $n || echo "$model"
            done)" --dim N=$n ${math:+--math ${math#_}}
        done
    done
    echo "probe: $(wc -l < "$out/$name.tsv") rows in $out/$name.tsv"
    [ $stopped = no ] || return
    find_costs
    for model in $(models); do
        for math in '' $(maths); do
            emit_costs "$model${math}_costs" "$(source_of "$model$math")" "$model" \
                ${math:+--math ${math#_} --prefix "${model##*/}$math"}
            for n in $(batches "$model"); do
                emit_costs "${model}_n$n${math}_costs" "$kit/${model}_n$n$math.cu" "$model" \
                    --dim N=$n --prefix "${model##*/}_n$n$math" ${math:+--math ${math#_}}
            done
        done
    done
}

# ---- build ----

build_one() { # ITEM KEY
    local item=$1 log=$work/build/$1.log start=$SECONDS status=ok said=
    mkdir -p "$(dirname "$log")"
    rm -f "$work/build/$item"
    if ! "$nvcc" "${flags[@]}" "${report[@]}" "${include[@]}" "$kit/${item}_test.cu" \
        "$(source_of "$item")" -o "$work/build/$item" "${libraries[@]}" > "$log" 2>&1; then
        status=failed
        said=$(grep -m 1 -i error "$log" | tr '\t' ' ' | cut -c1-200)
        [ -n "$said" ] || said=$(last_words "$log")
    elif grep -qi warning "$log"; then
        status=warnings
        said=$(grep -m 1 -i warning "$log" | tr '\t' ' ' | cut -c1-200)
    fi
    # Bytes that registers did not suffice for, as the compiler reports them of each kernel.
    [ ${#report[@]} = 0 ] || said="$said spills $(grep -o '[0-9]* bytes spill' "$log" |
        awk '{ n += $1 } END { print n + 0 }')"
    record build "$item" "$2" "$item"$'\t'"$status"$'\t'$((SECONDS - start))$'\t'"$(
        stat -c %s "$work/build/$item" 2> /dev/null)"$'\t'"$said"
    [ $status = ok ] || echo "build $item: $status: $said"
}

# One file of weights: WEIGHTS is work/weights/MODEL or work/weights/MODEL_small.
pack_one() { # WEIGHTS KEY
    local file=$1 model=${1#"$work/weights/"} small=("${small[@]}")
    case $model in
    *_small)
        model=${model%_small}
        small=(--small) ;;
    esac
    mkdir -p "$(dirname "$file")"
    rm -f "$file.row"
    if "$einnet" pack "models/$model.ein" "${small[@]}" -o "$file.weights" 2> "$file.log"; then
        echo "$2" > "$file.row"
    else
        echo "pack $model: failed: $(head -n 1 "$file.log")"
    fi
}

# Runs a command beside at most $jobs - 1 others.
in_parallel() {
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    "$@" &
}

build_all() {
    local item key file model
    local -A packed=()
    [ -n "$einnet" ] || echo 'build: without the generator there are no weights'
    for item in $(items); do
        may_begin || break
        key=$(key_of "$item")
        done_already build "$item" "$key" || in_parallel build_one "$item" "$key"
        file=$(weights_of "$item")
        model=${file#"$work/weights/"}
        key=$(sha256sum < "models/${model%_small}.ein" | cut -c1-16)
        if [ -n "$einnet" ] && [ -z "${packed[$file]:-}" ] &&
            [ "$(cat "$file.row" 2> /dev/null)" != "$key" ]; then
            packed[$file]=yes
            in_parallel pack_one "$file" "$key"
        fi
    done
    wait
    echo "build: $(rows build | grep -c -P '^\S+\t(ok|warnings)\t') of $(items | wc -l) built"
}

# ---- check and bench ----

status_of() { # EXIT CODE
    case $1 in
    0) echo ok ;;
    1) echo differs ;;
    77) echo 'no device' ;;
    124 | 137) echo 'time limit' ;;
    *) echo "exit code $1" ;;
    esac
}

# ready PHASE ITEM: built, and not done. Sets $key, $start and $seconds, the item's limit.
ready() { # PHASE ITEM SECONDS
    [ -x "$work/build/$2" ] || return 1
    key=$(run_key "$2")
    ! done_already "$1" "$2" "$key" || return 1
    mkdir -p "$(dirname "$work/$1/$2")"
    seconds=$(limit "$3")
    start=$SECONDS
}

# cut_off CODE SECONDS: the budget, not the item's own limit, ended it: it will be tried again.
cut_off() {
    [ "$1" = 124 ] && [ "$seconds" -lt "$2" ] || return 1
    stopped=yes
}

check_all() {
    local item log code status error
    for item in $(items); do
        ready check "$item" 240 || continue
        may_begin || return
        log=$work/check/$item.log
        timeout "$seconds" "$work/build/$item" "$(weights_of "$item").weights" --check \
            > "$log" 2>&1 < /dev/null
        code=$?
        ! cut_off $code 240 || return
        status=$(status_of $code)
        error=$(sed -n -E 's/^check .*: error ([^ ,]+), .*/\1/p' "$log" | sort -g | tail -n 1)
        record check "$item" "$key" "$item"$'\t'"$status"$'\t'"${error:--}"$'\t'$((SECONDS - \
            start))$'\t'"$(last_words "$log")"
        echo "check $item: $status, error ${error:--}"
    done
}

# The figures carry the outcome of a check in the same process.
bench_all() {
    local item log code status before
    for item in $(items); do
        # The peers' phase times other precisions, and batch sizes without derivation.
        case $item in *_small | *_tf32* | *_fp16* | *_n1_base | *_n16_base) continue ;; esac
        ready bench "$item" 240 || continue
        may_begin || return
        log=$work/bench/$item.log
        before=$(clocks)
        timeout "$seconds" "$work/build/$item" "$(weights_of "$item").weights" --check --bench \
            > "$log.json" 2> "$log" < /dev/null
        code=$?
        ! cut_off $code 240 || return
        status=$(status_of $code)
        if ! grep -q '"median_us"' "$log.json"; then
            printf '{"said": "%s"}\n' "$(last_words "$log" | tr -d '\042\134')" > "$log.json"
        fi
        record bench "$item" "$key" \
            "$(tr '\n' ' ' < "$log.json" |
                sed "s|^{|{\"program\": \"$item\", \"status\": \"$status\", |; s/ *\$//")"
        record clocks "$item" "$key" \
            "$item"$'\tbefore\t'"$before"$'\n'"$item"$'\tafter\t'"$(clocks)"
        echo "bench $item: $status, $(figure "$(cat "$log.json")" median_us) us"
    done
}

# figure JSON NAME
figure() {
    sed -n -E "s/.*\"$2\": \"?([^,\"}]*).*/\1/p" <<< "$1" | head -n 1
}

# ---- sanitize ----

sanitize_all() {
    local item tool log said
    if ! command -v compute-sanitizer > /dev/null; then
        echo 'sanitize: compute-sanitizer is not on PATH'
        return
    fi
    for tool in memcheck racecheck; do
        for item in $(items | grep '_small$'); do
            ready "$tool" "$item" 120 || continue
            may_begin || return
            log=$work/$tool/$item.log
            timeout "$seconds" compute-sanitizer --tool $tool --print-limit 20 \
                "$work/build/$item" "$(weights_of "$item").weights" --check \
                > "$log" 2>&1 < /dev/null
            ! cut_off $? 120 || return
            said=$(grep -o -E '(ERROR|RACECHECK) SUMMARY: .*' "$log" | tail -n 1)
            if [ -z "$said" ]; then
                echo "sanitize: $tool does not work here: $(last_words "$log")"
                break
            fi
            record $tool "$item" "$key" "$item"$'\t'"$tool"$'\t'$((SECONDS - start))$'\t'"$said"
            echo "$tool $item: $said"
        done
    done
}

# ---- results ----

gather() {
    local phase item
    [ ! -f "$work/device.tsv" ] || cp "$work/device.tsv" "$out/device.tsv"
    { emit_failures; rows build; } > "$out/build.tsv"
    rows check > "$out/check.tsv"
    rows bench > "$out/bench.jsonl"
    rows clocks > "$out/clocks.tsv"
    { rows memcheck; rows racecheck; } > "$out/sanitize.tsv"
    figure_rows > "$out/figures.tsv"
    [ ! -f "$work/limits.tsv" ] || cp "$work/limits.tsv" "$out/limits.tsv"
    for phase in build check bench; do
        for item in $(items); do
            row "$phase" "$item" | grep -v -q -P '^\S+\tok\t|"status": "ok"' || continue
            echo "==== $phase $item"
            tail -n 40 "$work/$phase/$item.log" | cut -c1-300
        done
    done > "$out/failures.txt"
}

# Whether a program is of the arithmetic that a suffix stands for; none: FP32.
is_of() { # ITEM SUFFIX
    case ${1%_costs} in
    *_tf32) [ "$2" = _tf32 ] ;;
    *_fp16) [ "$2" = _fp16 ] ;;
    *) [ -z "$2" ] ;;
    esac
}

# One row a program, precisions apart; a dash where there is no figure.
summary() {
    local item source check error json plan line name math
    echo "GPU: $(sed -n 's/^gpu\t//p' "$work/device.tsv" 2> /dev/null)"
    echo
    echo 'Times in microseconds. Warm: graph replays back to back, median and 95th percentile;'
    echo 'cold: after a 256 MB fill; latency: one replay, launch to completion on the host clock.'
    echo 'Estimate: of the plan, by a model of the GPU that the program names in its first lines.'
    for math in '' $(maths); do
        name=${math#_}
        echo
        echo "## ${name:-fp32}"
        echo
        echo '| program | check | rel. L2 | estimate | warm | p95 | cold | latency | kernels |'
        echo '| --- | --- | --- | --- | --- | --- | --- | --- | --- |'
        for item in $(items); do
            is_of "$item" "$math" || continue
            source=$(source_of "$item")
            IFS=$'\t' read -r _ check error _ <<< "$(row check "$item")"
            json=$(row bench "$item")
            if [ -z "$check" ]; then
                check=$(row build "$item" | cut -f2)
                check="not run, build ${check:-not run}"
            fi
            plan=$(sed -n -E 's|^// plan +[0-9]+ steps?, ([0-9.]+ [a-z]+) .*|\1|p' "$source")
            line="| $item | $check | ${error:--} | ${plan:--} |"
            for name in median_us p95_us cold_median_us latency_median_us kernels; do
                name=$(figure "$json" $name)
                line="$line ${name:--} |"
            done
            echo "$line"
        done
    done
}

failed() {
    grep -q -P '\tfailed\t' "$out/build.tsv" && return 0
    grep -v -q -P '^\S+\tok\t' "$out/check.tsv" && return 0
    grep -v -q '"status": "ok"' "$out/bench.jsonl"
}

# ---- run ----

einnet=$(generator)
if [ "$phases" = ' emit' ]; then
    [ -n "$einnet" ] || { echo 'gpu.sh: build the generator first' >&2; exit 5; }
    emit_all
    [ -z "$(emit_failures)" ]
    exit
fi
if ! command -v "$nvcc" > /dev/null; then
    echo 'gpu.sh: nvcc is not on PATH' >&2
    exit 77
fi
if [ $stand_in = yes ]; then
    printf 'gpu\tnone: the judge, a CPU; these times mean nothing\n' > "$work/device.tsv"
    include=()
    libraries=()
    gpu=yes
else
    record_device
fi
if [ -z "$arch" ]; then
    arch=sm_90
    [ $gpu = no ] || arch=sm_$(sed -n 's/^sm\t//p' "$work/device.tsv" | tr -d .)
fi
[ $gpu = no ] || [ $stand_in = yes ] || record_launches
flags=(-O3 -std=c++14 "-arch=$arch")
report=(-Xptxas -v)
[ $stand_in = no ] || { flags=(); report=(); }
! wanted device || cat "$work/device.tsv"
! wanted emit || emit_all
[ $gpu = no ] || [ $stand_in = yes ] || ! wanted limits || limits_all
[ $gpu = no ] || [ $stand_in = yes ] || ! wanted probe || probe_all
! wanted build || build_all
if [ $gpu = yes ]; then
    ! wanted check || [ $stopped = yes ] || check_all
    ! wanted bench || [ $stopped = yes ] || bench_all
    ! wanted templates || [ $stopped = yes ] || templates_all
    ! wanted peers || [ $stopped = yes ] || peers_all
    ! wanted sanitize || [ $stopped = yes ] || [ $stand_in = yes ] || sanitize_all
fi
only=
gather
[ $gpu = no ] || ! wanted report || { figures_all; report_all; }
summary > "$out/summary.md"
! wanted summary || cat "$out/summary.md"
echo "results in $out"
if [ $gpu = no ]; then
    echo 'gpu.sh: no GPU here: nothing was checked or timed' >&2
    exit 77
fi
[ $stopped = no ] || exit 75
! failed || exit 1
