"""What the check_*.py have in common: where things are, emitted programs and what the judge says of
them, and the count of what passed."""

import os
import re
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
# Whether more of the same is asked for, as tests/run_all.sh says.
LONG = bool(os.environ.get("LONG"))
EINNET = os.environ.get("EINNET", os.path.join(ROOT, "build", "einnet"))
JUDGE = os.path.join(HERE, "judge", "judgecc")


def emit(folder, model, *options):
    """The program of a model."""
    path = os.path.join(folder, "out.cu")
    subprocess.run([EINNET, "emit", model, "-o", path, *options], check=True)
    with open(path) as file:
        return file.read()


def steps(text):
    """How many steps a program has."""
    return int(re.search(r"^// plan +(\d+) step", text, re.M).group(1))


def cost(text):
    """What a program is said to take, in microseconds."""
    return float(re.search(r"^// plan +\d+ steps?, ([\d.]+) us", text, re.M).group(1))


def probed(folder, model, *options):
    """The program that measures what planning a model asks for."""
    path = os.path.join(folder, "probe.cu")
    subprocess.run([EINNET, "probe", model, "-o", path, *options], check=True)
    with open(path) as file:
        return file.read()


def write_costs(path, keys, ps):
    """A table in which each of these kernels takes as many picoseconds."""
    with open(path, "w") as file:
        for key in keys:
            file.write("h200\t%s\t%d\t1\teinnet 1\n" % (key, ps))


class Judged:
    """A model's program, its test program and its weights; the judge runs the program as it is, or
    with what was planted in it."""

    def __init__(self, folder, model, *options):
        self.base = os.path.join(folder, "judged")
        sizes = [word for at, word in enumerate(options)
                 if word in ("--small", "--dim") or options[at - 1:at] == ("--dim",)]
        subprocess.run([EINNET, "emit", model, "-o", self.base + ".cu", "--test",
                        self.base + "_test.cu", *options], check=True)
        subprocess.run([EINNET, "pack", model, "-o", self.base + ".weights", *sizes], check=True)
        with open(self.base + ".cu") as file:
            self.text = file.read()

    def status(self, text=None, mode="plain", order="rev"):
        """What it ends with."""
        source = self.base + "_planted.cu"
        with open(source, "w") as file:
            file.write(self.text if text is None else text)
        subprocess.run([JUDGE, "--quick", "--mode", mode, "-o", self.base, "--light",
                        self.base + "_test.cu", source], check=True)
        env = dict(os.environ, JUDGE_ORDER=order, OPENBLAS_NUM_THREADS="1")
        return subprocess.run([self.base, self.base + ".weights", "--check"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600,
                              env=env).returncode


class Checks:
    """Counts checks; one that fails prints its name and why."""

    def __init__(self):
        self.passed = self.failed = 0

    def check(self, name, right, why=""):
        self.passed += bool(right)
        self.failed += not right
        if not right:
            print("FAIL %s%s" % (name, ": %s" % (why,) if why else ""), flush=True)

    def expect(self, name, want, got):
        self.check(name, want == got, "got %s, want %s" % (got, want))

    def none(self, name, problems):
        """One check, for which all of `problems` must be missing."""
        self.check(name, not problems, "\n     ".join(problems))

    def notices(self, name, program, planted, **how):
        """A fault is planted in a judged program; in a long run it is noticed."""
        self.check(name + ": there is what is planted", planted != program.text)
        if LONG:
            self.check(name + " is noticed", program.status(planted, **how) != 0)

    def finish(self):
        """The last line of a part's output; its exit status."""
        print("%d passed, %d failed" % (self.passed, self.failed))
        return 1 if self.failed else 0
