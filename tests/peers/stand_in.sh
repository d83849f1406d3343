#!/usr/bin/env bash
# A machine with a GPU, played by a script, for tests/peers/test_faults.sh: by the name that it is
# called by it is nvcc (whose programs are this script again), nvidia-smi, compute-sanitizer or
# python3. $FAULTS holds words, each a fault of one of them; $PLAYED gets a line for each program
# that was run. Times are invented.
me=${0##*/}
faulty() {
    case " ${FAULTS:-} " in *" $1 "*) return 0 ;; esac
    return 1
}

# The limit that it runs under is over at once, so that no test depends on how fast the machine is;
# not with `endless`.
hang() {
    trap '' TERM
    faulty endless || [ "$(cat /proc/$PPID/comm)" != timeout ] || kill -s ALRM $PPID
    exec sleep 600
}

# One fault of a program: STEP-KIND.
misbehave() { # STEP
    ! faulty "$1-code" || { echo 'something broke' >&2; exit 5; }
    ! faulty "$1-crash" || kill -SEGV $$
    ! faulty "$1-hang" || hang
}

play_nvcc() {
    local out=a.out source= one kind
    [ "${1:-}" != --version ] || { echo 'Cuda compilation tools, release 13.0, V13.0.0'; exit; }
    while [ $# -gt 0 ]; do
        case $1 in
        -o) out=$2; shift ;;
        *.cu) source=$1 ;;
        esac
        shift
    done
    case $source in
    bench/device.cu) kind=device ;;
    bench/launch.cu) kind=launch ;;
    bench/limits.cu) kind=limits ;;
    */probe/*) kind=probe ;;
    */tiny_fp16.cu) kind=typed ;;
    *) kind=program ;;
    esac
    ! faulty "nvcc-$kind" || { echo "$source(1): error: no such thing" >&2; exit 2; }
    ! faulty "nvcc-$kind-warns" || echo "$source(1): warning: odd" >&2
    ! faulty "nvcc-$kind-silent" || exit 0
    ! faulty "nvcc-$kind-hang" || hang
    [ $kind != typed ] || kind=program
    if [ $kind = probe ]; then
        one='(conv|conv_data|gemm|grouped|kernel) [^"]*'
        sed -n -E "s/^ *\{\"($one)\"(, \"([0-9a-f]{8})\")?.*/\1\t\4/p" "$source" > "$out.keys"
    fi
    printf '#!/usr/bin/env bash\nname=%q\nkind=%s\n. %q\n' "$out" $kind "$PLAYER" > "$out"
    chmod +x "$out"
}

play_device() {
    [ "${1:-}" != --hold ] || exit 0
    misbehave device
    ! faulty device-none || { printf 'gpu\tnone: none is visible\n'; exit 77; }
    printf 'gpu\t%s\nsm\t%s\nmultiprocessors\t132\n' "${GPU:-NVIDIA H200}" "${SM:-9.0}"
}

play_launch() {
    misbehave launch
    printf 'launch_ns\t2100\nnode_ns\t900\n'
}

play_limits() {
    printf 'copy_gbps\t%d\t4000\n' $((1 << 28))
    misbehave limits
    printf 'sgemm_tflops\t8192\t50\n'
}

# A row of each key that --have does not have.
play_probe() {
    local table=h200 have=/dev/null list=no deadline=999999 key text n
    while [ $# -gt 0 ]; do
        case $1 in
        --device) table=$2; shift ;;
        --have) have=$2; shift ;;
        --deadline) deadline=$2; shift ;;
        --list) list=yes ;;
        esac
        shift
    done
    while IFS=$'\t' read -r n key text; do
        if [ $list = yes ]; then
            echo "$key"
            continue
        fi
        if [ "$n" = 2 ]; then
            if faulty probe-lost; then
                echo "# $key: replay: an illegal memory access"
                echo 'probe: the device is lost: an illegal memory access' >&2
                exit 5
            fi
            ! faulty probe-time || { echo 'probe: out of time' >&2; exit 75; }
            misbehave probe
            ! faulty probe-nan || { printf '%s\t%s\tnan\t3\tv\n' "$table" "$key"; continue; }
            ! faulty probe-cut || { printf '%s\t%s\t12' "$table" "$key"; exit 0; }
        fi
        [ $SECONDS -lt "${deadline%.*}" ] || exit 75
        printf '%s\t%s\t%d\t3\teinnet 1 text %s driver 1\n' "$table" "$key" $((1000000 + n)) \
            "${text:-x}"
    done < <(missing_keys "$have" "$name.keys")
    echo "probe: all measured, 0 failed" >&2
}

