#!/bin/sh
# bench/gpu.sh on a machine whose compiler, GPU and peers are played by stand_in.sh: every phase
# well, then each with a fault. Whatever fails, the rest is done, failures.txt says what it was,
# finished results stay, and a run that is to be repeated ends with 75 and gets further.
. "$(dirname "$0")/../frame/lib.sh"

check 'the program builds' make -s all
PLAYER=$top/tests/peers/stand_in.sh
PLAYED=$work/played
REAL_PYTHON=$(command -v "${PYTHON:-.venv/bin/python}")
case $REAL_PYTHON in /*) ;; *) REAL_PYTHON=$top/$REAL_PYTHON ;; esac
FAULTS=
PYTHON=
export PLAYER PLAYED REAL_PYTHON FAULTS
unset PYTHON NVCC
mkdir "$work/bin" "$work/tree" "$work/tree/build"
for name in nvcc nvidia-smi compute-sanitizer python3; do
    ln -s "$PLAYER" "$work/bin/$name"
done
for name in bench out templates; do ln -s "$top/$name" "$work/tree/$name"; done
mkdir -p "$work/tree/models/cases"
cat > "$work/tree/models/cases/tiny.ein" << 'END'
ein 1
model tiny
dim M = 64, K = 64
small M = 8
input x: f32[M,K]
weight k: f32[K,K] = randn(seed=1, std=0.1)
output y
y = MatMul(x, k)
END
cp "$work/tree/models/cases/tiny.ein" "$work/tree/models/other.ein"
# What hangs ends its own limit (hang in stand_in.sh), and is killed soon then.
printf '#!/bin/sh\n[ "$1" != -k ] || shift 2\nexec %s -k 0.2 "$@"\n' \
    "$(command -v timeout)" > "$work/bin/timeout"
chmod +x "$work/bin/timeout"
PROBE_PATIENCE=6
export PROBE_PATIENCE
ln -s "$top/build/einnet" "$work/tree/build/einnet"
OUT=$work/out
PATH=$work/bin:$PATH
export OUT PATH

long=$(PATH=${PATH#*:} command -v timeout)
# gpu CODE NAME OPTION...: what it prints goes to $work/said.
gpu() {
    want=$1
    name=$2
    shift 2
    : > "$PLAYED"
    $long -k 5 1200 bash "$work/tree/bench/gpu.sh" --only "${model:-cases/tiny}" --jobs 2 "$@" \
        > "$work/said" 2>&1
    got=$?
    [ $got = "$want" ] && pass || {
        echo "exit code $got instead of $want" >> "$work/said"
        tail -n 15 "$work/said" > "$work/end"
        fail "$name" "$work/end"
    }
}

# fault FAULTS CODE PHASES...: a run of these phases from the start with faults.
fault() {
    rm -rf "$work/tree/build/gpu-run" "$OUT"
    FAULTS=$1
    what=$1
    want=$2
    shift 2
    gpu "$want" "$what" $(printf ' --phase %s' "$@")
    FAULTS=
}
whole='device limits probe build check bench steps templates peers sanitize report summary'

# has FILE PATTERN: the results have a line like that.
has() {
    if grep -s -q -P -e "$2" "$OUT/$1"; then pass; else fail "$what: $1: $2" "$OUT/$1"; fi
}

hasnt() {
    if grep -s -q -P -e "$2" "$OUT/$1"; then fail "$what: $1: not $2" "$OUT/$1"; else pass; fi
}

says() {
    if grep -q -P -e "$1" "$work/said"; then pass; else fail "$what: says $1" "$work/said"; fi
}

played() { # TIMES PATTERN
    n=$(grep -c -P -e "$2" "$PLAYED")
    [ "$n" = "$1" ] && pass || fail "$what: $n runs of $2, not $1" "$PLAYED"
}

what='all is well'
gpu 0 "$what"
for file in device.tsv h200.tsv build.tsv check.tsv bench.jsonl steps.tsv clocks.tsv \
    figures.tsv limits.tsv sanitize.tsv peers.tsv peers_clocks.tsv summary.md report/h200.md \
    report/h200.figures.md; do
    [ -s "$OUT/$file" ] && pass || fail "there is $file"
done
[ ! -s "$OUT/failures.txt" ] && pass || fail 'nothing failed' "$OUT/failures.txt"
has device.tsv '^node_ns\t900$'
has h200.tsv '^h200\tgemm f32 [^\t]+\t\d+\t3\teinnet'
has bench.jsonl '"program": "cases/tiny_costs", "status": "ok"'
has check.tsv '^cases/tiny_fp16\tok\t1e-07\t'
has peers.tsv '^cases/tiny\t1\tfp16\teager\t'
has peers_times.tsv '^cases/tiny_n1_fp16\teager\t1.0\t2.0\t'
has sanitize.tsv '^cases/tiny_small\tracecheck\t'
has limits.tsv '^sgemm_tflops'
has steps.tsv '^cases/tiny\t1\t2.50\t[0-9.]+\ty\t\S'
has steps.tsv '^cases/tiny\t2\t0.50\t-\tother\t-$'
hasnt build.tsv 'failed'
sed -n '/^## fp32/,/^## tf32/p' "$OUT/summary.md" | grep -E '_(tf32|fp16)' > "$found"
empty 'precisions are apart'
first=$(grep -n '^program .*/build/cases/tiny .*--bench' "$PLAYED" | cut -d: -f1)
[ "$first" -lt "$(grep -n -m 1 '^probe' "$PLAYED" | cut -d: -f1)" ] && pass ||
    fail 'figures come before costs' "$PLAYED"

