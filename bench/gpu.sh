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
#     steps.tsv      program, number, microseconds, estimate, name and call of every step
#     clocks.tsv     clocks, temperature and power beside each of them
#     figures.tsv    templates' bandwidth, forms of operator cases, layers with and without calls
#     limits.tsv     bandwidth by size, peaks, cuDNN's algorithms
#     sanitize.tsv   compute-sanitizer on small sizes; tells, decides nothing
#     peers.tsv      our programs, without derivation, and the peers: one row a measurement
#     peers_clocks.tsv   clocks beside them
#     peers_times.tsv    seconds that systems took to import, load, compile and so on
#     summary.md     the table, also printed
#     failures.txt   what failed, and what it said
# and tables and plots, made of peers.tsv, to bench/results/ ($OUT/report where OUT is set).
# A program is MODEL, MODEL_small, MODEL_base (without derivation, where that makes a difference),
# MODEL_n1 or MODEL_n16 (batch 1 and 16, where the model's own batch is another). _tf32 or _fp16
# behind it is its arithmetic, FP32 without; then _costs says that it was planned with measured
# costs, where that makes a difference, and is compared with what has them too. What matters most
# comes first: see `steps`. Finished items are kept in build/gpu-run/, measured costs too, and not
# done again until their sources or the GPU change, and after each step all that is finished is
# written to $OUT: a run that was stopped, or killed, continues where it was, whatever became of
# $OUT. To measure costs again, --fresh and an $OUT without the table.
#
# Exit codes: 0 all is well, 1 something failed (the rest was still done), 2 usage, 75 the budget is
# used up (run it again; each run finishes something), 77 no GPU or no nvcc.
set -u
cd "$(dirname "$0")/.." || exit 5
export LC_ALL=C

usage() {
    cat << 'END'
usage: bash bench/gpu.sh [OPTION]...
  --phase NAME      only this one: device limits emit probe build check bench steps templates
                    peers sanitize report summary; may be repeated
  --only MODEL      only this model (resnet18, cases/conv3x3); may be repeated
  --scope NAME      only steps of this scope: first, fp32 (all models at their own batch size),
                    typed or all; default: one after another
  --budget SECONDS  begin no item after this time
  --jobs N          compilers at a time; default: the number of cores
  --arch ARCH       default: the GPU's, or sm_90a where there is none
  --gpu NAME        the GPU's name in tables of costs (h200); default: told by its own name
  --peers LIST      of eager, compile, jax; default: all that $PYTHON (python3) can import
  --rounds N        paired rounds of a comparison; default 5
  --compile-mode M  of torch.compile; default max-autotune-no-cudagraphs; `default` compiles
                    several times quicker
  --setup SECONDS   until a peer is ready for a comparison, or is left out of it; default 600
  --lanes N         comparisons that get ready side by side; default: one for four cores
  --bench-ms N      least milliseconds of a sample in comparisons; default 20
  --stand-in        no GPU: small sizes, the judge instead of nvcc, peers on the CPU; tries the
                    whole path in build/stand-in*/, and its times mean nothing
  --fresh           forget what earlier runs finished
END
}

# Models that matter most, in this order; and what is done, in this order: the scope of a step is
# these models in FP32 at their own batch size (first), all models so (fp32), the first ones in
# TF32 and FP16 (typed), or everything. Whether programs are right takes seconds each and comes
# first. How the models that matter most compare takes minutes each, what calls and kernels cost
# takes minutes too; after that what has other plans is done again.
first='resnet18 bert_base dcgan longformer'
steps='first:build first:bench first:steps fp32:build fp32:check typed:build typed:check
    first:peers fp32:steps typed:steps typed:peers all:limits first:probe first:build first:bench
    fp32:bench first:peers fp32:probe fp32:build fp32:bench fp32:peers all:templates all:build
    all:bench all:check all:probe all:build all:bench all:check all:steps all:peers all:sanitize'

kit=build/gpu
work=build/gpu-run
out=${OUT:-bench/results/raw}
nvcc=${NVCC:-nvcc}
phases=
only=
budget=
arch=
name=
title=
jobs=$(nproc 2> /dev/null || echo 1)
scope=all
one_scope=
stopped=no
unfinished=no           # costs are left to measure, or comparisons to end
finished=0              # items that this run has finished
gpu=no
fresh=no
stand_in=no
device=cuda
small=()
compile_limit=600       # seconds, of one program
check_limit=60
bench_limit=90
. bench/device.sh
. bench/costs.sh
. bench/contest.sh
. bench/figures.sh
. bench/results.sh

