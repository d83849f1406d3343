#!/bin/sh
# Rows of our own kernels in tables of costs: keys are of what a kernel computes, rows change plans,
# name tiles, and are lost when the kernel's text is another one. All figures here are invented.
. "$(dirname "$0")/lib.sh"

einnet=build/einnet
check 'the program builds' make -s all
model=models/cases/conv3x3.ein
libs='--libs none'

# keys_of MODEL OPTION...: the kernels that a probe measures, those of the chosen plan first.
keys_of() {
    $einnet probe "$@" $libs --kernels 10000 -o "$work/probe.cu" 2> "$work/log" || return 1
    sed -n 's/^ *{"\(kernel [^"]*\)", "\([0-9a-f]*\)",.*/\1\t\2/p' "$work/probe.cu"
}

# rows_of PICOSECONDS: rows of keys with their texts.
rows_of() {
    awk -F '\t' -v OFS='\t' -v ps="$1" \
        '{ print "h200", $1, ps, 3, "einnet 1 text " $2 " driver 1" }'
}

# plan_of OPTION...: the lines of the plan.
plan_of() {
    $einnet emit "$model" $libs "$@" -o - 2> "$work/log" |
        grep -E '^// +[0-9.]+ [mun]s (est\.|measured) '
}

# ---- keys

keys_of "$model" > "$work/keys"
[ "$(wc -l < "$work/keys")" -gt 5 ] && pass || fail 'there are kernels' "$work/keys"
for kind in product reduce; do
    check "a $kind" grep -q "^kernel $kind [0-9a-f]\{16\}" "$work/keys"
done
cut -f1 "$work/keys" | sort | uniq -d > "$found"
empty 'no key twice'
sed -E 's/\b(x|k)\b/other_\1/g; s/^(other_)?y\b/result/; s/^output y/output result/' "$model" \
    > "$work/renamed.ein"
cmp -s "$model" "$work/renamed.ein" && fail 'names are changed'
keys_of "$work/renamed.ein" > "$work/other"
check 'names are not in keys' cmp "$work/keys" "$work/other"
keys_of "$model" --math tf32 | grep product > "$work/other"
grep -F -f "$work/other" "$work/keys" > "$found"
empty 'products of another arithmetic are other kernels'
keys_of models/cases/four_conv1x1.ein "$model" | sort > "$work/several"
keys_of "$model" models/cases/four_conv1x1.ein | sort > "$work/other"
check 'the order of models does not matter' cmp "$work/several" "$work/other"
sort "$work/keys" | comm -23 - "$work/several" > "$found"
empty 'several models have the kernels of each'

