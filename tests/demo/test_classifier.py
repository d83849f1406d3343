#!/usr/bin/env python3
"""PP-OCR's text orientation classifier, imported, emitted and run, against onnxruntime.

Twenty pictures, of ten lines of text upright and upside down, go one by one through the emitted
program on the CPU judge, and as one batch through the interpreter. Probabilities must agree within
a relative L2 error of 1e-5. Most are close to 0 or 1, where that says little, so each must also
agree by itself, within 1e-3, which bounds the error of the sums they come from.
Ends with `N passed, N failed`.
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile

import demo
import numpy as np

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
EINNET = os.path.join(ROOT, "build", "einnet")
JUDGE = os.path.join(ROOT, "tests", "judge", "judgecc")
SIZES = ["--dim", "x_0=1", "--dim", "x_2=48", "--dim", "x_3=192"]
WORDS = ("algebra", "GATHER", "Split & Slice", "3.14159", "kernel", "Winograd", "x", "tensor",
         "one long line of small text", "shared memory")


class Failure(Exception):
    pass


def run(*command, env=None):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
                          env=dict(os.environ, **(env or {})))
    if done.returncode:
        text = done.stdout.decode(errors="replace").strip().splitlines()
        raise Failure("%s %s: status %d: %s" % (os.path.basename(command[0]), command[1],
                                                done.returncode, " | ".join(text[-6:])))


def pictures():
    """Names and network inputs; the same ones on every run."""
    chance = random.Random(20)
    for word in WORDS:
        ink = "#%02x%02x%02x" % tuple(chance.randrange(0, 110) for _ in range(3))
        paper = "#%02x%02x%02x" % tuple(chance.randrange(170, 256) for _ in range(3))
        picture = demo.draw(word, chance.randrange(14, 60), ink, paper)
        for name, turn in demo.TURNS.items():
            label = "'%s' %s" % (word, name.replace("_", " "))
            yield label, demo.network_input(picture.rotate(turn))


def difference(got, want):
    """None when the answers agree, else what is wrong."""
    if got.shape != want.shape or not np.isfinite(got).all():
        return "shape %s, expected %s: %s" % (got.shape, want.shape, got)
    want = want.astype(np.float64)
    error = np.linalg.norm(got - want) / np.linalg.norm(want)
    if error > 1e-5:
        return "relative L2 error %.2e" % error
    small = np.abs(got / want - 1).max()
    return "a probability is off by %.2e of itself" % small if small > 1e-3 else None


class Cases:
    def __init__(self, model, folder):
        self.folder = folder
        self.passed = self.failed = 0
        ask = demo.reference(model)
        self.names, inputs = zip(*pictures())
        self.inputs = np.concatenate(inputs)
        self.want = np.concatenate([ask(x) for x in inputs])
        self.model = self.path("classifier.ein")
        self.weights = self.path("classifier.weights")
        run(EINNET, "import", model, "-o", self.model, "--weights",
            self.path("w.safetensors"), *SIZES)
        run(EINNET, "pack", self.model, "-o", self.weights)

    def path(self, name):
        return os.path.join(self.folder, name)

    def case(self, name, body):
        try:
            wrong = body()
        except (Failure, OSError, ValueError, subprocess.TimeoutExpired) as error:
            wrong = str(error)
        if wrong:
            self.failed += 1
            print("FAIL %s: %s" % (name, wrong))
        else:
            self.passed += 1

    def answers_to(self, command, x, env=None):
        np.save(self.path("x.npy"), x)
        out = self.path("answers")
        shutil.rmtree(out, ignore_errors=True)
        os.mkdir(out)
        run(*command, "--in", "x=" + self.path("x.npy"), "--out", out, env=env)
        return demo.output_of(out)

    def both_answers(self):
        count = np.bincount(self.want.argmax(axis=1), minlength=2)
        return None if count.min() >= 5 else "pictures by answer: %s" % count

    def interpreter(self):
        command = [EINNET, "eval", self.model, "--weights", self.weights,
                   "--dim", "x_0=%d" % len(self.inputs)]
        return difference(self.answers_to(command, self.inputs), self.want)

    def emitted(self):
        program = self.path("program")
        run(EINNET, "emit", self.model, "-o", program + ".cu", "--test", program + "_test.cu")
        run(JUDGE, "--quick", "-o", program, program + "_test.cu", program + ".cu")
        env = {"JUDGE_LEAKCHECK": "1", "OPENBLAS_NUM_THREADS": "1"}
        for i, name in enumerate(self.names):
            x, want = self.inputs[i:i + 1], self.want[i:i + 1]
            self.case(name, lambda: difference(
                self.answers_to([program, self.weights], x, env), want))


def main():
    folder = os.path.join(ROOT, "build", "demo")
    os.makedirs(folder, exist_ok=True)
    model = os.path.join(folder, "classifier.onnx")
    try:
        demo.fetch(model)
    except demo.Unavailable as error:
        print("skipped: %s" % error)
        print("0 passed, 0 failed")
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        try:
            cases = Cases(model, scratch)
        except (Failure, OSError) as error:
            print("FAIL import: %s\n0 passed, 1 failed" % error)
            return 1
        cases.case("the pictures have both answers", cases.both_answers)
        cases.case("the interpreter, all at once", cases.interpreter)
        if shutil.which("nvcc"):
            try:
                cases.emitted()
            except Failure as error:
                cases.case("emitted program", lambda: str(error))
        else:
            print("skipped: nvcc is not on PATH: the emitted program")
    print("%d passed, %d failed" % (cases.passed, cases.failed))
    return 1 if cases.failed else 0


if __name__ == "__main__":
    sys.exit(main())
