#!/bin/sh
# The order of the search, expression distances and choices: tests/test_search.c on all models, and
# in a long run faults planted in them, which it must catch.
. "$(dirname "$0")/lib.sh"

# build COMPILER OPTION DIRECTORY PROGRAM
build() {
    "$1" -std=c11 "$2" -DEIN_STATIC -I"$3" -Ibuild tests/test_search.c -o "$4" -lm
}
check 'the checker builds' build gcc -O1 gen "$work/search"
"$work/search" models/*.ein models/cases/*.ein tests/unseen/*.ein > "$work/log" 2>&1
if [ $? = 0 ]; then pass; else fail 'order, distances and choices' "$work/log"; fi

[ -n "${LONG:-}" ] || finish

# fault NAME FILE SED: the change, planted in a copy of the sources.
fault() {
    plant "$1" "$2" "$3" || return
    check "$1: the faulty source builds" build clang -O0 "$work/gen" "$work/faulty"
    if "$work/faulty" models/cases/*.ein > "$work/log" 2>&1; then fail "$1 is caught" "$work/log"
    else pass; fi
}
fault 'distances that order nothing' derive/explore.c \
    's/far = ein__def_distance(z, def, rule->towards), depth/far = 0, depth/'
fault 'an operator that is no cell away but does not match' derive/distance.c \
    's/far ? far : 1/far/'
fault 'batches that a GEMM has too many of' derive/distance.c \
    's/ && g.batch <= ein__extent_of(s, both & ~p->sums))/)/'
fault 'a rule that best first forgets' derive/explore.c 's/ein__todo_push(heap, t)/if (r \& 1) &/'
fault 'a choice for any map' derive/search.c 's/p->choice\[i\]\.map\.i == c\.map\.i/true/'
finish