# Whether programs are right, in every arithmetic, is known before what they may cost.
what='right first'
sed 's/\<M\>/N/g; s/N = 64/N = 96/' "$work/tree/models/other.ein" > "$work/tree/models/dcgan.ein"
model=dcgan
gpu 0 "$what" --phase emit --phase build --phase bench --phase check --phase probe
model=
costs=$(grep -n -m 1 '^probe' "$PLAYED" | cut -d: -f1)
for program in dcgan dcgan_tf32 dcgan_fp16; do
    at=$(grep -n -m 1 "^program .*/$program .*--check" "$PLAYED" | cut -d: -f1)
    [ "${at:-99}" -lt "${costs:-0}" ] && pass || fail "$what: $program" "$PLAYED"
done
rm "$work/tree/models/dcgan.ein"

# New costs may make other plans, and those ask for other costs.
what='until nothing is left'
for turn in 1 2 3 4; do
    gpu 0 "$what" --phase probe --phase build --phase bench --phase check --phase peers
    grep -q -E '^(program|probe)' "$PLAYED" || break
done
played 0 '^(program|probe|limits|launch) '

what='another folder for results, an executable that was lost'
cp "$OUT/bench.jsonl" "$work/bench.jsonl"
rm -rf "$OUT"
rm "$work/tree/build/gpu-run/build/cases/tiny"
gpu 0 "$what" --phase build
played 0 '^(program|probe|limits|launch) '
has h200.tsv '^h200\t(conv|gemm|kernel) '
check "$what: all is there" cmp "$work/bench.jsonl" "$OUT/bench.jsonl"
[ -x "$work/tree/build/gpu-run/build/cases/tiny" ] && pass || fail "$what: built again"

what='other sources'
echo '// changed' >> "$work/tree/build/gpu/cases/tiny_tf32.cu"
gpu 0 "$what" --phase check
played 0 '/tiny_tf32 '
hasnt check.tsv '^cases/tiny_tf32\t'
has check.tsv '^cases/tiny\t'
gpu 0 "$what, built" --phase build --phase check
played 1 '/tiny_tf32 '
has check.tsv '^cases/tiny_tf32\t'

