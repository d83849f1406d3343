#!/bin/sh
# Prints README.md with its emitted code as it stands in out/resnet18.cu now: the plan's first lines
# in the first cuda block, the first three calls of `run` in the second.
set -eu
cd "$(dirname "$0")/../.."
awk '
    NR == FNR && /^\/\/ memory/ { left = 9 }
    NR == FNR && left-- > 0 { head = head $0 "\n" }
    NR == FNR && !steps && /^static int steps/ { steps = 1 }
    NR == FNR && steps == 1 && /^    (\/\/|CALL)/ { steps = 2 }
    NR == FNR && steps == 2 { run = run $0 "\n" }
    NR == FNR && steps == 2 && /^    CALL\(/ { calls++ }
    NR == FNR && steps == 2 && calls == 3 && /;$/ { steps = 3 }
    NR == FNR { next }
    /^```/ { skip = 0 }
    !skip
    /^```cuda$/ { printf "%s", ++n == 1 ? head : run; skip = 1 }' out/resnet18.cu README.md
