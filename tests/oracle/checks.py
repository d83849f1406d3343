"""What the self-tests share: the list of tests, checks, and evaluation of a model's text."""

import numpy as np

import ein
import evaluate
import tensors
from compare import compare

TESTS = []


def test(function):
    TESTS.append(function)
    return function


def check(condition, text="condition"):
    if not condition:
        raise AssertionError(text)


def close(a, b, rel=1e-12, text=""):
    said, same = compare(np.asarray(a), np.asarray(b), rel)
    check(same, "%s %s" % (text, said))


def fails(text, wanted, **options):
    """The model is refused with a message that contains `wanted`."""
    try:
        results(text, **options)
    except ein.EinError as error:
        check(wanted in str(error), "message is: %s" % error)
        return error
    raise AssertionError("accepted: %s" % text)


def results(text, inputs=None, ints=False, **options):
    program = ein.loads("ein 1\n" + text, **options)
    given = evaluate.default_inputs(program, ints)
    given.update(inputs or {})
    return evaluate.evaluate(program, given, lambda n: tensors.weight(program, n, ints))


def only(text, inputs=None, **options):
    out = results(text, inputs, **options)
    return next(iter(out.values()))


def same_results(text, rel=1e-12, inputs=None):
    """The model's first two outputs are equal."""
    out = list(results(text, inputs).values())
    close(out[0], out[1], rel)