while [ $# -gt 0 ]; do
    case $1 in
    --phase | --only | --scope | --budget | --jobs | --arch | --gpu | --peers | --rounds | \
        --compile-mode | --setup | --lanes | --bench-ms)
        [ $# -gt 1 ] || { usage >&2; exit 2; }
        case $1 in
        --phase)
            case $2 in
            device | limits | emit | probe | build | check | bench | steps | templates | \
                peers | sanitize | report | summary)
                phases="$phases $2" ;;
            *) echo "gpu.sh: no phase '$2'" >&2; exit 2 ;;
            esac ;;
        --only) only="$only $2" ;;
        --scope)
            case $2 in
            first | fp32 | typed | all) one_scope=$2 ;;
            *) echo "gpu.sh: no scope '$2'" >&2; exit 2 ;;
            esac ;;
        --budget) budget=$2 ;;
        --jobs) jobs=$2 ;;
        --arch) arch=$2 ;;
        --gpu) name=$2 ;;
        --peers) peers=$2 ;;
        --rounds) rounds=$2 ;;
        --compile-mode) compile_mode=$2 ;;
        --setup) setup=$2 ;;
        --lanes) lanes=$2 ;;
        --bench-ms) bench_ms=$2 ;;
        esac
        shift 2 ;;
    --stand-in) stand_in=yes; shift ;;
    --fresh) fresh=yes; shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "gpu.sh: unknown option '$1'" >&2; usage >&2; exit 2 ;;
    esac
done
for number in "${budget:-1}" "$jobs" "$rounds" "$setup" "${lanes:-1}" "$bench_ms"; do
    case $number in '' | *[!0-9]* | 0*) echo "gpu.sh: '$number': not a number" >&2; exit 2 ;; esac
done
[ -n "$lanes" ] || lanes=$((jobs < 8 ? 1 : jobs / 4))
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
    compile_mode=default
    export OPENBLAS_NUM_THREADS=1
fi
[ $fresh = no ] || rm -rf "$work"
mkdir -p "$kit" "$work" "$out" || exit 5
: > "$work/complaints"
rm -f "$work/absent" "$work/no_smi" "$work/cut"

wanted() {
    [ -z "$phases" ] && return 0
    case " $phases " in *" $1 "*) return 0 ;; esac
    return 1
}

# complain PHASE WORDS...: says what failed, there and in failures.txt.
complain() {
    local phase=$1
    shift
    echo "$phase: failed: $*" | tee -a "$work/complaints"
}

# selected MODEL: `--only` names it, by its path below models/ or its last part.
selected() {
    [ -z "$only" ] && return 0
    case " $only " in *" $1 "* | *" ${1##*/} "*) return 0 ;; esac
    return 1
}

# Whether another item may begin; says so once when not. The first one may, however late it is, so
# that every run gets further.
may_begin() {
    [ -n "$budget" ] && [ "$SECONDS" -ge "$budget" ] && [ $finished != 0 ] || return 0
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
    local made_from
    { IFS= read -r made_from < "$work/$1/$2.row"; } 2> /dev/null && [ "$made_from" = "$3" ]
}

record() { # PHASE ITEM KEY ROW
    mkdir -p "$(dirname "$work/$1/$2")"
    printf '%s\n%s\n' "$3" "$4" > "$work/$1/$2.row.new"
    mv "$work/$1/$2.row.new" "$work/$1/$2.row"
    finished=$((finished + 1))
}

# Sets REPLY: the row of an item, if it is about the sources as they are now.
row() { # PHASE ITEM
    local lines
    case $1 in
    build) key_of "$2" ;;
    *) run_key "$2" ;;
    esac
    done_already "$1" "$2" "$REPLY" || { REPLY=; return; }
    mapfile -t lines < "$work/$1/$2.row"
    printf -v REPLY '%s\n' "${lines[@]:1}"
    REPLY=${REPLY%$'\n'}
}