# masked ITERATOR: attentions whose heads share keys, of which a mask hides those behind ITERATOR.
masked() {
    printf '%s\n' 'ein 1' 'model masked' 'dim H = 64' 'input q: f32[H,H,H]' 'input k: f32[H,H]' \
        'input w: f32[H,H,H]' 'output y' 'output z' 'r = Tanh(q)' \
        "m[h,i,j] = select(idx(j) <= idx($1), exp(tanh(w[h,i,j])), -3.4028235e38)"
    for pair in q:y r:z; do
        s=${pair#*:}
        printf '%s\n' "s$s[h,i,j] = sum(d) ${pair%:*}[h,i,d] * k[j,d]" \
            "a$s[h,i,j] = s$s[h,i,j] + m[h,i,j]" "p$s = Softmax(a$s; axis=-1)" \
            "$s[h,i,d] = sum(j) p$s[h,i,j] * k[j,d]"
    done
}
for iterator in h i; do
    masked $iterator > "$work/masked.ein"
    keys_of "$work/masked.ein" | grep attention > "$work/by_$iterator"
done
[ -s "$work/by_h" ] && pass || fail 'there are attentions' "$work/log"
cut -f1 "$work/by_h" | grep -F -f - "$work/by_i" > "$found"
empty 'attentions whose masks go by other rows have other keys'

# ---- tiles

check 'a product is planned' sh -c "$einnet emit $model $libs -o - | grep -q ' est\. .*k_product'"
grep product "$work/keys" | rows_of 9000000 > "$work/slow"
for tile in 16x64x64 32x32x32 64x64x16; do
    sed "/algo=$tile/s/9000000/2000000/" "$work/slow" > "$work/table"
    plan_of --costs "$work/table" > "$work/plan"
    check "tile $tile is measured" grep -q '2.0 us measured .*k_product' "$work/plan"
    arguments=$(echo $tile | sed 's/x/, /g')
    check "tile $tile is taken" sh -c "$einnet emit $model $libs --costs $work/table -o - |
        grep -q 'product_tile<$arguments, '"
done
grep -v "algo=16x64x64" "$work/slow" > "$work/table"
check 'a measured tile is taken before one that is not' sh -c \
    "$einnet emit $model $libs --costs $work/table -o - | grep -q 'us measured .*k_product'"

# ---- plans

plan_of > "$work/chosen"
sed -n 's/.* \(k_[a-z]*_[0-9a-f]*\).*/\1/p' "$work/chosen" > "$work/names"
sed 's/.*_/text /' "$work/names" > "$work/texts"
rows_of 900000000 < "$work/keys" | grep -F -f "$work/texts" > "$work/table"
[ -s "$work/table" ] && pass || fail 'the plan has kernels that are measured'
plan_of --costs "$work/table" > "$work/plan"
grep -F -f "$work/names" "$work/plan" | grep product > "$found"
empty 'the plan leaves kernels that are slow'
sed 's/^text /\t/' "$work/texts" > "$work/ends"
grep -v -F -f "$work/ends" "$work/keys" | grep 'kernel basis\|kernel product' |
    rows_of 1000 > "$work/fast"
cat "$work/fast" "$work/table" > "$work/both"
plan_of --costs "$work/both" > "$work/other"
check 'a runner-up wins' grep -q 'us measured .*k_' "$work/other"
sed 's/^h200/l4/' "$work/both" > "$work/foreign"
plan_of --costs "$work/foreign" > "$work/other"
check 'rows of another GPU do not count' cmp "$work/chosen" "$work/other"
check 'the plan is proved' $einnet verify "$model" $libs --small --costs "$work/both"

# ---- texts

rows_of 1000 < "$work/keys" > "$work/all"
keys_of "$model" --costs "$work/all" > "$work/rest"
cut -f1 "$work/keys" > "$work/names"
grep -F -f "$work/names" "$work/rest" > "$found"
empty 'what a table has is not measured again'
sed 's/text [0-9a-f]*/text 00000000/' "$work/all" > "$work/older"
plan_of --costs "$work/older" | grep 'measured .*k_' > "$found"
empty 'a row of another text is no measurement of this kernel'
keys_of "$model" --costs "$work/older" > "$work/rest"
check 'it is measured again' grep -q -F -f "$work/names" "$work/rest"
$einnet costs "$work/older" "$work/all" > "$work/merged" 2> "$work/log" && pass ||
    fail 'another text is no conflict' "$work/log"
$einnet costs "$work/all" > "$work/want"
check 'the later text stays' cmp "$work/merged" "$work/want"
sed 's/\t1000\t/\t1001\t/' "$work/all" > "$work/later"
$einnet costs "$work/all" "$work/later" > "$work/out" 2> "$work/log"
[ $? = 3 ] && grep -q -- '--prefer' "$work/log" && pass || fail 'the same text is a conflict'

# A template's change is every kernel's of its kind.
if plant 'seed' cost/kernel_key.c 's/ctx->kernel_seed.kind./& + (kind == EIN__K_PRODUCT)/'; then
    clang -std=c11 -O0 -w -I"$work/gen" -Ibuild -isystem build/onnx -o "$work/einnet" \
        "$work"/gen/einnet.c "$work"/gen/cli/*.c "$work"/gen/import/*.c build/onnx/onnx.pb-c.c \
        -lprotobuf-c -lm > "$work/log" 2>&1 && pass || fail 'it builds' "$work/log"
    einnet=$work/einnet
    keys_of "$model" > "$work/other"
    grep product "$work/keys" | grep -F -f - "$work/other" > "$found"
    empty 'products have other keys'
    grep -v product "$work/keys" > "$work/want"
    grep -v product "$work/other" > "$work/rest"
    check 'other kinds have not' cmp "$work/want" "$work/rest"
fi
finish
