# Sourced by gpu.sh: our programs against the peers of bench/peers/, and the report. A contest is
# one model, one batch size and one precision; its program is an item of gpu.sh, and the one without
# derivation another.

python=${PYTHON:-python3}
rounds=5
peers=
bench_ms=20
sets=8
who=
import_limit=120        # seconds
contest_limit=3600
report_limit=120
peers_sum=$(cat bench/peers/*.py | sha256sum | cut -c1-16)
contest_columns=$(sed -n '/^COLUMNS = /,/]/p' bench/peers/rounds.py | grep -o '"[a-z0-9_0-9]*"' |
    tr -d '"' | tr '\n' ' ')
contest_columns=${contest_columns% }

# The batch size that a model has by itself.
own_batch() { # MODEL
    local n
    n=$(sed -n -E 's/^dim (.*, )?N = ([0-9]+)(,.*)?$/\2/p' "models/$1.ein" | head -n 1)
    echo "${n:-1}"
}

# Batch sizes to compare: 1 and 16, of single operators the one their source gives.
contest_batches() { # MODEL
    case $scope:$stand_in:$1 in
    all:no:cases/*) own_batch "$1" ;;
    all:no:*) printf '1\n16\n' ;;
    *) own_batch "$1" ;;
    esac
}

precisions() {
    local math
    echo fp32
    [ $stand_in = yes ] || [ -z "$einnet" ] || for math in $(maths); do echo "${math#_}"; done
}

# The item of a program: MODEL[_nN][_PRECISION].
program_of() { # MODEL N PRECISION
    local item=$1
    [ "$2" = "$(own_batch "$1")" ] || item=${item}_n$2
    [ "$3" = fp32 ] || item=${item}_$3
    echo "$item"
}

# Programs of a model that other phases do not have, those without derivation at other batch sizes
# and in other precisions; and every graph.
contest_emit() { # MODEL
    local model=$1 n precision item options
    for n in $(contest_batches "$model"); do
        options=()
        [ "$n" = "$(own_batch "$model")" ] || options=(--dim N="$n")
        mkdir -p "$(dirname "$kit/$model")"
        "$einnet" graph "models/$model.ein" --json "${options[@]}" "${small[@]}" \
            -o "$kit/${model}_n$n.json" || complain emit "graph of $model, batch $n"
        for precision in $(precisions); do
            item=$(program_of "$model" "$n" "$precision")
            contest_program "$item" "$model" "$precision" "${options[@]}"
        done
    done
}

contest_program() { # ITEM MODEL PRECISION OPTION...
    local item=$1 model=$2 precision=$3
    shift 3
    [ "$precision" = fp32 ] || set -- "$@" --math "$precision"
    [ $# -gt 0 ] || return 0
    emit_one "${item}_base" "$model" "$@" --prefix "${item##*/}" --baseline
    source_of "$item"
    if cmp -s "$kit/${item}_base.cu" "$REPLY"; then
        rm "$kit/${item}_base.cu" "$kit/${item}_base_test.cu"
    fi
}

# What peers need is imported while programs are emitted: from a cold disk that takes a while.
import_peers() {
    rm -f "$work"/has_*
    timeout $import_limit "$python" -c 'import numpy, torch' 2> /dev/null && touch "$work/has_torch"
    timeout $import_limit "$python" -c 'import jax' 2> /dev/null && touch "$work/has_jax"
}

# Sets `who`: the peers that can run here, or those asked for. Says who is missing.
find_peers() {
    who=
    if [ ! -f "$work/has_torch" ]; then
        echo "peers: $python has no torch: no float64 reference, nobody to compare with" |
            tee -a "$work/absent"
        return
    fi
    who=eager,compile
    if [ -f "$work/has_jax" ]; then who=$who,jax
    else echo "peers: $python has no jax" | tee -a "$work/absent"; fi
    who=${peers:-$who}
}

# Sets `ours` and `base`, the program without derivation, both planned with measured costs where
# there are some (base is empty where it is the same program), and `key`: what a contest is made of.
contest_of() { # MODEL N PRECISION
    local plain source
    plain=$(program_of "$1" "$2" "$3")
    ours=$plain
    base=$plain
    [ ! -f "$kit/${plain}_costs_test.cu" ] || ours=${plain}_costs
    [ ! -f "$kit/${plain}_base_test.cu" ] || base=${plain}_base
    [ ! -f "$kit/${plain}_base_costs_test.cu" ] || base=${plain}_base_costs
    source_of "$ours"
    source=$REPLY
    source_of "$base"
    ! same_code "$source" "$REPLY" || base=
    key=
    if [ -n "$base" ] && is_built "$base"; then
        key_of "$base"
        key=" $REPLY"
    fi
    run_key "$ours"
    key="$REPLY$key $peers_sum ${digest[$kit/${1}_n$2.json]:-none} $who $rounds $bench_ms"
}