# rows PHASE: the rows of all items, in their order.
rows() {
    local item
    for item in $item_list; do
        row "$1" "$item"
        [ -z "$REPLY" ] || printf '%s\n' "$REPLY"
    done
}

# The last line that says something, without tabs.
last_words() {
    grep -v '^[[:space:]]*$' "$1" 2> /dev/null | tail -n 1 | tr '\t' ' ' | cut -c1-200
}

# ---- models and programs ----

# Those of the scope, the first ones first.
models() {
    local file model
    for model in $first; do
        [ ! -f "models/$model.ein" ] || ! selected "$model" || echo "$model"
    done
    case $scope in first | typed) return 0 ;; esac
    for file in models/*.ein models/cases/*.ein; do
        model=${file#models/}
        model=${model%.ein}
        case " $first " in *" $model "*) continue ;; esac
        ! selected "$model" || echo "$model"
    done
}

# The arithmetic of programs beside FP32, as suffixes of their names. Devices before Ampere have no
# TF32.
maths() {
    case $scope in first | fp32) return 0 ;; esac
    case $(gpu_field sm) in
    [1-7].*) echo _fp16 ;;
    *) echo _tf32 _fp16 ;;
    esac
}

# Programs of the scope in order: those whose test program exists.
items() {
    local math model
    if [ $scope = typed ]; then
        for math in $(maths); do items_of "$(models)" $math; done
        return
    fi
    if [ $scope != all ]; then
        for model in $(models); do
            items_of "$model" '' _base _costs _base_costs
        done
        return
    fi
    items_of "$(models)" _small '' _base _costs _n1 _n16 _n1_costs _n16_costs _n1_base _n16_base \
        _base_costs _n1_base_costs _n16_base_costs
    for math in $(maths); do
        items_of "$(models)" $math _n1$math _n16$math ${math}_costs _n1${math}_costs \
            _n16${math}_costs ${math}_base _n1${math}_base _n16${math}_base ${math}_base_costs \
            _n1${math}_base_costs _n16${math}_base_costs
    done
}

items_of() { # MODELS SUFFIX...
    local model models=$1 suffix
    shift
    for suffix in "$@"; do
        for model in $models; do
            [ ! -f "$kit/$model${suffix}_test.cu" ] || echo "$model$suffix"
        done
    done
}

# Sets REPLY: the program's own file, the one in out/ where there is one.
source_of() {
    REPLY=$kit/$1.cu
    [ $stand_in = yes ] || [ ! -f "out/$1.cu" ] || REPLY=out/$1.cu
}

# Sets REPLY: the packed weights of a program; one file serves every plan and batch size.
weights_of() {
    local item=$1
    while [ ! -f "models/${item%_small}.ein" ]; do      # a model's own name may end like a suffix
        case $item in
        *_n1 | *_n16 | *_base | *_costs | *_tf32 | *_fp16) item=${item%_*} ;;
        *) break ;;
        esac
    done
    REPLY=$work/weights/$item
}

# The sources of all programs, read once; again when some were written.
declare -A digest=()
take_digests() {
    local sum file
    digest=()
    while read -r sum file; do
        digest[$file]=${sum:0:16}
    done < <(find "$kit" out \( -name '*.cu' -o -name '*.json' \) -exec sha256sum {} + 2> /dev/null)
}

# Sets REPLY: what a program is made of.
key_of() {
    source_of "$1"
    REPLY="${digest[$REPLY]:-none} ${digest[$kit/${1}_test.cu]:-none} ${flags[*]}"
}

# Sets REPLY: a program, its weights and the GPU that it runs on.
run_key() {
    local key weights=
    key_of "$1"
    key=$REPLY
    weights_of "$1"
    { read -r weights < "$REPLY.row"; } 2> /dev/null
    REPLY="$key $weights $title"
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
    [ $scope = all ] || return 0
    batch=$(sed -n -E 's/^dim (.*, )?N = ([0-9]+)(,.*)?$/\2/p' "models/$1.ein" | head -n 1)
    for n in 1 16; do
        if [ -n "$batch" ] && [ "$batch" != $n ]; then echo $n; fi
    done
}

emit_model() { # MODEL
    local model=$1 n math
    emit_one "$model" "$model"
    [ $stand_in = yes ] || ! grep -q '^small ' "models/$model.ein" ||
        emit_one "${model}_small" "$model" --small
    emit_one "${model}_base" "$model" --baseline
    if cmp -s "$kit/${model}_base.cu" "$kit/$model.cu"; then
        rm "$kit/${model}_base.cu" "$kit/${model}_base_test.cu"
    fi
    if [ $stand_in = no ]; then
        for n in $(batches "$model"); do
            emit_one "${model}_n$n" "$model" --dim N="$n" --prefix "${model##*/}_n$n"
        done
        for math in tf32 fp16; do
            emit_one "${model}_$math" "$model" --math $math --prefix "${model##*/}_$math"
            for n in $(batches "$model"); do
                emit_one "${model}_n${n}_$math" "$model" --math $math --dim N="$n" \
                    --prefix "${model##*/}_n${n}_$math"
            done
        done
    fi
    contest_emit "$model"
}

