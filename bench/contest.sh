# Sourced by gpu.sh: our programs against the peers of bench/peers/, and the report. A contest is
# one model, one batch size and one precision; its program is an item of gpu.sh, and the one without
# derivation another.

python=${PYTHON:-python3}
rounds=5
peers=
bench_ms=20
sets=8
who=
compile_mode=max-autotune-no-cudagraphs
setup=600               # seconds until a peer is ready for a contest
lanes=                  # contests that get ready side by side
import_limit=120
contest_limit=3600      # of all contests that are left
report_limit=120
peers_sum=$(cat bench/peers/*.py | sha256sum | cut -c1-16)
contest_columns=$(sed -n '/^COLUMNS = /,/]/p' bench/peers/rounds.py | grep -o '"[a-z0-9_0-9]*"' |
    tr -d '"' | tr '\n' ' ')
contest_columns=${contest_columns% }
times_columns=$(sed -n '/^TIMES = /s/[^a-z ]//gp' bench/peers/rounds.py)

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

# What peers need, found without the import, which takes a while from a cold disk.
has_module() {
    timeout $import_limit "$python" -c 'import importlib.util as u, sys
sys.exit(not u.find_spec(sys.argv[1]))' "$1" 2> /dev/null
}

# Reads what peers import from a cold disk, while programs are built.
import_peers() {
    timeout $import_limit "$python" -c 'import torch._inductor.compile_fx' > /dev/null 2>&1
    timeout $import_limit "$python" -c 'import jax' > /dev/null 2>&1
}

# Sets `who`: the peers that can run here, or those asked for. Says who is missing.
find_peers() {
    who=
    if ! has_module torch; then
        echo "peers: $python has no torch: no float64 reference, nobody to compare with" |
            tee -a "$work/absent"
        return
    fi
    who=eager,compile
    if has_module jax; then who=$who,jax
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
    case ,$who, in *,compile,*) key="$key $compile_mode" ;; esac
}

# A line of the list for bench/peers/rounds.py, of a contest that is not done; those of which a part
# is done go to a list of their own. Keeps its key in `contest_keys`.
contest_line() { # MODEL N PRECISION
    local id=${1}_n${2}_$3 winograd=- again=- other note ours base key weights
    contest_of "$@"
    is_built "$ours" && [ -f "$kit/${1}_n$2.json" ] || return 0
    ! done_already peers "$id" "$key" || return 0
    contest_keys[$id]=$key
    ! done_already peers "$id" "part of $key" || again=yes
    mkdir -p "$(dirname "$work/peers/$id")"
    rm -f "$work/peers/$id.rows"
    if [ -n "$base" ] && ! is_built "$base"; then base=; fi
    source_of "${base:-$ours}"
    other=$REPLY
    source_of "$ours"
    # Convolutions of cuDNN may be Winograd's, or by Fourier transforms, as the peers' are.
    ! grep -q -e 'F(4x4' -e '^#include <cudnn.h>' "$REPLY" "$other" || winograd=yes
    note=$(sed -n -E '/^\/\/ by +/{s|||p;q}' "$REPLY" | tr '\t' ' ')
    weights_of "$ours"
    weights=$REPLY
    [ -z "$base" ] || base=$work/build/$base
    printf '%s\t' "$id" "$1" "$2" "$3" "$kit/${1}_n$2.json" "$weights.weights" \
        "$work/build/$ours" "${base:--}" "$winograd" "$again" "${note:--}" \
        >> "$work/peers/list.$again"
    printf '%s\n' "$work/peers/$id.rows" >> "$work/peers/list.$again"
}

# Runs what is on the list, and keeps each contest's rows as soon as it has ended.
contests() { # LIST
    local code=0 id= ended= before= words part rest log=$work/peers/log
    before=$(clocks)
    seconds=$(limit $contest_limit)
    part=$((seconds > 60 ? seconds - 30 : seconds / 2))
    while IFS=' ' read -r -u 3 words rest; do
        case $words in
        begin)
            id=$rest
            before=$(clocks) ;;
        time) tell_times $rest ;;
        end)
            read -r id code words <<< "$rest"
            rows_of_contest "$id" "$code" "$before" "$words"
            id= ;;
        ended) ended=$rest ;;
        esac
    done 3< <(timeout -k 30 "$seconds" "$python" bench/peers/rounds.py --list "$1" --peers "$who" \
        --rounds "$rounds" --bench-ms "$bench_ms" --sets $sets --device $device --setup "$setup" \
        --compile-mode "$compile_mode" --lanes "$lanes" --deadline $part --work "$work/peers/work" \
        2> "$log" < /dev/null
        echo "ended $?")
    [ -z "$id" ] || rows_of_contest "$id" "$ended" "$before" "$(last_words "$log")"
    case $ended in
    0 | 1) ;;
    75) ! contests_cut || unfinished=yes ;;
    124 | 137) ! contests_cut || stopped=yes ;;
    *) [ -n "$id" ] || complain peers "$(status_of "$ended"): $(last_words "$log")" ;;
    esac
}

# What a system of a contest took, part by part, printed and kept.
tell_times() { # ID SYSTEM SECONDS...
    local part line="time $1 $2:" row="$1"$'\t'"$2"
    shift 2
    for part in $times_columns; do
        case $1 in 0.0) ;; *) line="$line $part $1" ;; esac
        row=$row$'\t'$1
        shift
    done
    echo "$line"
    printf '%s\n' "$row" >> "$work/peers/times"
}

# Whether what was cut off was cut off by the budget, and has a better chance in another run: one
# contest that had a whole run to itself has none.
contests_cut() {
    [ "$seconds" -lt $contest_limit ] && { [ $finished != 0 ] || [ ${#contest_keys[@]} -gt 1 ]; }
}

# Keeps the rows of a contest, those of one that was cut off as a part of it, which is done again.
rows_of_contest() { # ID CODE CLOCKS WORDS
    local id=$1 code=$2 rows=$work/peers/$1.rows key=${contest_keys[$1]} as
    as=$key
    case $code in
    75 | 124 | 137)
        code=124
        ! contests_cut || as="part of $key" ;;
    esac
    if [ -s "$rows" ] && ! awk -F '\t' -v n="$(wc -w <<< "$contest_columns")" \
        'NF != n { exit 1 }' "$rows"; then
        complain peers "$id: rows that are none: $4"
    elif [ -s "$rows" ]; then
        keep_rows "$id" "$as" "$3"
    elif [ "$as" = "$key" ]; then
        complain peers "$id: $(status_of $code): $4"
    fi
    rm -f "$rows"
}

# A part that has less than the part before it does not take its place.
keep_rows() { # ID KEY CLOCKS
    local id=$1 rows=$work/peers/$1.rows kept=$work/peers/$1.row scope=all
    if [ "$2" = "part of $key" ] && done_already peers "$id" "$2" &&
        [ "$(grep -c -P '\tok\t' "$rows")" -lt "$(grep -c -P '\tok\t' "$kept")" ]; then
        echo "peers $id: less than before, not kept"
        return
    fi
    record peers "$id" "$2" "$(cat "$rows")"
    record contests "$id" "$2" "$id"$'\tbefore\t'"$3"$'\n'"$id"$'\tafter\t'"$(clocks)"
    echo "peers $id: $(grep -c -P '\tok\t' "$kept") measurements," \
        "$(grep -c -P '\tfailed\t' "$kept") failed"
    gather      # the next one takes a while
}

peers_all() {
    local model n precision
    local -A contest_keys=()
    [ -n "$who" ] || return 0
    mkdir -p "$work/peers"
    : > "$work/peers/list.-"
    : > "$work/peers/list.yes"
    for precision in $(precisions); do
        for model in $(models); do
            for n in $(contest_batches "$model"); do
                contest_line "$model" "$n" "$precision"
            done
        done
    done
    cat "$work/peers/list.-" "$work/peers/list.yes" > "$work/peers/list"
    [ -s "$work/peers/list" ] && may_begin || return 0
    contests "$work/peers/list"
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

contest_times() {
    echo "contest system $times_columns" | tr -s ' ' '\t'
    cat "$work/peers/times" 2> /dev/null
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
