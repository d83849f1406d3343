#!/bin/sh
# Prints README.md with its emitted code as it stands in out/resnet18.cu now: the plan's first lines
# in the first cuda block, the first derived step of `run` in the second.
set -eu
cd "$(dirname "$0")/../.."
awk '
    NR == FNR && /^\/\/ memory/ { left = 9 }
    NR == FNR && left-- > 0 { head = head $0 "\n" }
    NR == FNR && !run && /^static int steps/ { steps = 1 }
    NR == FNR && steps && /^    \/\/ by basis/ { inside = 1 }
    NR == FNR && inside { run = run $0 "\n" }
    NR == FNR && inside && /CALL\(launch\(/ { inside = steps = 0 }
    NR == FNR { next }
    /^```/ { skip = 0 }
    !skip
    /^```cuda$/ { printf "%s", ++n == 1 ? head : run; skip = 1 }' out/resnet18.cu README.md
