# Sourced by gpu.sh: what it finished, as files of $out.

# Everything finished so far; called after every step, so that a run that is killed leaves it there.
gather() {
    local item phase file
    [ ! -f "$work/device.tsv" ] || cp "$work/device.tsv" "$out/device.tsv"
    : > "$out/limits.tsv"
    file=$(limits_file)
    [ ! -f "$file" ] || cp "$file" "$out/limits.tsv"
    for file in "$work"/costs/*.tsv; do
        [ ! -s "$file" ] || cp "$file" "$out/"
    done
    item_list=$(items)
    { emit_failures; rows build; } > "$out/build.tsv"
    rows check > "$out/check.tsv"
    rows bench > "$out/bench.jsonl"
    rows clocks > "$out/clocks.tsv"
    rows steps > "$out/steps.tsv"
    { rows memcheck; rows racecheck; } > "$out/sanitize.tsv"
    figure_rows > "$out/figures.tsv"
    contest_rows > "$out/peers.tsv"
    contest_clocks > "$out/peers_clocks.tsv"
    contest_times > "$out/peers_times.tsv"
    {
        cat "$work/complaints" "$work/absent" 2> /dev/null
        emit_failures | sed 's/\tfailed\t*/: not emitted: /'
        for phase in build check bench; do
            for item in $item_list; do
                row $phase "$item"
                case $REPLY in
                '' | *$'\tok\t'* | *'"status": "ok"'*) continue ;;
                esac
                echo "==== $phase $item"
                tail -n 40 "$work/$phase/$item.log" 2> /dev/null | cut -c1-300
            done
        done
    } > "$out/failures.txt"
    summary > "$out/summary.md"
}

# Whether a program is of the arithmetic that a suffix stands for; none: FP32.
is_of() { # ITEM SUFFIX
    case ${1%_costs} in
    *_tf32 | *_tf32_base) [ "$2" = _tf32 ] ;;
    *_fp16 | *_fp16_base) [ "$2" = _fp16 ] ;;
    *) [ -z "$2" ] ;;
    esac
}

# figure JSON NAME: sets REPLY, - where there is none.
figure() {
    REPLY=-
    [[ $1 =~ \"$2\":\ *\"?([^,\"}]*) ]] || return 0
    REPLY=${BASH_REMATCH[1]:--}
}

# Whether that is a time: digits, above 0.
is_time() {
    [[ $1 =~ ^[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?$ ]] && [[ $1 =~ [1-9] ]]
}

# One row a program, precisions apart; a dash where there is no figure.
summary() {
    local item check error json plan line name math
    echo "GPU: $(gpu_field gpu)"
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
        for item in $item_list; do
            is_of "$item" "$math" || continue
            row check "$item"
            IFS=$'\t' read -r _ check error _ <<< "$REPLY"
            if [ -z "$check" ]; then
                row build "$item"
                IFS=$'\t' read -r _ check _ <<< "$REPLY"
                check="not run, build ${check:-not run}"
            fi
            row bench "$item"
            json=$REPLY
            source_of "$item"
            plan=$(sed -n -E \
                '/^\/\/ plan +/{s|^// plan +[0-9]+ steps?, ([0-9.]+ [a-z]+) .*|\1|p;q}' "$REPLY")
            line="| $item | $check | ${error:--} | ${plan:--} |"
            for name in median_us p95_us cold_median_us latency_median_us kernels; do
                figure "$json" $name
                line="$line $REPLY |"
            done
            echo "$line"
        done
    done
}

# Whether something that was to be done went wrong.
failed() {
    [ ! -s "$work/complaints" ] || return 0
    ! grep -q -P '\tfailed\t' "$out/build.tsv" || return 0
    ! grep -v -q -P '^\S+\tok\t' "$out/check.tsv" || return 0
    ! tail -n +2 "$out/figures.tsv" | grep -v -q -P '^\S+\tok\t' || return 0
    grep -v -q '"status": "ok"' "$out/bench.jsonl"
}
