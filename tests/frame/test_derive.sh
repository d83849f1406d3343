#!/bin/sh
# Every application of a derivation rule on all models, checked modulo 2^61-1; and the check itself:
# a rule made unsound on purpose must be caught.
. "$(dirname "$0")/lib.sh"

build() {
    gcc -std=c11 -O2 -I"$1" -Ibuild tests/test_derive.c -o "$2" -lm
}
check 'the checker builds' build gen "$work/derive"
"$work/derive" models/*.ein models/cases/*.ein tests/unseen/*.ein > "$work/log" 2>&1
if [ $? = 0 ]; then pass; else fail 'every rule keeps the value' "$work/log"; fi

# A window substituted one place too far: neighbours instead of the right elements.
mkdir "$work/gen"
cp gen/*.c gen/*.h "$work/gen"
sed 's/z->d\[at\]\.lo + rest);/z->d[at].lo + rest + 1);/' gen/derive.c > "$work/gen/derive.c"
check 'the fault is planted' sh -c "! cmp -s gen/derive.c '$work/gen/derive.c'"
check 'the faulty rule builds' build "$work/gen" "$work/faulty"
if "$work/faulty" models/cases/conv3x3.ein > "$work/log" 2>&1; then
    fail 'the unsound rule is caught' "$work/log"
elif grep -q 'changes the value' "$work/log"; then
    pass
else
    fail 'the unsound rule is caught by the step check' "$work/log"
fi
finish
