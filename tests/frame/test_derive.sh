#!/bin/sh
# Every application of a derivation rule on all models and on random scopes, checked modulo 2^61-1;
# and the check itself: rules made unsound on purpose must be caught.
. "$(dirname "$0")/lib.sh"

# build COMPILER OPTION DIRECTORY PROGRAM
build() {
    "$1" -std=c11 "$2" -DEIN_STATIC -I"$3" -Ibuild tests/test_rules.c -o "$4" -lm
}
check 'the checker builds' build gcc -O1 gen "$work/rules"
# At full size these take half of the time, and what they have is in the others. A short run has a
# fifth of the unseen models.
small='models/gcn.ein models/resnet50.ein models/csrnet.ein'
unseen=$(ls tests/unseen/*.ein | awk -v all="${LONG:-}" 'all || NR % 5 == 1')
large=$(printf '%s\n' models/*.ein | grep -v -e gcn -e resnet50 -e csrnet.ein)
"$work/rules" models $large models/cases/*.ein -- $small $unseen > "$work/log" 2>&1
if [ $? = 0 ]; then pass; else fail 'every rule keeps the value' "$work/log"; fi
scopes=1200
[ -z "${LONG:-}" ] || scopes=4000
"$work/rules" $scopes > "$work/log" 2>&1
if [ $? = 0 ]; then pass; else fail 'every rule keeps random scopes' "$work/log"; fi

# Without any one rule, and without all that can be left out, the plan computes the same; in a short
# run each rule is left out of one of three models.
einnet=build/einnet
rules=$("$einnet" emit x.ein -o - --rules help |
    awk '/  (search|normal form|program|steps)  / && !/cannot/ {print $1}')
all=$(echo $rules | tr ' ' ',')
three='models/cases/conv5x5.ein models/cases/convtranspose.ein tests/unseen/attention.ein'
turn=0
for rule in $rules "$all"; do
    [ "$rule" = "$all" ] && whole=1 || whole=
    turn=$((turn % 3 + 1))
    for model in $(printf '%s\n' $three | awk -v all="${LONG:-}$whole" -v n=$turn 'all || NR == n')
    do
        check "$model without $rule" "$einnet" verify "$model" --small --rules="-$rule"
    done
done
"$einnet" emit models/cases/conv3x3.ein -o - --rules=-match > "$work/log" 2>&1
if grep -q 'cublas\|cudnn' "$work/log"; then
    fail 'no call without operator matching' "$work/log"
else
    pass
fi

# What follows asks whether the checks notice anything: where the rules are changed, not each time.
[ -n "${LONG:-}" ] || finish

# fault NAME FILE SED [FIRST]: the change, planted in a copy of the sources, must be caught by the
# check of a single step, on random scopes. FIRST of those above: the first that rare faults meet is
# not far behind it.
fault() {
    plant "$1" "$2" "$3" || return
    check "$1: the faulty rule builds" build clang -O0 "$work/gen" "$work/faulty"
    "$work/faulty" 1000 "${4:-1}" stop > "$work/log" 2>&1
    if grep -q 'changes the value' "$work/log"; then pass; else fail "$1 is caught" "$work/log"; fi
}
fault 'a window one place too far' derive/derive.c \
    's/z->d\[at\]\.lo + rest);/z->d[at].lo + rest + 1);/'
fault 'a range tightened one too far' prepare/rule.c \
    's/z->extent - 1 - z->window\.lo/z->extent - 2 - z->window.lo/'
fault 'the range of a form forgotten' derive/derive.c \
    's/= ein__ix_addc(ctx, dims\.d\[i\]\.form, -dims\.d\[i\]\.lo)/= dims.d[i].form/'
fault 'a box counted from the wrong end' derive/rule_parts.c \
    's/{last - hi, last - lo}/{-hi, -lo}/'
fault 'relaxing that takes places away' prepare/rule.c \
    's/r->lo -= more;/r->lo += more;/'
fault 'an operand with zeros that loses its first place' prepare/rule.c \
    's/if (whole) \*box = reads;/if (whole) box->lo++;/'
fault 'a map merged without its guard' prepare/fold.c \
    's/        if (f->lo < 0 || f->hi >= s->n\[i\])/        if (f->lo < 0)/'
fault 'a map merged in spite of its padding' prepare/fold.c \
    's/ || (!inside \&\& read->bits)) return/) return/'
fault 'a factor that lost its sign on the way to the weights' prepare/fold.c \
    's/\*term = left ? a : ein__ex_unary(ctx, EIN__NEG, a);/*term = a;/'
fault 'weights made at load for one place alone' prepare/fold.c \
    's/map\[i\] = ein__ix_iter(ctx, t->nt, s->n\[i\]);/(void)i;/'
fault 'a batch of members all in one place' derive/merge_joint.c \
    's/n), -i), 1);/n), 0), 1);/'
fault 'a result that overlaps the interior' derive/rule_parts.c \
    's/part\[i\]\.lo = in\.hi + 1;/part[i].lo = in.hi;/'
fault 'a part read where the whole is' derive/rule_parts.c \
    's/ein__ix_iter(ctx, i, s->n\[i\]), -at\[i\]\.lo)/ein__ix_iter(ctx, i, s->n[i]), 0)/'
fault 'a batch stride of the other operand' prepare/match.c \
    's/r->sa = b\.stride\[0\];/r->sa = b.stride[1];/'
fault 'channels padded with no weights' derive/rule_pad.c \
    's/order\[k\] == slot ? n :/order[k] == slot ? 1 :/'
fault 'channels that count groups innermost' prepare/match.c \
    's/channel\[\] = {EIN__C_IN, EIN__C_GROUP}/channel[] = {EIN__C_GROUP, EIN__C_IN}/'
fault 'a band that begins elsewhere' prepare/match.c \
    's/g->c = f->c;/g->c = f->c + 1;/'
fault 'a map fused that reads another place' select/select.c \
    's/\(return times == 1\) \&\& ein__reads_in_place(ctx, ein__ex_get(ctx, \*read), s);/\1;/'
fault 'a statistic of another row in registers' select/select.c \
    's/z->uses\[list\[k\]\.i\] || !own)/z->uses[list[k].i])/'
fault 'tightening by one of several factors with sums in the read' derive/derive.c \
    's/if (ein__ix_get(ctx, r->ix\[k\])->n != f->n || r->bits) return/if (r->bits) return/' 190
fault 'a factor lost in a split' derive/rule_split.c \
    's/body = outside\.i ? ein__ex_binary(ctx, EIN__MUL, outside, w) : w;/body = w;/'
fault 'the constant lost in a split' derive/rule_split.c \
    's/if (alpha != 1) body/if (alpha > 1) body/'
fault 'digits a place too high' derive/rule_digits.c \
    's/lo \* g->d + c0)/lo * g->d)/'
fault 'a low digit left out' derive/rule_digits.c \
    's/at = ein__ix_add(ctx, at, ein__ix_iter(ctx, (uint32_t)low, c->t\.n\[low\]));/;/'
fault 'rounding of a sum that nothing pads' derive/rule_digits.c \
    's/s->n\[i\] % g->d && !(padded >> i & 1)/false/'
fault 'a multiple lost beside a digit' derive/rule_digits.c \
    's/g->whole\[i\] = ein__ix_add(ctx, ein__ix_scale/(void)ein__ix_add(ctx, ein__ix_scale/' 1150
fault 'the wrong phase of a denominator' derive/rule_point.c \
    's/ein__floormod(-inverse, p->phases)/ein__floormod(inverse + 1, p->phases)/'
fault 'phases at a window that begins where the first one does' derive/rule_windows.c \
    's/ein__ix_addc(ctx, rest, least)/rest/' 1120
fault 'a block whose places are all the first one' derive/rule_toeplitz.c \
    's/ein__ix_mod(ctx, at\[z->x\], b)/ein__ix_mod(ctx, at[z->x], 1)/'
fault 'a band whose rows are all the first one' derive/rule_skew.c \
    's/ein__ix_mod(ctx, at\[z->m\], b)/ein__ix_mod(ctx, at[z->m], 1)/'
fault 'a band that begins with its blocks' derive/rule_skew.c \
    's/ein__ix_addc(ctx, map\[z->j\], low)/map[z->j]/'
fault 'windows one axis at a time whose padding adds up' derive/rule_separate.c \
    's/s->reduce == EIN__R_SUM *? pad == 0/s->reduce == EIN__R_SUM ? true/'
fault 'phases of what repeats all in one place' derive/rule_repeats.c \
    's/ein__ix_mod(ctx, it, r->phases), &r->t/ein__ix_mod(ctx, it, 1), \&r->t/'
fault 'channels of a concatenation that end too late' derive/rule_linear.c \
    's/z->hi\[slot\] = ein__least(hi, g.n - 1 - c);/z->hi[slot] = ein__least(hi, g.n - c);/'
fault 'a part of a concatenation with the weights of the first' derive/rule_beside.c \
    's/map\[slot\] = ein__ix_addc(ctx, at\[k\], lo);/map[slot] = at[k];/'
fault 'what is needed counted from where all begins' derive/rule_needed.c \
    's/ein__ix_addc(ctx, e.ix\[k\], -all\[e.val\].lo\[k\])/e.ix[k]/'
fault 'a constant pooled as if there were one place' derive/rule_linear.c \
    's/ein__ex_const(ctx, places), all)/ein__ex_const(ctx, 1), all)/'
fault 'a block of taps at the wrong place' derive/rule_taps.c \
    's/ix\[n++\] = ein__ix_addc(ctx, at, -b\[a\]\.lo);/ix[n++] = at;/'
fault 'an operand that loses its last place' derive/rule_tighten.c \
    's/part->hi\[slot\] = n - 1 - c;/part->hi[slot] = n - 2 - c;/'
fault 'weights made into one where a border lies between' derive/rule_distribute.c \
    's/        if (!covered) return false;/        (void)covered;/'
fault 'a collected product without its sign' derive/rule_distribute.c \
    's/ein__add_scaled(ctx, body, sum->t\[k\]\.scale,/ein__add_scaled(ctx, body, 1,/'
fault 'a gate that reads its first half twice' derive/rule_gate.c \
    's/g->half\[second\]/g->half[0]/'
fault 'a sorted row that counts itself among those before it' derive/rule_sorted.c \
    's/ein__ix_addc(ctx, behind, -1), o->block/behind, o->block/'
fault 'a row without weights that is given those of another' derive/rule_sorted.c \
    's/(double)o->weights), at, none)/(double)o->weights), at, at)/'
finish
