#!/bin/sh
# The unit tests, which see the library's inside, under the sanitizers.
. "$(dirname "$0")/lib.sh"

make -s build/templates.inc || exit 1
gcc -std=c11 -g1 -O0 -Wall -Wextra -Werror -fsanitize=address,undefined \
    -fno-sanitize-recover=all -Igen -Ibuild tests/test_units.c -o "$work/test" -lm || exit 1
"$work/test"