what='convolutions of the library'
gpu 0 "$what: none" --phase build --phase peers
played 0 '^contest .* yes - '
sed -i 's/^#include <cuda_runtime.h>/&\n#include <cudnn.h>/' \
    "$work"/tree/build/gpu/cases/tiny_fp16*.cu
gpu 0 "$what" --phase build --phase peers
played 1 '^contest cases/tiny_n1_fp16 .* yes - '

what='another GPU'
GPU='NVIDIA H100'
export GPU
gpu 0 "$what" --phase summary
hasnt bench.jsonl .
hasnt peers.tsv '\tok\t'
hasnt figures.tsv '\tok\t'
hasnt limits.tsv '^copy'
unset GPU

# ---- faults

SM=7.0      # FP32 and FP16 alone
export SM
fault device-none 77 device build
fault device-code 1 device build bench
has failures.txt '^device: failed: .*exit code 5, something broke'
fault nvcc-device 1 device build
has failures.txt '^device: failed: .*does not build: .*no such thing'

# Every phase fails in the same way.
for kind in code hang; do
    faulty="launch-$kind limits-$kind probe-$kind bench-$kind steps-code peers-$kind"
    fault "$faulty smi sanitizer" 1 $whole
    what=$kind
    has failures.txt '^device: failed: bench/launch.cu'
    has failures.txt '^limits: failed: '
    has limits.tsv '^copy_gbps'
    has limits.tsv '^# not whole: '
    has h200.tsv '^h200\t[^\t]+\t1000001\t'
    has failures.txt '^probe: failed: .*, part 1: (exit code|time limit)'
    has failures.txt '^==== bench cases/tiny$'
    has failures.txt '^steps: failed: cases/tiny: exit code 5'
    hasnt bench.jsonl '"status": "ok"'
    has bench.jsonl '"program": "cases/tiny", "status": "(exit code|time limit)'
    has check.tsv '^cases/tiny_fp16\tok\t'
    has figures.tsv '^form/tiny/0\t(exit|time)'
    has failures.txt '^peers: failed: cases/tiny_n1_fp32: '
    hasnt peers.tsv '\tok\t'
    has summary.md '^\| cases/tiny \| (exit|time)'
    says 'memcheck does not work here: Device not supported'
    [ $kind = code ] && continue
    has h200.tsv '^h200\t[^\t]+\t1000003\t'     # the rest is measured
done
fault 'probe-lost bench-nan nvcc-limits peers-cut' 1 probe limits build bench templates peers
has h200.tsv '^h200\t[^\t]+\t1000003\t'
has bench.jsonl '"program": "cases/tiny", "status": "no time"'
has figures.tsv '^form/tiny/0\tno time\t-\t'
has failures.txt '^limits: failed: .*does not build'
has failures.txt '^peers: failed: .*rows that are none'
hasnt peers.tsv '\tok\t'
fault 'probe-nan bench-empty torch' 1 probe build bench peers report
hasnt h200.tsv '\tnan\t'
has failures.txt '^probe: failed: no row of a table: .* nan '
has bench.jsonl '"program": "cases/tiny", "status": "no time"'
has failures.txt 'has no torch'
says 'nothing was compared'
fault 'probe-cut program-differs peers-one' 1 probe build bench peers report
hasnt h200.tsv '\t12$'
hasnt failures.txt '^probe'                         # measured in another round
has bench.jsonl '"status": "differs"'
has check.tsv '\tdiffers\t0.5\t'
has peers.tsv '\tcompile\tv\tfailed\t.*no compiler$'
has report/h200.md 'no compiler'
fault probe-time 75 probe
has h200.tsv '^h200\t[^\t]+\t1000001\t'
fault 'nvcc-program nvcc-probe' 1 probe build bench
has failures.txt '^probe: failed: .*no program: .*no such thing'
has build.tsv '^cases/tiny\tfailed\t.*no such thing'
has failures.txt '^==== build cases/tiny$'
fault 'nvcc-program-silent probe-crash' 1 probe build bench
has h200.tsv '^h200\t[^\t]+\t1000003\t'
has build.tsv '^cases/tiny\tfailed\t'
fault nvcc-program-warns 0 build bench
has build.tsv '^cases/tiny\twarnings\t.*odd'
has bench.jsonl '"status": "ok"'

