#!/bin/sh
# The unit tests, which see the library's inside, under the sanitizers.
. "$(dirname "$0")/lib.sh"

make -s build/templates.inc || exit 1
# clang takes half of gcc's time for it; its frames are larger, and some tests are deep.
cc=gcc
! command -v clang > /dev/null || ! ulimit -s 65536 || cc=clang
$cc -std=c11 -g1 -O0 -Wall -Wextra -Werror -fsanitize=address,undefined \
    -fno-sanitize-recover=all -Igen -Ibuild tests/test_units.c -o "$work/test" -lm || exit 1
"$work/test"
