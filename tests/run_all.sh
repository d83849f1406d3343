#!/usr/bin/env bash
# Runs every part of the tests, one on each processor, with one line for each when it ends; the last
# line sums up. A part is a program that prints its own "N passed, N failed" last. `run_all.sh lint`
# runs the parts that look at sources alone; further words select parts by name. `--long`, first:
# with what is more of the same (other orders of threads, more GPUs, more random models) and the
# faults that are planted to see the checks fail, in twice the time; parts read it as LONG=1.
set -u
cd "$(dirname "$0")/.."
python=.venv/bin/python
long=
[ "${1:-}" != --long ] || {
    long=1
    shift
}
export LONG=$long
export PYTHONDONTWRITEBYTECODE=1
# Two at least, of which one mostly waits for a disk or a compiler's start; a part may take 2 GB.
lanes=$(awk -v lanes="$(nproc)" '
    /^MemAvailable/ && $2 / 2097152 < lanes { lanes = int($2 / 2097152) }
    END { print (lanes < 2 ? 2 : lanes > 16 ? 16 : lanes) }' /proc/meminfo)

# some 0|1 WORD...: every other word, from the first or the second one on; all in a long run.
some() {
    local skip=$1
    shift
    [ -z "$long" ] || skip=all
    for word in "$@"; do
        [ "$skip" = 1 ] || printf '%s ' "$word"
        [ "$skip" = all ] || skip=$((1 - skip))
    done
}

# Models whose small sizes are light enough for the race mode and the sanitizers: of the unseen ones
# a short run has each once, in one of these modes, in TF32 or in FP16, and the cases in one of the
# two modes, a long one all in all (templates have cases of their own under them); the other ones;
# those that a CPU runs at full size; those whose forms are exact in integers.
light='models/infogan.ein models/fsrcnn.ein models/longformer_short.ein'
sanitized="$light $(some 0 models/cases/*.ein)"
raced="$light $(some 1 models/cases/*.ein)"
light="$light $(echo models/cases/*.ein)"
tensors=
halved=
number=0
for model in tests/unseen/*.ein; do
    case $model in */tensor_tiles.ein) continue ;; esac
    light="$light $model"
    number=$((number + 1))
    case $long$((number % 4)) in 0 | 1?) sanitized="$sanitized $model" ;; esac
    case $long$((number % 4)) in 1 | 1?) raced="$raced $model" ;; esac
    case $long$((number % 4)) in 2 | 1?) tensors="$tensors $model" ;; esac
    case $long$((number % 4)) in 3 | 1?) halved="$halved $model" ;; esac
