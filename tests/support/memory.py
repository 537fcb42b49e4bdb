"""Memory that evaluating takes."""

import mlx.core as mx


def peak_bytes(make):
    """Most bytes that evaluating what ``make`` builds needs at once."""
    out = make()
    mx.synchronize()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    mx.eval(out)
    mx.synchronize()
    return mx.get_peak_memory() - before