# Rows that were measured, but are no times.
fault '' 0 build peers
sed -i 's/\t20\t/\tnan\t/' "$work"/tree/build/gpu-run/peers/cases/*.row
gpu 1 'a report of rows that are none' --phase report --phase summary
has failures.txt '^report: failed: '
has summary.md '^GPU: NVIDIA H200'

what='a model that cannot be read'
printf 'ein 1\nmodel wrong\noutput y\n' > "$work/tree/models/wrong.ein"
model=wrong
gpu 1 "$what" --only cases/tiny --phase emit --phase build --phase bench
has failures.txt '^wrong: not emitted: '
has bench.jsonl '"program": "cases/tiny", "status": "ok"'
rm "$work/tree/models/wrong.ein"
model=

# ---- time

# Each run finishes something, until all is done.
fault '' 0 build
what='a budget'
FAULTS=slow
turns=0
before=-1
got=75
while [ $got = 75 ] && [ $turns -lt 50 ]; do
    $long 1200 bash "$work/tree/bench/gpu.sh" --only cases/tiny --budget 3 --phase bench \
        --phase check > "$work/said" 2>&1
    got=$?
    turns=$((turns + 1))
    now=$(cat "$OUT/check.tsv" "$OUT/bench.jsonl" | wc -l)
    [ $got = 75 ] && [ "$now" -le "$before" ] && fail "$what: run $turns finished nothing"
    before=$now
done
[ $got = 0 ] && [ $turns -gt 1 ] && pass || fail "$what: exit code $got after $turns runs"
check "$what: all is checked" [ "$(grep -c -P '\tok\t' "$OUT/check.tsv")" = \
    "$(wc -l < "$OUT/build.tsv")" ]

# A compiler that the budget stops is no reason to give the program up.
what='a build that is cut off'
rm -rf "$work/tree/build/gpu-run" "$OUT"
FAULTS=nvcc-typed-hang
gpu 75 "$what" --phase build --budget 100
has build.tsv '^cases/tiny\tok\t'
hasnt build.tsv '^cases/tiny_fp16\t'
FAULTS=
gpu 0 "$what, again" --phase build
has build.tsv '^cases/tiny_fp16\tok\t'

# What needs more than a whole run is no reason to try it for ever.
what='more than the budget'
rm -rf "$work/tree/build/gpu-run" "$OUT"
gpu 0 'it is built' --phase build
FAULTS=bench-hang
gpu 75 "$what" --budget 1 --phase bench
has bench.jsonl '"program": "cases/tiny", "status": "time limit"'
FAULTS=

what='a contest that is cut off'
fault '' 0 build
FAULTS=peers-time
gpu 75 "$what" --phase bench --phase peers --budget 100
has peers.tsv '^cases/tiny\t1\tfp32\teager\t.*\tok\t'
FAULTS=
gpu 0 "$what, again" --phase peers
says '^peers cases/tiny_n1_fp32: 4 measurements'

what='killed'
rm -rf "$work/tree/build/gpu-run" "$OUT"
FAULTS='check-hang endless'
setsid bash "$work/tree/bench/gpu.sh" --only cases/tiny --phase build --phase bench \
    --phase check > "$work/said" 2>&1 &
tries=0
until grep -s -q '"program": "cases/tiny"' "$OUT/bench.jsonl" || [ $tries = 3000 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
kill -s KILL -- -$!
wait
has bench.jsonl '"program": "cases/tiny", "status": "ok"'
finish
