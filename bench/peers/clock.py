"""How every peer is timed: what an emitted test program's --bench does, in the same order."""

import math
import time

SETS = 8
SAMPLES = 50
FLUSH = 256 << 20


def figures(samples):
    """(median, 95th percentile) in microseconds of samples in milliseconds."""
    s = sorted(samples)
    n = len(s)
    return (s[(n - 1) // 2] + s[n // 2]) / 2 * 1e3, s[(n * 95 + 99) // 100 - 1] * 1e3


def sample_count(bench_ms):
    return SAMPLES if bench_ms >= 20 else 3 + int(bench_ms * (SAMPLES - 3) / 20)


def calibrate(replays, bench_ms):
    """Keeps the device busy for 50 samples, until its clocks are up; gives the number of replays
    that lasts `bench_ms`. `replays(n)` runs n of them and gives milliseconds for each."""
    begin, count, enough = time.perf_counter(), 1, False
    while not enough or (time.perf_counter() - begin) * 1e3 < 50 * bench_ms:
        ms = replays(count)
        enough = ms * count >= bench_ms or count >= 1 << 20
        if not enough:
            more = bench_ms / ms * 1.1 + 1 if ms > 0 else 8 * count
            count = min(8 * count, int(more))
    return count


def measure(system, bench_ms):
    """Warm, cold and single-shot times of a system with `replays(n)`, `cold()` and `single()`, each
    in milliseconds."""
    count = calibrate(system.replays, bench_ms)
    n = sample_count(bench_ms)
    warm = figures([system.replays(count) for _ in range(n)])
    cold = figures([system.cold() for _ in range(n)])
    single = figures([system.single() for _ in range(n)])
    return {"median_us": warm[0], "p95_us": warm[1], "cold_median_us": cold[0],
            "cold_p95_us": cold[1], "latency_median_us": single[0], "latency_p95_us": single[1],
            "replays": count}


def relative_error(got, want):
    """Largest relative L2 error of the outputs; infinite where a number is not finite."""
    import numpy as np
    worst = 0.0
    for a, b in zip(got, want):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        if a.shape != b.shape or not np.isfinite(a).all():
            return math.inf
        norm = float(np.linalg.norm(b))
        worst = max(worst, float(np.linalg.norm(a - b)) / (norm if norm > 0 else 1.0))
    return worst
