#!/usr/bin/env python3
"""Tests bench/figures.py on invented measurements: shares, verdicts, dashes, and what it refuses.
Ends with `N passed, N failed`.
"""

import os
import subprocess
import sys
import tempfile

from harness import ROOT, Checks

HEAD = "figure\tstatus\tmedian_us\testimate\tsteps\tcalls\tbytes"
ROWS = """template/map\tok\t100\t90 us\t1\t0\t360000000
template/transpose_narrow\tok\t100\t90 us\t1\t0\t330000000
template/gather\tok\t100\t90 us\t1\t0\t330000000
template/row\tdiffers\t100\t90 us\t1\t0\t390000000
layer/gemm/none\tok\t10\t9 us\t1\t0\t64
layer/gemm/all\tok\t9\t9 us\t1\t1\t64
layer/gemm/calls\tok\t9\t9 us\t1\t1\t64
layer/slow/none\tok\t20\t9 us\t1\t0\t64
layer/slow/calls\tok\t9\t9 us\t1\t1\t64
layer/alone/none\tok\t20\t9 us\t1\t0\t64
layer/alone/calls\tok\t9\t9 us\t1\t0\t64
form/conv/0\tok\t30\t9 us\t1\t1\t64
form/conv/1\tok\t20\t9 us\t1\t1\t64
form/conv/2\tdiffers\t1\t9 us\t1\t1\t64
form/conv/plan\tok\t10\t9 us\t2\t1\t64
form/stays/0\tok\t30\t9 us\t1\t1\t64
form/stays/1\tok\t60\t9 us\t1\t1\t64"""
LIMITS = ["copy_gbps\t%d\t%d" % (1 << 28 << i, rate) for i, rate in enumerate((3900, 4000, 4100))]
BUILDS = ["a\tok\t3\t100\tspills 0", "b\tok\t21\t100\tspills 8", "c\tfailed\t2\t\tno"]

checks = Checks()
check = checks.check


def run(folder, rows, **files):
    """Exit code, and the report or what was said instead."""
    path = {name: os.path.join(folder, name) for name in ("figures", "limits", "builds", "out")}
    if os.path.exists(path["out"]):
        os.remove(path["out"])
    command = [sys.executable, os.path.join(ROOT, "bench", "figures.py"), "--out", path["out"]]
    for name, lines in dict(files, figures=rows).items():
        with open(path[name], "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        command += ["--" + name, path[name]]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        return done.returncode, done.stdout
    with open(path["out"], encoding="utf-8") as file:
        return 0, file.read()


def main():
    with tempfile.TemporaryDirectory() as folder:
        code, text = run(folder, [HEAD] + ROWS.split("\n"), limits=LIMITS, builds=BUILDS)
        lines = text.splitlines()
        for name, start, end in (
                ("a share that is enough", "| map | 360 | 100 | 3600 | 90 % | >= 85 %", "| pass |"),
                ("one of a transpose", "| transpose_narrow | 330 | 100 | 3300 | 82 % | >= 80 %",
                 "| pass |"),
                ("one that falls short", "| gather | 330 | 100 | 3300 | 82 % | >= 85 %",
                 "| FAIL |"),
                ("a wrong result has no share", "| row | 390 | - | - | -", "| differs |"),
                ("a layer", "| gemm | 10 | 9 | 9 | 90 %", "| pass |"),
                ("a slow layer", "| slow | 20 | - | 9 | 45 %", "| FAIL |"),
                ("a library without a call", "| alone | 20 | - | - | -", "| not measured |"),
                ("the plan wins", "| conv | 30 | 20 | - | 10", "| the plan, 3.00 times as fast |"),
                ("the original wins", "| stays | 30 | 60 | - | -",
                 "| the original: form 1 takes 2.00 times as long |"),
                ("the slowest to compile", "| slowest to compile | 21 s (b)", "| FAIL |"),
                ("what does not build", "| programs that do not build | 1", "| FAIL |"),
                ("what spills", "| programs with spills | 1", "| FAIL |")):
            check(name, any(l.startswith(start) and l.endswith(end) for l in lines), text)
        check("it ends well", code == 0, text)
        code, text = run(folder, [HEAD] + ROWS.split("\n"))
        check("without a device's limits", "| map | 360 | 100 | 3600 | - |" in text, text)
        check("nothing of builds", "## Programs" not in text, text)
        code, text = run(folder, [HEAD])
        check("no figure at all", code == 0 and "##" not in text, text)
        code, text = run(folder, [HEAD, "template/map\tok"])
        check("a row with too few fields", code == 1 and ":2: 2 fields, not 7" in text, text)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