emit_all() {
    local model
    if [ -z "$einnet" ]; then
        echo 'emit: the generator does not run here; the files in build/gpu/ are taken as they are'
        return
    fi
    rm -rf "$work/emit"
    for model in $(models); do in_parallel emit_model "$model"; done
    wait
    echo "emit: $(items | wc -l) programs in $kit/"
}

# ---- build ----

build_one() { # ITEM KEY
    local item=$1 log=$work/build/$1.log start=$SECONDS status=ok said= code seconds
    mkdir -p "$(dirname "$log")"
    rm -f "$work/build/$item"
    source_of "$item"
    seconds=$(limit $compile_limit)
    timeout -k 10 "$seconds" "$nvcc" "${flags[@]}" "${report[@]}" "${include[@]}" \
        "$kit/${item}_test.cu" "$REPLY" -o "$work/build/$item" "${libraries[@]}" > "$log" 2>&1
    code=$?
    if cut_off $code $compile_limit; then
        touch "$work/cut"
        return
    fi
    if [ $code != 0 ] || [ ! -x "$work/build/$item" ]; then
        status=failed
        said=$(grep -m 1 -i error "$log" | tr '\t' ' ' | cut -c1-200)
        [ -n "$said" ] || said="$(status_of $code): $(last_words "$log")"
        rm -f "$work/build/$item"
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

# Whether a program is there, of the sources as they are now.
is_built() { # ITEM
    key_of "$1"
    [ -x "$work/build/$1" ] && done_already build "$1" "$REPLY"
}

# What did not build is not tried again.
needs_build() { # ITEM
    row build "$1"
    case $REPLY in
    '') return 0 ;;
    *$'\tfailed\t'*) return 1 ;;
    esac
    [ ! -x "$work/build/$1" ]
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
        complain pack "$model: $(head -n 1 "$file.log")"
    fi
}

# Runs a command beside at most $jobs - 1 others.
in_parallel() {
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    "$@" &
}