# The keys of a probe that no line of HAVE is about, with their numbers.
missing_keys() { # HAVE KEYS
    awk -F '\t' -v have="$1" '
        BEGIN {
            while ((getline line < have) > 0) {
                if (sub(/^# /, "", line)) { sub(/: .*/, "", line); known[line] = 1; continue }
                split(line, field, "\t")
                known[field[2]] = 1
                sub(/ algo=.*/, "", field[2])
                known[field[2]] = 1
            }
        }
        !($1 in known) { print NR "\t" $0 }' "$2"
}

play_program() {
    local check=no bench=no
    case " $* " in *' --check '*) check=yes ;; esac
    case " $* " in *' --bench '*) bench=yes ;; esac
    [ -s "$1" ] || { echo 'weights cannot be read' >&2; exit 3; }
    case " $* " in *' --steps '*)
        misbehave steps
        printf 'step      2.50 us  99.0 %%  y\nstep      0.50 us   1.0 %%  other\n'
        echo 'steps: 2, 3.00 us together, medians of 20 plain runs'
        exit ;;
    esac
    if [ $bench = yes ]; then misbehave bench; else misbehave check; fi
    ! faulty slow || sleep 1.5
    if [ $check = yes ] && faulty program-differs; then
        echo 'check y: error 0.5, tolerance 1e-05' >&2
        exit 1
    fi
    if [ $bench = yes ]; then
        echo 'check y: error 1e-07, tolerance 1e-05' >&2
        ! faulty bench-empty || exit 0
        ! faulty bench-nan || { echo '{"median_us": nan, "kernels": 3}'; exit 0; }
        echo '{"median_us": 12.5, "p95_us": 13, "cold_median_us": 20, "kernels": 3}'
    else
        echo 'check y: error 1e-07, tolerance 1e-05'
    fi
}

# bench/peers/rounds.py: one round of everybody in each contest of the list.
play_rounds() {
    local list= line id model batch precision out columns=18
    while [ $# -gt 0 ]; do
        case $1 in --list) list=$2 ;; esac
        shift
    done
    while IFS=$'\t' read -r id model batch precision line; do
        out=${line##*$'\t'}
        echo "contest $id ${line//$'\t'/ }" >> "$PLAYED"
        echo "begin $id"
        misbehave peers
        play_contest > "$out"
        echo "time $id eager 1.0 2.0 0.0 0.0 3.0 0.0 0.0 0.0 4.0"
        if faulty peers-time; then echo "end $id 75 out of time"; else echo "end $id 0 "; fi
    done < "$list"
    ! faulty peers-time || exit 75
}

play_contest() {
    row() { # SYSTEM STATUS TURN US NOTE
        printf '%s\t%s\t%s\t%s\tv\t%s\t1\t%s\t%s\t9\t9\t9\t3\t1e-7\t1\t1\tx\t%s\n' "$model" \
            "$batch" "$precision" "$1" "$2" "$3" "$4" "$5"
    }
    row ours ok 0 10 -
    row eager ok 1 20 -
    if faulty peers-cut; then printf 'cases/conv3x3\t1\tfp'; else
        row eager ok 2 20 -
        row ours ok 3 10 -
        ! faulty peers-one || row compile failed - - 'no compiler'
    fi
}

case $me in
nvcc) play_nvcc "$@" ;;
nvidia-smi) ! faulty smi || hang; echo '1980 MHz, 3201 MHz, 30, 100 W' ;;
compute-sanitizer)
    ! faulty sanitizer || { echo 'Device not supported'; exit 1; }
    echo '========= ERROR SUMMARY: 0 errors' ;;
python3)
    case "$*" in
    *'find_spec'*' torch') ! faulty torch && exit 0; exit 1 ;;
    *'find_spec'*' jax' | *'import jax' | *'import torch'*) exit 0 ;;
    bench/peers/rounds.py\ *)
        echo "rounds $*" >> "$PLAYED"
        shift
        play_rounds "$@" ;;
    *) exec "$REAL_PYTHON" "$@" ;;
    esac ;;
*)
    echo "$kind $name $*" >> "$PLAYED"
    play_"$kind" "$@" ;;
esac
