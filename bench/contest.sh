# Sourced by gpu.sh: our programs against the peers of bench/peers/, and the report. A contest is
# one model, one batch size and one precision; its program is an item of gpu.sh, and the one without
# derivation another.

python=${PYTHON:-python3}
rounds=5
peers=
bench_ms=20
sets=8

# The batch size that a model has by itself.
own_batch() { # MODEL
    local n
    n=$(sed -n -E 's/^dim (.*, )?N = ([0-9]+)(,.*)?$/\2/p' "models/$1.ein" | head -n 1)
    echo "${n:-1}"
}

# Batch sizes to compare: 1 and 16, of single operators the one their source gives.
contest_batches() { # MODEL
    case $1 in
    cases/*) own_batch "$1" ;;
    *) [ $stand_in = yes ] && own_batch "$1" || printf '1\n16\n' ;;
    esac
}

precisions() {
    echo fp32
    [ $stand_in = yes ] || [ -z "$einnet" ] || ! "$einnet" emit --help | grep -q -e '--math' ||
        printf 'tf32\nfp16\n'
}

# The item of a program: MODEL[_nN][_PRECISION].
program_of() { # MODEL N PRECISION
    local item=$1
    [ "$2" = "$(own_batch "$1")" ] || item=${item}_n$2
    [ "$3" = fp32 ] || item=${item}_$3
    echo "$item"
}

# Programs that other phases do not have, those without derivation at other batch sizes and in other
# precisions; and every graph.
contest_emit() {
    local model n precision item options
    for model in $(models); do
        for n in $(contest_batches "$model"); do
            options=()
            [ "$n" = "$(own_batch "$model")" ] || options=(--dim N="$n")
            mkdir -p "$(dirname "$kit/$model")"
            "$einnet" graph "models/$model.ein" --json "${options[@]}" "${small[@]}" \
                -o "$kit/${model}_n$n.json" || echo "graph $model: failed"
            for precision in $(precisions); do
                item=$(program_of "$model" "$n" "$precision")
                contest_program "$item" "$model" "$precision" "${options[@]}"
            done
        done
    done
}

contest_program() { # ITEM MODEL PRECISION OPTION...
    local item=$1 model=$2 precision=$3
    shift 3
    [ "$precision" = fp32 ] || set -- "$@" --math "$precision"
    [ $# -gt 0 ] || return 0
    emit_one "${item}_base" "$model" "$@" --prefix "${item##*/}" --baseline
    if cmp -s "$kit/${item}_base.cu" "$(source_of "$item")"; then
        rm "$kit/${item}_base.cu" "$kit/${item}_base_test.cu"
    fi
}

# The peers that can run here, or those asked for.
find_peers() {
    local found=
    if ! "$python" -c 'import numpy, torch' 2> /dev/null; then
        echo "peers: $python has no torch: no float64 reference, nobody to compare with" >&2
        return 1
    fi
    found=eager,compile
    ! "$python" -c 'import jax' 2> /dev/null || found=$found,jax
    echo "${peers:-$found}"
}

contest() { # MODEL N PRECISION PEERS
    local model=$1 n=$2 precision=$3 id=${1}_n${2}_$3 ours base more=() log before
    ours=$(program_of "$model" "$n" "$precision")
    base=${ours}_base
    [ ! -f "$kit/${ours}_costs_test.cu" ] || ours=${ours}_costs
    ready_contest "$id" "$ours" "$base" "$4" || return 0
    may_begin || return 1
    log=$work/peers/$id.log
    [ ! -x "$work/build/$base" ] || more=(--base "$work/build/$base")
    ! grep -q 'F(4x4' "$(source_of "$ours")" || more+=(--winograd)
    more+=(--note "$(sed -n -E 's|^// by +||p' "$(source_of "$ours")")")
    before=$(clocks)
    seconds=$(limit 3600)
    timeout "$seconds" "$python" bench/peers/rounds.py --out "$work/peers/$id.rows" \
        --model "$model" --batch "$n" --precision "$precision" --graph "$kit/${model}_n$n.json" \
        --weights "$(weights_of "$ours").weights" --ours "$work/build/$ours" "${more[@]}" \
        --peers "$4" --rounds $rounds --bench-ms $bench_ms --sets $sets --device $device \
        --work "$work/peers/$id.work" > "$log" 2>&1 < /dev/null
    ! cut_off $? 3600 || return 1
    if [ -s "$work/peers/$id.rows" ]; then
        record peers "$id" "$key" "$(cat "$work/peers/$id.rows")"
        rm "$work/peers/$id.rows"
        printf '%s\tbefore\t%s\n%s\tafter\t%s\n' "$id" "$before" "$id" "$(clocks)" \
            >> "$out/peers_clocks.tsv"
        echo "peers $id: $(grep -c -P '\tok\t' "$work/peers/$id.row") measurements"
    else
        echo "peers $id: failed: $(last_words "$log")"
    fi
}

# Sets $key; fails when there is nothing to do.
ready_contest() { # ID OURS BASE PEERS
    [ -x "$work/build/$2" ] && [ -f "$kit/${model}_n$n.json" ] || return 1
    key=$(contest_key "$2" "$3" "$4")
    ! done_already peers "$1" "$key" || return 1
    mkdir -p "$(dirname "$work/peers/$1")"
}

contest_key() { # OURS BASE PEERS
    echo "$(run_key "$1") $([ ! -x "$work/build/$2" ] || key_of "$2")" \
        "$(cat bench/peers/*.py "$kit/${model}_n$n.json" | sha256sum | cut -c1-16)" \
        "$3 $rounds $bench_ms"
}

peers_all() {
    local model n precision who
    who=$(find_peers) || return 0
    for precision in $(precisions); do
        for model in $(models); do
            for n in $(contest_batches "$model"); do
                contest "$model" "$n" "$precision" "$who" || return 0
            done
        done
    done
}

# The rows of all contests about the sources as they are now, under one line of names.
contest_rows() {
    local model n precision who id ours
    "$python" bench/peers/rounds.py --columns
    who=$(find_peers) || return 0
    for precision in $(precisions); do
        for model in $(models); do
            for n in $(contest_batches "$model"); do
                id=${model}_n${n}_$precision
                ours=$(program_of "$model" "$n" "$precision")
                key=$(contest_key "$([ -f "$kit/${ours}_costs_test.cu" ] && echo "${ours}_costs" ||
                    echo "$ours")" "${ours}_base" "$who")
                ! done_already peers "$id" "$key" || tail -n +2 "$work/peers/$id.row"
            done
        done
    done
}

report_all() {
    local folder=$out/report
    [ "$out" != bench/results/raw ] || folder=bench/results
    contest_rows > "$out/peers.tsv" 2> /dev/null
    if [ "$(wc -l < "$out/peers.tsv")" -lt 2 ]; then
        echo 'report: nothing was compared'
        return
    fi
    [ -n "$name" ] || name=$(device_name) || {
        echo 'report: there is no data sheet of this GPU; see --gpu'
        return
    }
    "$python" bench/report.py --device "$name" --graphs "$kit" --out "$folder" \
        --title "$(sed -n 's/^gpu\t//p' "$work/device.tsv")" "$out/peers.tsv"
}
