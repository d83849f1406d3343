"""Comparison of results with a reference. Everything that is not shown to be equal differs."""

import os

import numpy as np


def compare(a, b, rel=1e-5, exact=False):
    """(text, same) of a result `a` against the reference `b`.

    The figure is the relative L2 error over finite places; NaN must stand where NaN stands, an
    infinity where the same infinity stands.
    """
    if a.shape != b.shape:
        return "shape %s, reference %s" % (list(a.shape), list(b.shape)), False
    if exact and a.dtype.kind in "iub" and b.dtype.kind in "iub":
        wrong = int((a.astype(np.int64) != b.astype(np.int64)).sum())
        return "%d of %d elements differ" % (wrong, a.size), wrong == 0
    a, b = a.astype(np.float64), b.astype(np.float64)
    strange = ~np.isfinite(a) | ~np.isfinite(b)
    alike = (np.isnan(a) & np.isnan(b)) | (a == b)
    lost = int((strange & ~alike).sum())
    if lost:
        return "NaN or infinity at %d of %d places where the other has none" % (lost, a.size), False
    if exact:
        wrong = int((~alike).sum())
        return "%d of %d elements differ" % (wrong, a.size), wrong == 0
    a, b = a[~strange], b[~strange]
    distance, norm = float(np.linalg.norm(a - b)), float(np.linalg.norm(b))
    error = distance / norm if norm > 0 else distance
    worst = float(np.abs(a - b).max()) if a.size else 0.0
    same = error <= rel      # false for NaN
    return "relative L2 error %.3e (limit %.1e), largest difference %.3e" % (
        error, rel, worst), same


def compare_directories(a, b, rel=1e-5, exact=False):
    """(lines, same): the same .npy files must be in both, and each must agree."""
    names = sorted(n for d in (a, b) for n in os.listdir(d) if n.endswith(".npy"))
    names = list(dict.fromkeys(names))
    lines, all_same = [], bool(names)
    if not names:
        lines.append("no .npy files")
    for name in names:
        missing = [d for d in (a, b) if not os.path.exists(os.path.join(d, name))]
        if missing:
            text, same = "missing in %s" % missing[0], False
        else:
            text, same = compare(np.load(os.path.join(a, name), allow_pickle=False),
                                 np.load(os.path.join(b, name), allow_pickle=False), rel, exact)
        lines.append("%s %s: %s" % ("ok  " if same else "FAIL", name, text))
        all_same = all_same and same
    return lines, all_same
