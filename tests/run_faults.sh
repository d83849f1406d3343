#!/usr/bin/env bash
# Fails every CUDA, cuDNN and cuBLAS call of emitted programs once, alone and with all later ones:
# the program must report it (status 1 or 5) and leave nothing behind. Also device memory that is
# too small, weights that are wrong, no device at all. EMIT: options for emit, RUN: arguments for
# programs. Ends with `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 1
einnet=${EINNET:-build/einnet}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
export OPENBLAS_NUM_THREADS=1 JUDGE_LEAKCHECK=1

check() {  # name, allowed statuses, command...
    local name=$1 allowed=$2
    shift 2
    (ulimit -t 60; exec timeout 900 "$@") >"$work/log" 2>&1
    status=$?
    case " $allowed " in
    *" $status "*) passed=$((passed + 1)) ;;
    *)
        failed=$((failed + 1))
        echo "FAIL $name: status $status, not one of $allowed"
        tail -n 2 "$work/log"
        ;;
    esac
}

for model in "$@"; do
    name=$(basename "$model" .ein)
    program=$work/$name
    # shellcheck disable=SC2086
    "$einnet" emit "$model" --small ${EMIT:-} -o "$program.cu" --test "${program}_test.cu" &&
        "$einnet" pack "$model" --small -o "$program.weights" &&
        tests/judge/judgecc --quick -o "$program" "${program}_test.cu" "$program.cu" || {
        failed=$((failed + 1))
        echo "FAIL $name: it was not built"
        continue
    }
    mkdir -p "$work/out"
    run=("$program" "$program.weights" --out "$work/out" ${RUN:+"$RUN"})
    check "$name" 0 "${run[@]}"
    calls=$(JUDGE_REPORT=1 "${run[@]}" 2>&1 |
        sed -n 's/.*[^0-9]\([0-9][0-9]*\) \(api \)\?calls.*/\1/p' | head -n 1)
    if [ -z "$calls" ] || [ "$calls" -lt 10 ]; then
        failed=$((failed + 1))
        echo "FAIL $name: the judge did not say how many calls there are"
        continue
    fi
    # Only what releases something may fail unheard: destroy returns nothing. What cuDNN's graph API
    # refuses in create, its older API does; cublasLt is asked twice.
    for ((n = 1; n <= calls; n++)); do
        for sticky in '' JUDGE_STICKY=1; do
            check "$name, call $n fails $sticky" '0 1 5 77' \
                env JUDGE_REPORT=1 JUDGE_FAIL_AT=$n $sticky "${run[@]}"
            call=$(sed -n 's/.*injected failure of \([A-Za-z0-9_]*\).*/\1/p' "$work/log" |
                head -n 1)
            case "$status $call" in
            "0 cudaFree" | "0 "*Destroy* | "0 cudnnBackend"[CFGS]* | [1-9]*) ;;
            "0 cublasLtMatmulAlgoGetHeuristic") ;;
            *)
                failed=$((failed + 1))
                echo "FAIL $name: nobody heard that call $n (${call:-unknown}) failed"
                ;;
            esac
        done
    done
    check "$name, no memory" 5 env JUDGE_MEM_MB=0 "${run[@]}"
    check "$name, no device" 77 env JUDGE_NO_DEVICE=1 "${run[@]}"
    head -c 1000 "$program.weights" >"$work/short.weights"
    check "$name, short weights" "3 5" "$program" "$work/short.weights" --out "$work/out"
    sed '1s/EINWGHT1/EINWGHT2/' "$program.weights" >"$work/bad.weights"
    check "$name, wrong magic" "3 5" "$program" "$work/bad.weights" --out "$work/out"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
