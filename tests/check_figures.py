#!/usr/bin/env python3
"""Tests bench/figures.py on invented measurements: shares, verdicts, dashes, and what it refuses.
Ends with `N passed, N failed`.
"""

import os
import subprocess
import sys
import tempfile

from harness import ROOT, Checks

HEAD = "figure\tstatus\tmedian_us\testimate\tsteps\tcalls\tbytes\tflop"
ROWS = """template/map\tok\t100\t90 us\t1\t0\t360000000\t0
template/transpose_narrow\tok\t100\t90 us\t1\t0\t330000000\t0
template/gather\tok\t100\t90 us\t1\t0\t330000000\t0
template/row\tdiffers\t100\t90 us\t1\t0\t390000000\t0
template/t99_failed\tfailed\t-\t-\t-\t-\t-\t-
template/t10_band\tok\t1000\t90 us\t1\t0\t64\t26000000000
template/t12_attention\tok\t1000\t90 us\t1\t0\t64\t27000000000
template/t12_attention_tf32\tok\t1000\t90 us\t1\t0\t64\t170000000000
template/t12_attention_fp16\tok\t1000\t90 us\t1\t0\t64\t170000000000
template/t12_wrong\tdiffers\t1000\t90 us\t1\t0\t64\t27000000000
layer/gemm/none\tok\t10\t9 us\t1\t0\t64\t0
layer/gemm/all\tok\t9\t9 us\t1\t1\t64\t0
layer/gemm/calls\tok\t9\t9 us\t1\t1\t64\t0
layer/slow/none\tok\t20\t9 us\t1\t0\t64\t0
layer/slow/calls\tok\t9\t9 us\t1\t1\t64\t0
layer/alone/none\tok\t20\t9 us\t1\t0\t64\t0
layer/alone/calls\tok\t9\t9 us\t1\t0\t64\t0
form/conv/0\tok\t30\t9 us\t1\t1\t64\t0
form/conv/1\tok\t20\t9 us\t1\t1\t64\t0
form/conv/2\tdiffers\t1\t9 us\t1\t1\t64\t0
form/conv/plan\tok\t10\t9 us\t2\t1\t64\t0
form/stays/0\tok\t30\t9 us\t1\t1\t64\t0
form/stays/1\tok\t60\t9 us\t1\t1\t64\t0"""
LIMITS = ["copy_gbps\t%d\t%d" % (1 << 28 << i, rate) for i, rate in enumerate((3900, 4000, 4100))]
LIMITS += ["sgemm_tflops\t1024\t30", "sgemm_tflops\t8192\t50", "tf32_tflops\t8192\t400",
           "# fp16_tflops 8192: failed"]
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
                ("one bound by arithmetic",
                 "| t10_band | 26 | 1000 | 26 | FMA | 50 | 52 % | >= 50 %", "| pass |"),
                ("another one, which wants more",
                 "| t12_attention | 27 | 1000 | 27 | FMA | 50 | 54 % | >= 55 %", "| FAIL |"),
                ("by tensor cores", "| t12_attention_tf32 | 170 | 1000 | 170 | tensor cores, TF32 |"
                 " 400 | 42 % | >= 40 %", "| pass |"),
                ("by those whose peak is not known",
                 "| t12_attention_fp16 | 170 | 1000 | 170 | tensor cores, FP16 | - | - | >= 40 %",
                 "| not measured |"),
                ("a wrong one", "| t12_wrong | 27 | - | - | FMA | 50 | -", "| differs |"),
                ("what was not built", "| t99_failed | 0 | - | - | -", "| failed |"),
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
        bandwidth = text.split("## Templates bound by arithmetic")[0]
        check("bandwidth is no measure of those", "| t10_" not in bandwidth, text)
        check("it ends well", code == 0, text)
        code, text = run(folder, [HEAD] + ROWS.split("\n"))
        check("without a device's limits", "| map | 360 | 100 | 3600 | - |" in text, text)
        check("without the units' peaks", "| t10_band | 26 | 1000 | 26 | FMA | - | - |" in text,
              text)
        check("nothing of builds", "## Programs" not in text, text)
        code, text = run(folder, [HEAD])
        check("no figure at all", code == 0 and "##" not in text, text)
        code, text = run(folder, [HEAD, "template/map\tok"])
        check("a row with too few fields", code == 1 and ":2: 2 fields, not 8" in text, text)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
