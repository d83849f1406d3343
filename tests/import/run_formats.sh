#!/bin/sh
# Builds and runs the tests of the file formats under the sanitizers for addresses and undefined
# behaviour.
set -eu
cd "$(dirname "$0")/../.."
mkdir -p build/test
work=$(mktemp -d "$PWD/build/test/tmp.XXXXXX")
trap 'rm -rf "$work"' EXIT
gcc -std=c11 -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -Igen \
    tests/import/formats.c gen/cli/cli_file.c gen/cli/cli_tensor.c gen/cli/cli_npy.c \
    gen/cli/cli_safetensors.c -o "$work/formats" -lm
"$work/formats" "$work"
