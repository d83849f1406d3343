#!/bin/sh
# Lists source files: `formatted` are those that clang-format rules, `all` those with caps on
# length. tests/lang/ holds texts that are wrong on purpose.
set -eu
cd "$(dirname "$0")/../.."
case $1 in
formatted) names='\.(c|h|cpp|cu)$' ;;
all) names='\.(c|h|cpp|cu|py|sh|awk)$|^Makefile$|/judgecc$|/run[a-z_]*$' ;;
esac
find Makefile gen templates tests bench models -type f \
    ! -path '*/__pycache__/*' ! -path 'tests/lang/*' | grep -E "$names" | LC_ALL=C sort