contest() { # MODEL N PRECISION
    local model=$1 n=$2 precision=$3 id=${1}_n${2}_$3 more=() log before code part ours base
    local key other
    contest_of "$model" "$n" "$precision"
    is_built "$ours" && [ -f "$kit/${model}_n$n.json" ] || return 0
    ! done_already peers "$id" "$key" || return 0
    may_begin || return 1
    mkdir -p "$(dirname "$work/peers/$id")"
    log=$work/peers/$id.log
    [ -z "$base" ] || ! is_built "$base" || more=(--base "$work/build/$base")
    source_of "${base:-$ours}"
    other=$REPLY
    source_of "$ours"
    # Convolutions of cuDNN may be Winograd's, or by Fourier transforms, as the peers' are.
    ! grep -q -e 'F(4x4' -e '^#include <cudnn.h>' "$REPLY" "$other" || more+=(--winograd)
    more+=(--note "$(sed -n -E '/^\/\/ by +/{s|||p;q}' "$REPLY")")
    before=$(clocks)
    seconds=$(limit $contest_limit)
    part=$((seconds > 60 ? seconds - 30 : seconds / 2))
    rm -f "$work/peers/$id.rows"
    weights_of "$ours"
    timeout -k 30 "$seconds" "$python" bench/peers/rounds.py --out "$work/peers/$id.rows" \
        --model "$model" --batch "$n" --precision "$precision" --graph "$kit/${model}_n$n.json" \
        --weights "$REPLY.weights" --ours "$work/build/$ours" "${more[@]}" \
        --peers "$who" --rounds $rounds --bench-ms $bench_ms --sets $sets --device $device \
        --deadline $part --work "$work/peers/$id.work" > "$log" 2>&1 < /dev/null
    code=$?
    rows_of_contest "$id" "$code" "$before" "$log"
}

# Keeps the rows of a contest, those of one that was cut off as a part of it, which is done again.
# False when the budget is used up.
rows_of_contest() { # ID CODE CLOCKS LOG
    local id=$1 code=$2 rows=$work/peers/$1.rows as=$key
    case $code in
    75 | 124 | 137) code=124 ;;
    esac
    ! cut_off $code $contest_limit || as="part of $key"
    if [ -s "$rows" ] && ! awk -F '\t' -v n="$(wc -w <<< "$contest_columns")" \
        'NF != n { exit 1 }' "$rows"; then
        complain peers "$id: rows that are none: $(last_words "$4")"
        as="part of $key"
    elif [ -s "$rows" ]; then
        record peers "$id" "$as" "$(cat "$rows")"
        record contests "$id" "$as" "$id"$'\tbefore\t'"$3"$'\n'"$id"$'\tafter\t'"$(clocks)"
        echo "peers $id: $(grep -c -P '\tok\t' "$work/peers/$id.row") measurements," \
            "$(grep -c -P '\tfailed\t' "$work/peers/$id.row") failed"
        gather      # the next one takes minutes
    elif [ "$as" = "$key" ]; then
        complain peers "$id: $(status_of $code): $(last_words "$4")"
    fi
    rm -f "$rows"
    [ $stopped = no ]
}

peers_all() {
    local model n precision
    [ -n "$who" ] || return 0
    for precision in $(precisions); do
        for model in $(models); do
            for n in $(contest_batches "$model"); do
                contest "$model" "$n" "$precision" || return 0
            done
        done
    done
}

# contest_lines FOLDER: the rows there of all contests about the sources as they are now.
contest_lines() {
    local model n precision id ours base key
    for precision in $(precisions); do
        for model in $(models); do
            for n in $(contest_batches "$model"); do
                id=${model}_n${n}_$precision
                [ -f "$work/$1/$id.row" ] || continue
                contest_of "$model" "$n" "$precision"
                ! done_already "$1" "$id" "$key" &&
                    ! done_already "$1" "$id" "part of $key" ||
                    tail -n +2 "$work/$1/$id.row"
            done
        done
    done
}

# Under one line of names.
contest_rows() {
    echo "$contest_columns" | tr ' ' '\t'
    contest_lines peers
}

contest_clocks() {
    contest_lines contests
}

report_all() {
    local folder=$out/report
    [ "$out" != bench/results/raw ] || folder=bench/results
    if [ "$(wc -l < "$out/peers.tsv")" -lt 2 ]; then
        echo 'report: nothing was compared'
        return
    fi
    [ -n "$name" ] || name=$(device_name) || {
        complain report 'there is no data sheet of this GPU; see --gpu'
        return
    }
    timeout "$(limit $report_limit)" "$python" bench/report.py --device "$name" --graphs "$kit" \
        --out "$folder" --title "$title" "$out/peers.tsv" ||
        complain report "bench/report.py: $(status_of $?)"
}
