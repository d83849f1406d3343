#!/bin/sh
# bench/gpu.sh without a GPU: its options, and the whole path with the judge instead of nvcc. With
# torch (PYTHON=...) our program meets the peers too; without, the comparison says why it is absent.
. "$(dirname "$0")/../frame/lib.sh"

check 'the program builds' make -s all
for file in bench/*.sh tests/peers/stand_in.sh; do
    check "$file is a script" bash -n $file
done

# refused NAME OPTION...: a mistake in the options ends with 2 before anything is done.
refused() {
    name=$1
    shift
    bash bench/gpu.sh "$@" > "$work/log" 2>&1
    if [ $? = 2 ]; then pass; else fail "$name is refused" "$work/log"; fi
}
refused 'an unknown option' --what
refused 'an unknown phase' --phase what
refused 'a number of rounds that is none' --rounds x
refused 'an option without its value' --peers

# named NAME TITLE: what tables of costs call the GPU that names itself TITLE; '' has no row.
named() {
    got=$(bash -c '. bench/costs.sh; title=$1; device_name' - "$2")
    if [ "$got" = "$1" ]; then pass; else fail "$2 is '$1', not '$got'"; fi
}
named h200 'NVIDIA H200'
named h100 'NVIDIA H100 80GB HBM3'
named a100-40 'NVIDIA A100-SXM4-40GB'
named '' 'NVIDIA GH200 480GB'

if ! command -v nvcc > /dev/null; then
    echo 'skipped: the judge needs the headers of nvcc'
    finish
fi
PYTHON=${PYTHON:-.venv/bin/python}
OUT=$work/out
export PYTHON OUT
stand_in() {
    bash bench/gpu.sh --stand-in --only cases/conv3x3 --peers eager --rounds 1 "$@"
}
check 'a model whose name ends like a suffix has its weights' bash bench/gpu.sh --stand-in \
    --fresh --only bert_base --phase emit --phase build --phase check
check 'and is right' grep -q -P '^bert_base\tok\t' "$OUT/check.tsv"
check 'so without derivation' grep -q -P '^bert_base_base\tok\t' "$OUT/check.tsv"
check 'the whole path runs' stand_in
cp "$work/log" "$work/first"
check 'it finds our programs right' grep -q -P '^cases/conv3x3_base\tok\t' "$OUT/check.tsv"
check 'it times them' grep -q '"median_us"' "$OUT/bench.jsonl"
check 'rows have names' grep -q -P '^model\tbatch\tprecision\tsystem\t' "$OUT/peers.tsv"
check 'figures: an operator case' stand_in --phase templates --phase report
for form in 0 1 plan; do
    check "figures: form $form" grep -q -P "^form/conv3x3/$form\tok\t[0-9.]+\t" "$OUT/figures.tsv"
done
check 'figures: a table' grep -q '^| conv3x3 | [0-9]' "$OUT/report/h200.figures.md"
if $PYTHON -c 'import torch' 2> /dev/null; then
    for system in ours base eager; do
        check "$system was measured twice" [ 2 = "$(grep -c -P "\t$system\t[^\t]*\tok\t" \
            "$OUT/peers.tsv")" ]
    done
    check 'there is a report' grep -q '| cases/conv3x3 | 1 |' "$OUT/report/h200.md"
    check 'and a second run' stand_in
    check 'does nothing again' sh -c "! grep -q '^\(peers\|check\|bench\) cases' '$work/log'"
else
    check 'without torch it says so' grep -q 'has no torch' "$work/first"
    check 'and that nothing was compared' grep -q 'nothing was compared' "$work/first"
fi
finish
