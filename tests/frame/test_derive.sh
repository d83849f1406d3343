#!/bin/sh
# Every application of a derivation rule on all models and on random scopes, checked modulo 2^61-1;
# and the check itself: rules made unsound on purpose must be caught.
. "$(dirname "$0")/lib.sh"

# build OPTION DIRECTORY TEST PROGRAM
build() {
    gcc -std=c11 "$1" -I"$2" -Ibuild "tests/$3.c" -o "$4" -lm
}
check 'the checker builds' build -O2 gen test_derive "$work/derive"
"$work/derive" models/*.ein models/cases/*.ein tests/unseen/*.ein > "$work/log" 2>&1
if [ $? = 0 ]; then pass; else fail 'every rule keeps the value' "$work/log"; fi
check 'the random scopes build' build -O2 gen test_rules "$work/rules"
"$work/rules" > "$work/log" 2>&1
if [ $? = 0 ]; then pass; else fail 'every rule keeps random scopes' "$work/log"; fi

# fault NAME FILE SED: the change, planted in a copy of the sources, must be caught by the check of
# a single step, on random scopes.
fault() {
    rm -rf "$work/gen"
    mkdir "$work/gen"
    cp gen/*.c gen/*.h "$work/gen"
    sed "$3" "gen/$2" > "$work/gen/$2"
    if cmp -s "gen/$2" "$work/gen/$2"; then
        fail "$1: the fault is planted"
        return
    fi
    check "$1: the faulty rule builds" build -O0 "$work/gen" test_rules "$work/faulty"
    "$work/faulty" 3000 1 stop > "$work/log" 2>&1
    if grep -q 'changes the value' "$work/log"; then pass; else fail "$1 is caught" "$work/log"; fi
}
fault 'a window one place too far' derive.c \
    's/z->d\[at\]\.lo + rest);/z->d[at].lo + rest + 1);/'
fault 'a range tightened one too far' derive.c \
    's/\.shape\.d\[k\] - 1 - rest, end/.shape.d[k] - 2 - rest, end/'
fault 'the range of a form forgotten' derive.c \
    's/= ein__ix_addc(ctx, dims\.d\[i\]\.form, -dims\.d\[i\]\.lo)/= dims.d[i].form/'
fault 'tightening by one of several factors with sums in the read' derive.c \
    's/if (ein__ix_get(ctx, r->ix\[k\])->n != f->n || r->bits) return/if (r->bits) return/'
fault 'a factor lost in a split' rule_split.c \
    's/body = outside\.i ? ein__ex_binary(ctx, EIN__MUL, outside, w) : w;/body = w;/'
fault 'the constant lost in a split' rule_split.c \
    's/if (alpha != 1) body/if (alpha > 1) body/'
fault 'digits a place too high' rule_digits.c \
    's/lo \* g->d + c0)/lo * g->d)/'
fault 'a low digit left out' rule_digits.c \
    's/at = ein__ix_add(ctx, at, ein__ix_iter(ctx, (uint32_t)low, c->t\.n\[low\]));/;/'
fault 'rounding of a sum that nothing pads' rule_digits.c \
    's/s->n\[i\] % g->d && !(padded >> i & 1)/false/'
fault 'a multiple lost beside a digit' rule_digits.c \
    's/g->whole\[i\] = ein__ix_add(ctx, ein__ix_scale/(void)ein__ix_add(ctx, ein__ix_scale/'
fault 'the wrong phase of a denominator' rule_point.c \
    's/ein__floormod(-inverse, p->phases)/ein__floormod(inverse + 1, p->phases)/'
fault 'a block of taps at the wrong place' rule_taps.c \
    's/ix\[n++\] = ein__ix_addc(ctx, at, -b\[a\]\.lo);/ix[n++] = at;/'
finish
