#!/bin/sh
# Models as text: NAME.ein beside what einnet answers to it.
#   NAME.err   the messages about a model that is wrong
#   NAME.fmt   its canonical form, which formats to itself
#   NAME.json  the flat graph
# `run.sh update` writes the answers anew.
. "$(dirname "$0")/../frame/lib.sh"

update=${1:-}
einnet=$top/build/einnet
check 'the program builds' make -s all
cd tests/lang || exit 1

# answer EXPECTED: compares the file `got`, or puts it in EXPECTED's place.
answer() {
    if [ "$update" = update ]; then
        cp "$work/got" "$1"
    elif cmp -s "$work/got" "$1"; then
        pass
    else
        diff -a "$1" "$work/got" > "$work/diff"
        fail "$1" "$work/diff"
    fi
}

for model in *.ein; do
    name=${model%.ein}
    case $name in
    fmt_*)
        "$einnet" fmt "$model" > "$work/got" 2>&1
        answer "$name.fmt"
        cp "$name.fmt" "$work/again.ein"
        "$einnet" fmt "$work/again.ein" > "$work/got" 2>&1
        if cmp -s "$work/got" "$name.fmt"; then pass; else fail "$name.fmt formats to itself"; fi
        ;;
    graph_*)
        "$einnet" graph --json "$model" > "$work/got" 2>&1
        answer "$name.json"
        ;;
    *)
        # Some mistakes are seen only when equations become expressions.
        case $name in lower_*) command=equations ;; *) command=graph ;; esac
        within 10 "$einnet" $command "$model" > /dev/null 2> "$work/got"
        code=$?
        # Limits have a code of their own.
        case $name in
        dim_huge | equation_rank_many | equation_where_limit* | lower_index_huge* | \
            lower_volume | *_long | number_digits | repeat_*huge | size_arguments | \
            size_equation | size_max | size_product | size_rank | text_*_deep)
            wanted=5
            ;;
        *) wanted='3 4' ;;
        esac
        case " $wanted " in
        *" $code "*) pass ;;
        *) fail "$model: exit code $code, not $wanted" ;;
        esac
        answer "$name.err"
        ;;
    esac
done

# What a foreign name of an operator leads to is there.
cd "$top/gen/parse" || exit 1
sed -n '/ein__foreign_op/,/^};/s/.*", "\([A-Z][A-Za-z]*\)"},$/\1/p' foreign.c > "$work/meant"
[ "$(wc -l < "$work/meant")" -gt 40 ] && pass || fail 'operators of foreign names' "$work/meant"
while read -r name; do
    grep -q "^    {\"$name\", " ops.c || echo "$name"
done < "$work/meant" > "$found"
empty 'foreign names lead to operators that there are'

# Every model's canonical form is the same after another round, and means the same graph. Models with
# an operator that is not supported are left to other tests.
cd "$top" || exit 1
for model in models/*.ein models/cases/*.ein tests/unseen/*.ein; do
    base=$work/$(basename "$model" .ein)
    "$einnet" fmt "$model" > /dev/null 2>&1
    [ $? != 4 ] || continue
    "$einnet" fmt "$model" > "$base.1.ein" 2> "$work/log" &&
        "$einnet" fmt "$base.1.ein" > "$base.2.ein" 2> "$work/log" &&
        cmp "$base.1.ein" "$base.2.ein" > "$work/log" 2>&1 &&
        "$einnet" graph --json "$model" | sed 's/"line": [0-9]*//' > "$base.1.json" &&
        "$einnet" graph --json "$base.1.ein" | sed 's/"line": [0-9]*//' > "$base.2.json" &&
        cmp "$base.1.json" "$base.2.json" > "$work/log" 2>&1
    code=$?
    if [ $code = 0 ]; then pass; else fail "$model: formatted" "$work/log"; fi
done
finish
