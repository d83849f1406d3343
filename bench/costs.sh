# Sourced by gpu.sh: costs measured by the programs that `einnet probe` writes, and programs planned
# with them. The table is kept in $work/costs, as every finished item is; `gather` copies it.

probe_kernels=120       # in a program; nvcc takes some 0.1 s for each
probe_parts=16
probe_limit=590         # seconds of one part
probe_patience=${PROBE_PATIENCE:-120}   # seconds without a row, after which a part hangs
probe_rounds=3
probe_restarts=8        # of one part, each without what ended it

# The name of this GPU in tables of costs; fails where it has none.
device_name() {
    case $title in
    *GH200*) return 1 ;;    # neither: H100's SMs, and memory of its own
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

# Sets `table`: what is measured, and in $out a copy. A table that somebody put there comes first.
open_table() {
    table=$work/costs/$name.tsv
    mkdir -p "$work/probe" "$work/costs"
    [ ! -f "$out/$name.tsv" ] || cp "$out/$name.tsv" "$table"
    touch "$table"
    lost=$work/probe/lost.$(sha256sum < "$einnet" | cut -c1-16)
    touch "$lost"
}

# Sets `costs`: the options that name the tables there are for this GPU.
find_costs() {
    local file
    costs=(--gpu "$name")
    for file in "bench/costs/$name.tsv" "$table"; do
        [ ! -s "$file" ] || costs+=(--costs "$file")
    done
}

# Moves whole rows that a probe has printed, stopped or not, to the table. The last line may be cut.
collect_rows() { # FILE
    [ -f "$1" ] || return 0
    [ -z "$(tail -c 1 "$1")" ] || sed -i '$d' "$1"
    grep -P "^$name\t[^\t]+\t[1-9]\d{0,17}\t\d{1,9}\t[^\t]+$" "$1" >> "$table"
    grep -v -P "^(#.*|$name\t[^\t]+\t[1-9]\d{0,17}\t\d{1,9}\t[^\t]+)$" "$1" > "$1.bad"
    [ ! -s "$1.bad" ] || complain probe "no row of a table: $(last_words "$1.bad")"
    rm "$1" "$1.bad"
    cp "$table" "$out/$name.tsv"
}

