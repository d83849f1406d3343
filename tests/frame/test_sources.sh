#!/bin/sh
# Sources: caps on lines and files, plain text, the format.
. "$(dirname "$0")/lib.sh"

sh tests/frame/sources.sh all > "$work/all"
while read -r file; do
    awk 'END { if (NR > 900) print FILENAME ": " NR " lines" }' "$file"
done < "$work/all" > "$found"
empty 'files have at most 900 lines'
xargs grep -n -E '^.{101}' /dev/null < "$work/all" | cut -c1-120 > "$found"
empty 'lines have at most 100 columns'
grep -v -E '^Makefile$' "$work/all" | xargs grep -n -P '\t' /dev/null | cut -c1-120 > "$found"
empty 'no tabs'
xargs grep -n -E ' +$' /dev/null < "$work/all" | cut -c1-120 > "$found"
empty 'no trailing spaces'
while read -r file; do
    [ -z "$(tail -c 1 "$file")" ] || echo "$file"
done < "$work/all" > "$found"
empty 'a newline at the end of files'
xargs grep -n -P '[^\x00-\x7F]' /dev/null < "$work/all" | cut -c1-120 > "$found"
empty 'ASCII only'
xargs grep -n -w -E 'TODO|FIXME|XXX' /dev/null < "$work/all" | grep -v test_sources > "$found"
empty 'nothing put off'
git ls-files 2> /dev/null | sed 's|/.*||' | sort -u | grep -v -x -E \
    '\..*|einnet\.h|gen|templates|models|out|tests|bench|Makefile|README\.md' > "$found"
empty 'nothing else at the top'
# Records are as long as their terms: ein__ix_copy, or what lies behind them is read.
grep -rn -E '= \*ein__ix_get' gen > "$found"
empty 'no form is copied whole'
if command -v clang-format > /dev/null; then
    sh tests/frame/sources.sh formatted | xargs clang-format --dry-run -Werror > "$work/log" 2>&1
    grep -o '^[^ :]*:[0-9]*:[0-9]*: error' "$work/log" | sed 's/:.*//' | sort -u > "$found"
    empty 'clang-format changes nothing (run: make format)'
fi
finish