done
heavy=tests/unseen/tensor_tiles.ein
for model in models/*.ein; do
    case " $light " in *" $model "*) ;; *) heavy="$heavy $model" ;; esac
done
full='models/infogan.ein models/dcgan.ein models/fsrcnn.ein models/srcnn.ein models/resnet18.ein'
full="$full models/gcn.ein models/csrnet_backend.ein models/csrnet.ein models/longformer_short.ein"
full=$(some 0 $full)
# Those that are run without derivation, in TF32 and in FP16; of the others other parts have some.
untouched=$(some 0 models/*.ein models/cases/*.ein)
rounded="$(some 1 models/*.ein models/cases/*.ein) $tensors"
halves="models/*.ein $(some 0 models/cases/*.ein) $halved tests/unseen/tensor_tiles.ein"
exact='models/dcgan.ein models/srcnn.ein models/cases/*.ein'

# Models with contractions in forms that no library has.
own='tests/unseen/conv*.ein tests/unseen/deconv_odd.ein tests/unseen/matmul_ranks.ein'
own="$own tests/unseen/attention.ein tests/unseen/eq_phases.ein tests/unseen/gemm_forms.ein"
own="$own tests/unseen/preactivation.ein"
own="$own tests/unseen/tail.ein tests/unseen/norm_products.ein tests/unseen/norm_means.ein"
own="$own tests/unseen/norm_flat.ein tests/unseen/rotary_forms.ein tests/unseen/weight_outputs.ein"
own_too="models/cases/*.ein $own"
own_raced=$(some 0 $own_too)
tensor='tests/unseen/tensor_tiles.ein tests/unseen/tail.ein tests/unseen/preactivation.ein'
tensor="$tensor tests/unseen/conv_groups.ein models/dcgan.ein tests/unseen/norm_products.ein"
tensor="$tensor tests/unseen/first_convolutions.ein"
tensor="$tensor tests/unseen/norm_means.ein tests/unseen/norm_flat.ein"
tensor="$tensor tests/unseen/rotary_forms.ein tests/unseen/two_products.ein"
tensor_tf32=$(some 0 $tensor)
tensor_fp16=$(some 1 $tensor)
# What is run as nvcc translates it: tensor cores, attention, early launches, stitched kernels, long
# sums shared by blocks, gathers; and what has forms of its own without tensor cores.
ptx='tests/unseen/tensor_tiles.ein tests/unseen/attention.ein tests/unseen/attention_causal.ein'
ptx="$ptx tests/unseen/attention_sliding.ein tests/unseen/attention_shared.ein"
ptx="$ptx tests/unseen/norm_products.ein tests/unseen/norm_means.ein tests/unseen/tail.ein"
ptx="$ptx tests/unseen/preactivation.ein tests/unseen/conv_groups.ein tests/unseen/stitched.ein"
ptx="$ptx tests/unseen/first_convolutions.ein tests/unseen/gathered_tiles.ein"
ptx="$ptx tests/unseen/siblings.ein tests/unseen/clusters.ein tests/unseen/two_products.ein"
ptx="$ptx models/resnet18.ein models/longformer_short.ein tests/unseen/rotary_forms.ein"
ptx="$ptx tests/unseen/typed_products.ein tests/unseen/typed_attention.ein"
ptx32="$ptx tests/unseen/eq_reduce.ein tests/unseen/eq_gather.ein tests/unseen/reduces.ein"
ptx32="$ptx32 tests/unseen/reduces_whole.ein tests/unseen/norms.ein tests/unseen/pools.ein"
ptx32="$ptx32 tests/unseen/half_bf16.ein tests/unseen/positions.ein tests/unseen/places.ein"
ptx_fp32=$(some 1 $ptx32)
ptx_tf32=$(some 0 $ptx)
ptx_fp16=$(some 1 $ptx)
ptx75="tests/unseen/tensor_tiles.ein tests/unseen/attention_causal.ein tests/unseen/tail.ein"
ptx75="$ptx75 tests/unseen/norm_copied.ein"
# Products large enough for a library to be the best, with all that a call may do behind them.
calls='tests/unseen/product_epilogues.ein'
blas='models/cases/*.ein tests/unseen/conv*.ein'

# name, what it needs beside the setup, command; quick parts that show common mistakes first, then
# the longest, so that none runs alone at the end. `own`: it needs nvcc, and nothing of ours but its
# sources, so it runs while the program is built. `wait`: it needs nothing, and is one that mostly
# waits: it runs beside the others.
parts=(
    'kernels  own  sh tests/kernels/run'
    'sources  -    sh tests/frame/test_sources.sh'
    'readme   -    sh tests/frame/test_readme.sh'
    'lang     -    sh tests/lang/run.sh'
    'issue    -    python3 tests/frame/test_issue.py'
    'cli      -    sh tests/cli/run.sh'
    'golden   -    sh tests/frame/test_golden.sh'
    'ptx      cuda sh tests/frame/test_ptx.sh'
    "attend   cuda $python tests/check_attention.py"
    "weights  cuda $python tests/check_weights.py"
    "run-san  cuda $python tests/run_models.py --mode san --once $sanitized"
    'derive   -    sh tests/frame/test_derive.sh'
    'build    -    sh tests/frame/test_build.sh'
    "run-fp16 cuda $python tests/run_models.py --new --math fp16 $halves"
    "run      cuda $python tests/run_models.py $heavy"
    "run-race cuda $python tests/run_models.py --mode race --once $raced"
    "fuzz     cuda $python tests/fuzz_models.py --count ${long:+1}40"
    "pieces   cuda $python tests/fuzz_pieces.py --seed 21 --count 16"
    'modes    -    python3 tests/check_modes.py'
    'math     -    sh tests/frame/test_math.sh'
    'typed    cuda python3 tests/check_typed.py'
    "rounded  cuda $python tests/check_rounded.py"
    "run-full cuda $python tests/run_models.py --full $full"
    'nvcc     cuda sh tests/frame/test_nvcc.sh'
    "ptx-fp32 cuda $python tests/run_models.py --ptx 90 --once --libs none $ptx_fp32"
    "ptx-tf32 cuda $python tests/run_models.py --ptx 90 --once --libs none --math tf32 $ptx_tf32"
    "ptx-fp16 cuda $python tests/run_models.py --ptx 90 --once --libs none --math fp16 $ptx_fp16"
    "ptx-sm75 cuda $python tests/run_models.py --ptx 75 --once --libs none --math fp16 $ptx75"
    'units    -    sh tests/frame/test_units.sh'
    'gpu      cuda sh tests/peers/test_gpu.sh'
    'judge    cuda sh tests/judge/run_judge_tests'
    'early    cuda sh tests/frame/test_early.sh'
    'probe    -    sh tests/frame/test_probe.sh'
    'header   -    sh tests/frame/test_header.sh'
    "race-lib cuda $python tests/run_models.py --libs none --mode race $own_raced"
    "run-libs cuda $python tests/run_models.py --new --libs none models/*.ein $own_too"
    "run-base cuda $python tests/run_models.py --new --baseline $untouched"
    "run-tf32 cuda $python tests/run_models.py --math tf32 $rounded"
    "own-fp16 cuda $python tests/run_models.py --math fp16 --libs none $tensor_fp16"
    "own-tf32 cuda $python tests/run_models.py --math tf32 --libs none $tensor_tf32"
    "nhwc     cuda $python tests/check_nhwc.py"
    "grouped  cuda $python tests/check_grouped.py"
    "libs     cuda $python tests/check_libs.py"
    'faults   cuda tests/run_faults.sh tests/unseen/attention.ein models/cases/basic_block.ein'
    "faults16 cuda EMIT='--math fp16 --libs none' tests/run_faults.sh tests/unseen/norm_copied.ein"
    'program  cuda sh tests/frame/test_program.sh'
    'order    -    sh tests/frame/test_search.sh'
    'explain  -    python3 tests/check_explain.py'
    'basis    -    python3 tests/check_basis.py'
    'layout   -    python3 tests/check_layout.py'
    'spelled  -    python3 tests/check_statistics.py'
    'merge    -    python3 tests/check_merge.py'
    'norms    -    python3 tests/check_norms.py'
    'places   -    python3 tests/check_places.py'
    'top      -    python3 tests/check_top.py'
    "integers cuda $python tests/check_integers.py"
    'recurs   -    python3 tests/check_recurrent.py'
    'variants -    python3 tests/check_variants.py'
    'chain    cuda python3 tests/check_chain.py'
    'finish   cuda python3 tests/check_finish.py'
    'fronts   cuda python3 tests/check_fronts.py'
    'last     cuda python3 tests/check_last.py'
    'names    -    python3 tests/check_names.py'
    'used     -    python3 tests/check_used.py'
    'search   -    python3 tests/check_search.py'
    'candid   -    python3 tests/check_candidates.py'
    'proofs   -    sh tests/frame/test_proofs.sh'
    'special  -    sh tests/frame/test_special.sh'
    'sizes    -    python3 tests/check_sizes.py'
    "oracle   -    $python tests/oracle/test_oracle.py"
    "models   -    $python tests/check_models.py"
    "import   -    $python tests/import/run.py build/einnet"
    "standard -    $python tests/import/standard.py build/einnet"
    'formats  -    sh tests/import/run_formats.sh'
    "nodes    -    $python tests/import/nodes.py build/einnet"
    "ops      -    $python tests/ops/check_ops.py"
    'costs    -    sh tests/frame/test_costs.sh'
    'rows     -    sh tests/frame/test_rows.sh'
    'engines  -    sh tests/frame/test_engines.sh'
    'fit      -    python3 tests/check_fit.py'
    'figures  -    python3 tests/check_figures.py'
    'estimate -    python3 tests/check_estimates.py'
    "peers    -    $python tests/peers/test_peers.py"
    'cuda11   -    sh tests/frame/test_cuda11.sh'
    "demo     cuda $python tests/demo/test_classifier.py"
    'access   cuda python3 tests/check_access.py'
    'profile  cuda python3 tests/check_profile.py'
    'stable   -    python3 tests/check_stable.py'
    'stitch   cuda python3 tests/check_stitch.py'
    'siblings cuda python3 tests/check_siblings.py'
    "tail     cuda $python tests/check_tail.py"
    'stored   -    python3 tests/check_stored.py'
    'added    cuda python3 tests/check_added.py'
    "run-blas cuda $python tests/run_models.py --libs cublas $blas"
    "run-lt   cuda $python tests/run_models.py --full --math fp16 $calls"
    "run-lt32 cuda $python tests/run_models.py --full --math tf32 $calls"
    "run-ints cuda $python tests/run_models.py --ints --order rev $exact"
)
[ -z "$long" ] || parts=('faulty   wait sh tests/peers/test_faults.sh' "${parts[@]}")

logs=build/test/logs
rm -rf "$logs"
mkdir -p "$logs"
echo 'building'
make -s -j "$lanes" all CFLAGS=-Werror > "$logs/make" 2>&1 &
making=$!
if command -v nvcc > /dev/null; then
    tests/judge/judgecc --library > "$logs/library" 2>&1
fi

# Runs one part; its counts go to NAME.count, and one line is printed.
run_part() {
    local name=$1 command=$2 start=$SECONDS code last count took
    timeout -k 10 5400 bash -c "$command" > "$logs/$name" 2>&1 < /dev/null
    code=$?
    last=$(tail -n 1 "$logs/$name")
    if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed(, [0-9]+ skipped)?$ ]]; then
        count="${BASH_REMATCH[1]} ${BASH_REMATCH[2]}"
        [ $code = 0 ] || [ "${BASH_REMATCH[2]}" != 0 ] || count="${BASH_REMATCH[1]} 1"
    else
        last="ended with exit code $code and no count"
        count='0 1'
    fi
    echo "$count" > "$logs/$name.count"
    # Of a part alone, as each runs in a shell of its own: seconds, those of the CPU among them.
    times > "$logs/$name.times"
    took=$(awk 'NR == 2 { gsub(/[ms]/, " "); $0 = $0; print int(60 * ($1 + $3) + $2 + $4) }' \
        "$logs/$name.times")
    took="$((SECONDS - start)) s, CPU $took s"
    # One write, so that lines of parts that end together do not mix.
    if [ "${count#* }" = 0 ]; then
        printf 'ok   %-9s %s (%s)%s\n' "$name" "$last" "$took" \
            "$(grep '^skipped' "$logs/$name" | sed 's/^/\n     /')"
    else
        printf 'FAIL %-9s %s (%s)\n%s\n' "$name" "$last" "$took" \
            "$(grep -v -E '^ok |^[0-9]+ passed, ' "$logs/$name" | head -n 60 | sed 's/^/     /')"
    fi
}

# Each part runs in a process group of its timeout, which passes the signal on.
stop() {
    for job in $(jobs -p); do
        pkill -P "$job"
    done
    exit 130
}
trap stop INT TERM
# Those that follow need what is built.
built() {
    [ -n "$making" ] || return 0
    wait "$making" || {
        cat "$logs/make"
        wait
        echo '0 passed, 1 failed'
        exit 1
    }
    making=
    printf ' ' >&9
}
# A byte for each part that may begin; one is the build's.
mkfifo "$logs/turns"
exec 9<> "$logs/turns"
printf "%$((lanes - 1))s" '' >&9
for part in "${parts[@]}"; do
    read -r name needs command <<< "$part"
    if [ $# -gt 0 ]; then
        case " ${*/lint/sources header} " in *" $name "*) ;; *) continue ;; esac
    fi
    case $needs in cuda | own)
        command -v nvcc > /dev/null || {
            printf 'skip %-9s nvcc is not on PATH\n' "$name"
            continue
        }
        ;;
    esac
    [ "$needs" = own ] || built
    if [ "$needs" = wait ]; then
        run_part "$name" "$command" &
    else
        IFS= read -r -n 1 -u 9
        { run_part "$name" "$command"; printf ' ' >&9; } &
    fi
done
built
wait

cat "$logs"/*.count /dev/null | awk '
    { passed += $1; failed += $2 }
    END { printf "%d passed, %d failed\n", passed, failed; exit failed || !passed }'