build_all() {
    local item key file model item_list
    local -A packed=()
    item_list=$(items)
    [ -n "$einnet" ] || complain build 'without the generator there are no weights'
    for item in $item_list; do
        may_begin || break
        if needs_build "$item"; then
            key_of "$item"
            in_parallel build_one "$item" "$REPLY"
            finished=$((finished + 1))
        fi
        weights_of "$item"
        file=$REPLY
        model=${file#"$work/weights/"}
        key=$(sha256sum < "models/${model%_small}.ein" | cut -c1-16)
        if [ -n "$einnet" ] && [ -z "${packed[$file]:-}" ] &&
            { [ ! -s "$file.weights" ] || [ "$(cat "$file.row" 2> /dev/null)" != "$key" ]; }; then
            packed[$file]=yes
            in_parallel pack_one "$file" "$key"
        fi
    done
    wait
    [ ! -f "$work/cut" ] || stopped=yes
    echo "build: $(rows build | grep -c -P '^\S+\t(ok|warnings)\t') of" \
        "$(wc -w <<< "$item_list") built"
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

# ready PHASE ITEM SECONDS: built, and not done. Sets $key, $start and $seconds, the item's limit.
ready() {
    is_built "$2" || return 1
    run_key "$2"
    key=$REPLY
    ! done_already "$1" "$2" "$key" || return 1
    mkdir -p "$(dirname "$work/$1/$2")"
    seconds=$(limit "$3")
    start=$SECONDS
}

# cut_off CODE SECONDS: the budget, not the item's own limit, ended it: it will be tried again. What
# had a whole run to itself is not: it would never end.
cut_off() {
    [ "$1" = 124 ] || [ "$1" = 137 ] || return 1
    [ "$seconds" -lt "$2" ] && [ $finished != 0 ] || return 1
    stopped=yes
}

# The row of a check, from what its program printed.
record_check() { # ITEM CODE LOG
    local status error
    status=$(status_of "$2")
    error=$(sed -n -E 's/^check .*: error ([^ ,]+), .*/\1/p' "$3" | sort -g | tail -n 1)
    record check "$1" "$key" "$1"$'\t'"$status"$'\t'"${error:--}"$'\t'$((SECONDS - \
        start))$'\t'"$(last_words "$3")"
    echo "check $1: $status, error ${error:--}"
}

check_all() {
    local item log code
    for item in $(items); do
        ready check "$item" $check_limit || continue
        may_begin || return 0
        log=$work/check/$item.log
        weights_of "$item"
        timeout -k 10 "$seconds" "$work/build/$item" "$REPLY.weights" --check \
            > "$log" 2>&1 < /dev/null
        code=$?
        ! cut_off $code $check_limit || return 0
        record_check "$item" $code "$log"
    done
}

# The figures carry the outcome of the check in the same process.
bench_all() {
    local item log code status before
    for item in $(items); do
        # The peers' phase times other precisions, and batch sizes without derivation.
        case $item in *_small | *_tf32* | *_fp16* | *_n1_base | *_n16_base) continue ;; esac
        ready bench "$item" $bench_limit || continue
        may_begin || return 0
        mkdir -p "$(dirname "$work/check/$item")"
        log=$work/bench/$item.log
        before=$(clocks)
        weights_of "$item"
        timeout -k 10 "$seconds" "$work/build/$item" "$REPLY.weights" --check --bench \
            > "$log.json" 2> "$log" < /dev/null
        code=$?
        ! cut_off $code $bench_limit || return 0
        status=$(status_of $code)
        figure "$(tr '\n' ' ' < "$log.json")" median_us
        if ! is_time "$REPLY"; then
            [ $code != 0 ] || status='no time'
            printf '{"said": "%s"}\n' "$(last_words "$log" | tr -d '\042\134')" > "$log.json"
        fi
        record bench "$item" "$key" \
            "$(tr '\n' ' ' < "$log.json" |
                sed "s|^{|{\"program\": \"$item\", \"status\": \"$status\", |; s/ *\$//")"
        record clocks "$item" "$key" \
            "$item"$'\tbefore\t'"$before"$'\n'"$item"$'\tafter\t'"$(clocks)"
        echo "bench $item: $status, $REPLY us"
        cp "$log" "$work/check/$item.log"
        record_check "$item" $code "$log"
    done
}

# ---- steps ----

# What each step of a program takes beside its estimate, which the program's first lines list in
# the same order: of a whole plan in the time that a probe takes for a few calls.
step_rows() { # ITEM SOURCE LOG
    awk -v item="$1" '
        FNR == 1 { file++ }
        file == 1 && !/^\/\// { body = 1 }
        file == 1 && !body && / (est\.|measured) / && $3 ~ /^[num]s$/ {
            estimate[++n] = $2 * ($3 == "ms" ? 1000 : $3 == "us" ? 1 : 0.001)
            name[n] = $5
            call = $0
            sub(/^.* (est\.|measured) [^ ]+ +/, "", call)
            calls[n] = call
        }
        file == 2 && $1 == "step" {
            same = name[++k] == $6
            printf "%s\t%d\t%s\t%s\t%s\t%s\n", item, k, $2, same ? estimate[k] : "-", $6,
                same ? calls[k] : "-"
        }' "$2" "$3"
}

# Models have such names, too.
without_derivation() { # ITEM
    local name=${1%_costs}
    [ "$name" != "${name%_base}" ] && [ ! -f "models/$name.ein" ]
}