# Emits and builds one of several programs; a failure leaves what it said and no program.
build_probe() { # BASE PART/PARTS EINNET'S ARGUMENTS...
    local base=$1_${2%/*} part=$2
    shift 2
    rm -f "$base"
    "$einnet" probe "$@" --part "$part" "${costs[@]}" -o "$base.cu" 2> "$base.log" &&
        timeout -k 10 "$(limit $compile_limit)" "$nvcc" "${flags[@]}" "${include[@]}" "$base.cu" \
            -o "$base" "${libraries[@]}" > "$base.log" 2>&1
}

# Measures the calls and kernels that no table has; fails when there is no program for it. With new
# costs the search may ask for others: some rounds of it. Kernels are compiled in parts, side by
# side; the first part has the calls and the best plans' kernels.
probe_group() { # ITEM EINNET'S ARGUMENTS...
    local item=$1 base=$work/probe/$1 round code part parts kernels
    shift
    mkdir -p "$(dirname "$base")"
    for part in "$base"_*.rows; do collect_rows "$part"; done
    rm -f "$base.notes"
    for ((round = 1; round <= probe_rounds; round++)); do
        find_costs
        if ! "$einnet" probe "$@" "${costs[@]}" -o "$base.cu" 2> "$base.log"; then
            complain probe "$item: $(head -n 1 "$base.log")"
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
        for ((part = 1; part <= parts; part++)); do
            run_probe "$item" "$base" "$part" "$round"
            code=$?
            [ $code != 1 ] || return 1
            [ $stopped = no ] || return 0
        done
    done
}

# Runs one part: 1 when there is no program for the calls. What ends the program, or makes it hang,
# is left out and the rest measured by the same program.
run_probe() { # ITEM BASE PART ROUND
    local base=$2_$3 code before restart
    may_begin || return 0
    if [ ! -x "$base" ]; then
        complain probe "$1, part $3: no program: $(last_words "$base.log")"
        [ "$3" != 1 ]
        return
    fi
    before=$(wc -l < "$table")
    for ((restart = 0; restart <= probe_restarts; restart++)); do
        may_begin || return 0
        seconds=$(limit $probe_limit)
        cat "$table" "$lost" "$2.notes" > "$base.have" 2> /dev/null
        watched "$base.rows" "$base" --device "$name" --deadline "$seconds" --have "$base.have" \
            2> "$base.log"
        code=$?
        grep '^#' "$base.rows" >> "$2.notes"
        collect_rows "$base.rows"
        case $code in
        0) break ;;
        75)
            [ "$seconds" = $probe_limit ] || stopped=yes
            [ "$4" != $probe_rounds ] || unfinished=yes
            break ;;
        esac
        blame "$1" "$base" "$2.notes" $code "$3" || break
    done
    echo "probe $1, round $4, part $3: $(($(wc -l < "$table") - before)) rows," \
        "$(last_words "$base.log")"
}

# Finds what ended a program, so that it is left out from now on; fails when that is not known. A
# call that broke the device has said so; of a program that hung or was killed it is the next one.
blame() { # ITEM BASE NOTES CODE PART
    local culprit words
    words=$(last_words "$2.log")
    case $4 in
    124 | 1[2-9][0-9])
        cat "$table" "$lost" "$3" > "$2.have"
        culprit=$(timeout $device_limit "$2" --list --device "$name" --have "$2.have" |
            head -n 1) ;;
    *)
        [ "$words" = "${words#probe: the device is lost}" ] ||
            culprit=$(tail -n 1 "$3" | sed -n 's/^# \([^:]*\): .*/\1/p') ;;
    esac
    complain probe "$1, part $5: $(status_of "$4") at '${culprit:-}': $words"
    [ -n "${culprit:-}" ] || return 1
    echo "# $culprit: $(status_of "$4")" >> "$lost"
}

# watched FILE COMMAND...: its output goes to FILE; it is killed when FILE does not grow for long.
watched() {
    local file=$1 process size=0 now quiet=0
    shift
    : > "$file"
    "$@" > "$file" < /dev/null &
    process=$!
    while kill -0 $process 2> /dev/null; do
        sleep 0.2
        now=$(stat -c %s "$file")
        [ "$now" = "$size" ] || quiet=0
        size=$now
        [ $((quiet += 1)) -gt $((probe_patience * 5)) ] || continue
        kill -9 $process
        wait $process 2> /dev/null
        return 124
    done
    wait $process
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

# Whether two programs differ in comments alone, such as times.
same_code() { # FILE FILE
    [ -f "$1" ] && [ -f "$2" ] && cmp -s <(grep -v '^ *//' "$1") <(grep -v '^ *//' "$2")
}

# Emits a program with measured costs, unless its code is that of SOURCE. One whose code is as it
# was stays as it was: what was measured of it holds.
emit_costs() { # ITEM SOURCE MODEL OPTION...
    local item=$1 source=$2 before=$work/emit/$1.before.cu
    mkdir -p "$(dirname "$before")"
    [ ! -f "$kit/$item.cu" ] || cp "$kit/$item.cu" "$before"
    emit_one "$item" "${@:3}" "${costs[@]}"
    if same_code "$source" "$kit/$item.cu"; then
        rm "$kit/$item.cu" "$kit/${item}_test.cu"
    elif same_code "$before" "$kit/$item.cu"; then
        cp "$before" "$kit/$item.cu"
    fi
    rm -f "$before"
}

# A program with measured costs, and the one without derivation: a fair pair.
emit_pair() { # ITEM SOURCE MODEL OPTION...
    local item=$1 source=$2
    emit_costs "${item}_costs" "$source" "${@:3}"
    [ ! -f "$kit/${item}_base.cu" ] || source=$kit/${item}_base.cu
    emit_costs "${item}_base_costs" "$source" "${@:3}" --baseline
}

emit_costs_of() { # MODEL
    local model=$1 n math
    for math in '' $(maths); do
        source_of "$model$math"
        emit_pair "$model$math" "$REPLY" "$model" \
            ${math:+--math ${math#_} --prefix "${model##*/}$math"}
        for n in $(batches "$model"); do
            emit_pair "${model}_n$n$math" "$kit/${model}_n$n$math.cu" "$model" \
                --dim N="$n" --prefix "${model##*/}_n$n$math" ${math:+--math ${math#_}}
        done
    done
}

probe_all() {
    local model n math
    [ -n "$name" ] || name=$(device_name) || {
        complain probe 'the generator has no row for this GPU; see --gpu'
        return
    }
    [ -n "$einnet" ] || { complain probe 'the generator does not run here'; return; }
    open_table
    for math in '' $(maths); do
        probe_models "$scope$math" "$(models)" ${math:+--math ${math#_}}
        for n in 1 16; do
            probe_models "${scope}_n$n$math" "$(for model in $(models); do
                ! batches "$model" | grep -q -x $n || echo "$model"
            done)" --dim N=$n ${math:+--math ${math#_}}
        done
    done
    echo "probe: $(wc -l < "$table") rows in $out/$name.tsv"
    [ $stopped = no ] || return 0
    find_costs
    for model in $(models); do in_parallel emit_costs_of "$model"; done
    wait
    take_digests
}
