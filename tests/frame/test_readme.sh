#!/bin/sh
# README.md tells the truth: paths that it names exist, its picture lists the folders of gen/ in
# their order, its code is that of out/resnet18.cu, its example model and its einnet commands work.
. "$(dirname "$0")/lib.sh"

# block LANGUAGE [N]: the text of the Nth fenced block in that language.
block() {
    awk -v start="\`\`\`$1" -v n="${2:-1}" '
        /^```/ { inside = $0 == start && ++seen == n; next }
        inside' README.md
}

grep -n -E '^.{101}' README.md | grep -v 'CALL(launch(' > "$found"  # a launch is one line
empty 'lines have at most 100 columns'
grep -n -P '[^\x00-\x7F]|\t| $' README.md > "$found"
empty 'plain text'
awk 'END { if (NR >= 200) print NR " lines" }' README.md > "$found"
empty 'under 200 lines'

# Paths: what begins with a folder of ours. NAME and * stand for any name; build/ is made.
grep -o -E '\b(gen|templates|models|out|tests|bench)/[A-Za-z0-9_./*-]*' README.md |
    sed 's/[.]$//' | sort -u > "$work/paths"
while read -r path; do
    case $path in */NAME.*) continue ;; esac
    for file in $path; do
        [ -e "$file" ] || echo "$path"
    done
done < "$work/paths" > "$found"
empty 'every path exists'
[ "$(wc -l < "$work/paths")" -gt 10 ] && pass || fail 'paths are found'
grep -o -E '\bmake [a-z-]+' README.md | sort -u | while read -r _ target; do
    make -n "$target" > /dev/null 2>&1 || echo "make $target"
done > "$found"
empty 'every target exists'

block pipeline | sed -n 's/^  |  \([a-z]*\) .*/\1/p' > "$work/shown"
sed -n 's/^#include "\(.*\)\/.*\.c"$/\1/p' gen/all.h | uniq > "$work/order"
check 'the picture has the folders of gen/all.h' diff "$work/order" "$work/shown"

block c | while IFS= read -r line; do
    grep -q -F -x -e "$line" gen/parse/ops.c || echo "$line"
done > "$found"
empty 'the row of an operator stands in gen/parse/ops.c'

sh tests/frame/readme.sh > "$work/readme"
check 'the emitted code is as in out/resnet18.cu (run: make golden)' diff README.md "$work/readme"
for n in 1 2; do
    [ "$(block cuda $n | wc -l)" -gt 5 ] && pass || fail "emitted code, block $n is there"
done

check 'the program builds' make -s all
block ein > "$work/tail.ein"
check 'the example is in canonical form' build/einnet fmt --check "$work/tail.ein"
check 'the example is emitted' build/einnet emit "$work/tail.ein" -o "$work/tail.cu"
check 'the example is computed' build/einnet eval "$work/tail.ein" --small --out "$work"
block sh 1 > "$work/commands"
block sh 2 >> "$work/commands"
grep '^build/einnet' "$work/commands" | sed "s| build/| $work/|g" > "$work/run"
[ "$(wc -l < "$work/run")" = 3 ] && pass || fail 'commands are found' "$work/run"
while read -r line; do
    check "$line" $line
done < "$work/run"
finish
