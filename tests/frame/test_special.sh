#!/bin/sh
# No special cases: what comes after lowering knows no operator, no model and no layer's sizes. And
# the greps themselves: what they look for is found when it is planted.
. "$(dirname "$0")/lib.sh"

# Modules after lowering, in the order of the root file, and those that derive and choose.
sed -n '\|^#include "lower/lower.c"|,$s/^#include "\(.*\.c\)"/\1/p' gen/all.h |
    grep -v '^lower/' > "$work/after"
grep -E '^derive/|/(rule|match|select|layout)\.c$' "$work/after" > "$work/deriving"
[ "$(wc -l < "$work/after")" -gt 20 ] && [ "$(wc -l < "$work/deriving")" -gt 6 ] && pass ||
    fail 'the modules are known'

# Operators are the rows of the table; models the files, whose sizes are layers' sizes.
sed -n 's/^    {"\([A-Z][A-Za-z0-9]*\)",.*/\1/p' gen/parse/ops.c > "$work/operators"
ls models/*.ein | sed 's|.*/||; s/\.ein$//; s/_.*//' | sort -u > "$work/models"
[ "$(wc -l < "$work/operators")" -gt 50 ] && [ "$(wc -l < "$work/models")" -gt 5 ] && pass ||
    fail 'the operators and models are known'

# code FILE: without comments.
code() {
    sed 's|//.*||' "$1"
}

# named FILE...: lines that name an operator (by itself or as a string) or a model.
named() {
    for file; do
        code "$file" | grep -n -w -F -f "$work/operators" | sed "s|^|$file:|"
        code "$file" | grep -n -i -F -f "$work/models" | sed "s|^|$file:|"
    done
}

# sized FILE...: integers from 25 on that are no named limit, no row of the rule table, no
# percentage and no buffer of text.
sized() {
    for file; do
        code "$file" | grep -n -w -E '2[5-9]|[3-9][0-9]|[1-9][0-9]{2,}' |
            grep -v -E 'EIN__[A-Z_]+ = [0-9]+|^[0-9]+: +\{"|\.quota = [0-9]+,' |
            grep -v -w -E '100|char [a-z]+\[[0-9]+\]|& 63|1u << 31|2\^61-1|UINT64_C' |
            sed "s|^|$file:|"
    done
}

# branded FILE...: lines that look at a name or at the graph's operators to decide something.
branded() {
    for file; do
        code "$file" | grep -n -E 'str(n?cmp|str|chr)\(|graph\.node|->op == .*"|\.attr\b' |
            sed "s|^|$file:|"
    done
}

# Explaining prints the kinds of calls, which may be called like operators; the table of rules looks
# at rules' names, and the choice makes names.
cd gen || exit 1
named $(grep -v '^explain/' "$work/after") > "$found"
empty 'no operator and no model is named after lowering'
sized $(cat "$work/deriving") > "$found"
empty 'no layer sizes where derivations are made'
branded $(grep -v -E '/(rules|search|extract)\.c' "$work/deriving") > "$found"
empty 'no rule looks at names'

# planted GREP LINE
planted() {
    echo "$2" > "$work/planted.c"
    "$1" "$work/planted.c" > "$work/log"
    if [ -s "$work/log" ]; then pass; else fail "$1 finds: $2"; fi
}
planted named '    if (node->op == Conv) return;'
planted named '    x = "ConvTranspose";'
planted named '    fast = is_gcn(ctx);'
planted sized '    if (s->n[0] == 512) d = 2;'
planted sized '    static const int64_t tile[] = {8, 448};'
planted branded '    if (!strcmp(v->name, "conv1")) return;'
planted branded '    if (ctx->graph.node[v->node].op) return;'
finish
