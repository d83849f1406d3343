"""Tests of `einnet import`: run.py PROGRAM [WORD ...] runs the cases whose names hold a WORD.

PROGRAM may be several words in quotes. Prints what failed and `N passed, N failed`.
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import numpy as np

import arithmetic  # noqa: F401
import attention  # noqa: F401
import cases
import compare
import hostile
import flow  # noqa: F401
import integers  # noqa: F401
import learned  # noqa: F401
import networks  # noqa: F401 - its cases are among those of `cases`
import constants  # noqa: F401
import picked  # noqa: F401
import places  # noqa: F401
import pooling  # noqa: F401
import quantised  # noqa: F401
import recurrent  # noqa: F401
import resizing  # noqa: F401
import sampling  # noqa: F401
import sequences  # noqa: F401
import transforms  # noqa: F401


def write_files(folder, files):
    for name, content in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if isinstance(content, tuple):
            os.symlink(content[1], path)
        elif isinstance(content, np.ndarray):
            np.save(path, content)
        else:
            with open(path, "wb") as f:
                f.write(content)


def check(program, name, folder):
    c = cases.CASES[name]()
    write_files(folder, c.files)
    path, ein = os.path.join(folder, "in.onnx"), os.path.join(folder, name + ".ein")
    with open(path, "wb") as f:
        f.write(c.model.SerializeToString())
    os.chdir(folder)
    code, messages = compare.run_import(program, [path, "-o", ein] + c.args)
    if code != c.code:
        return f"exit code {code}, not {c.code}: {messages}"
    text = messages
    if c.said is not None and re.sub(r"^\S*: ", "", messages.strip()) != c.said:
        return f"it says {messages!r}"
    if code == 0:
        with open(ein, encoding="utf-8") as f:
            text = f.read()
        if re.search(r"\s\n|\t|\r", text.replace("\n\n", "\n")):
            return "white space at the end of a line"
    elif os.path.exists(ein) or os.path.exists(ein[:-4] + ".safetensors"):
        return "a failed import left a file"
    for words in c.text:
        if words not in text:
            return f"{words!r} is not in:\n{text}"
    for words in c.not_text:
        if words in text:
            return f"{words!r} is in:\n{text}"
    if code == 0:
        done = subprocess.run(program + ["fmt", ein], capture_output=True)
        if done.returncode == 0 and done.stdout.decode() != text:
            return f"not in canonical form:\n{text}\n{done.stdout.decode()}"
    if code or not c.compare:
        return None
    again = os.path.join(folder, name + "2.ein")
    compare.run_import(program, [path, "-o", again, "--name", name] + c.args)
    with open(again, encoding="utf-8") as f:
        if f.read().replace(name + "2.safe", name + ".safe") != text:
            return "two imports differ"
    original = path
    if c.reference:
        original = os.path.join(folder, "reference.onnx")
        with open(original, "wb") as f:
            f.write(c.reference.SerializeToString())
    for dims in [None, c.dims] if c.dims else [None]:
        difference = compare.compare(original, ein, dims, c.inputs, c.tolerance, c.steps)
        if difference:
            return f"{difference}\n{text}"
    return None


def main():
    program, words = shlex.split(sys.argv[1]), sys.argv[2:]
    program[0] = os.path.abspath(program[0])
    passed = failed = 0
    tests = {name: lambda folder, name=name: check(program, name, folder) for name in cases.CASES}
    for name, f in hostile.TESTS.items():
        tests[name] = lambda folder, f=f: f(program, folder)
    for name, test in tests.items():
        if words and not any(w in name for w in words):
            continue
        folder = tempfile.mkdtemp(prefix="einnet_import_")
        try:
            problem = test(folder)
        except Exception as e:  # a model that does not even build is a failure of its case
            problem = f"{type(e).__name__}: {e}"
        os.chdir("/")
        shutil.rmtree(folder)
        if problem:
            failed += 1
            print(f"FAILED {name}: {problem}")
        else:
            passed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
