#!/bin/sh
# golden.sh DIR: writes what out/ holds. Files there that no model makes any more are removed.
set -eu
cd "$(dirname "$0")/../.."
out=$1
einnet=build/einnet
mkdir -p "$out/cases"
list=$(mktemp)
trap 'rm -f "$list"' EXIT

emit() {
    for argument; do
        case $argument in "$out"/*) echo "$argument" >> "$list" ;; esac
    done
    $einnet emit "$@"
}

for model in models/*.ein; do
    name=$(basename "$model" .ein)
    emit "$model" -o "$out/$name.cu" --header "$out/$name.h"
done
emit models/resnet18.ein --test "$out/resnet18_test.cu"
emit models/resnet18.ein --dim N=16 --prefix resnet18_n16 -o "$out/resnet18_n16.cu"
for model in models/cases/*.ein; do
    emit "$model" -o "$out/cases/$(basename "$model" .ein).cu"
done
find "$out" -type f | while read -r file; do
    grep -q -x -F "$file" "$list" || rm "$file"
done