steps_all() {
    local item log code
    for item in $(items); do
        case $item in *_small) continue ;; esac
        ! without_derivation "$item" || continue
        ready steps "$item" $check_limit || continue
        may_begin || return 0
        log=$work/steps/$item.log
        weights_of "$item"
        timeout -k 10 "$seconds" "$work/build/$item" "$REPLY.weights" --steps \
            > "$log" 2>&1 < /dev/null
        code=$?
        ! cut_off $code $check_limit || return 0
        [ $code = 0 ] || complain steps "$item: $(status_of $code): $(last_words "$log")"
        source_of "$item"
        record steps "$item" "$key" "$(step_rows "$item" "$REPLY" "$log")"
        echo "steps $item: $(last_words "$log")"
    done
}

# ---- sanitize ----

sanitize_all() {
    local item tool log said code
    if ! command -v compute-sanitizer > /dev/null; then
        echo 'sanitize: compute-sanitizer is not on PATH'
        return
    fi
    for tool in memcheck racecheck; do
        for item in $(items | grep '_small$'); do
            ready "$tool" "$item" 120 || continue
            may_begin || return 0
            log=$work/$tool/$item.log
            weights_of "$item"
            timeout -k 10 "$seconds" compute-sanitizer --tool $tool --print-limit 20 \
                "$work/build/$item" "$REPLY.weights" --check > "$log" 2>&1 < /dev/null
            code=$?
            ! cut_off $code 120 || return 0
            said=$(grep -o -E '(ERROR|RACECHECK) SUMMARY: .*' "$log" | tail -n 1)
            if [ -z "$said" ] && [ $code != 124 ] && [ $code != 137 ]; then
                echo "sanitize: $tool does not work here: $(last_words "$log")"
                break
            fi
            [ -n "$said" ] || said=$(status_of $code)
            record $tool "$item" "$key" "$item"$'\t'"$tool"$'\t'$((SECONDS - start))$'\t'"$said"
            echo "$tool $item: $said"
        done
    done
}

# ---- run ----

# step SCOPE PHASE: a phase of the scope; what it finished is in $out then.
step() {
    local before
    wanted "$2" || return 0
    [ "$1" = "${one_scope:-$1}" ] && [ $stopped = no ] || return 0
    case $2 in
    probe | limits | steps | sanitize) [ $stand_in = no ] || return 0 ;;
    esac
    [ $gpu = yes ] || [ "$2" = build ] || return 0
    scope=$1
    before="$finished $(wc -c < "$work/complaints")"
    "${2}_all"
    scope=all
    # A probe changes what there is to be done.
    [ "$2" != probe ] && [ "$finished $(wc -c < "$work/complaints")" = "$before" ] || gather
}

einnet=$(generator)
flags=()
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
# It takes a while, and needs no GPU; nothing is measured meanwhile.
if wanted emit; then emit_all > "$work/emitted" & fi
if [ $stand_in = yes ]; then
    printf 'gpu\tnone: the judge, a CPU; these times mean nothing\n' > "$work/device.tsv"
    include=()
    libraries=()
    gpu=yes
else
    record_device
fi
title=$(gpu_field gpu)
if [ -z "$arch" ]; then
    arch=sm_90a
    [ $gpu = no ] || [ $stand_in = yes ] || arch=sm_$(gpu_field sm | tr -d .)
    [ $arch != sm_90 ] || arch=sm_90a       # warpgroups multiply in code for that alone
fi
wait
[ $gpu = no ] || [ $stand_in = yes ] || record_launches
flags=(-O3 -std=c++14 "-arch=$arch")
report=(-Xptxas -v)
[ $stand_in = no ] || { flags=(--quick); report=(); }
! wanted device || cat "$work/device.tsv"
! wanted emit || cat "$work/emitted"
take_digests
if wanted peers || wanted report; then find_peers; fi
# Building waits for it, before anything is measured.
if [ -n "$who" ] && wanted peers && wanted build; then import_peers & fi
trap 'echo "gpu.sh: ended"; gather; exit 143' INT TERM
gather
for one in $steps; do step "${one%:*}" "${one#*:}"; done
only=
[ $gpu = no ] || ! wanted report || { gather; figures_all; report_all; }
gather
! wanted summary || cat "$out/summary.md"
echo "results in $out"
if [ $gpu = no ]; then
    echo 'gpu.sh: no GPU here: nothing was checked or timed' >&2
    [ ! -s "$work/complaints" ] || exit 1
    exit 77
fi
[ $stopped$unfinished = nono ] || exit 75
! failed || exit 1
