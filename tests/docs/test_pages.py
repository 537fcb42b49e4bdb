"""Large outputs on the CPU ask for huge pages, where the system has them."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

import mlx_norms

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def flags_of_pages_at(address):
    """The system's flags of the mapping there, by two letters each."""
    found = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if first == "VmFlags:" and found:
            return rest
        begin, dash, end = first.partition("-")
        if dash:
            found = int(begin, 16) <= address < int(end, 16)
    raise AssertionError(f"no mapping at {address:#x}")


@pytest.mark.applies(HUGE_PAGES.exists())
@pytest.mark.parametrize("op", ["rms_norm", "add_rms_norm"])
def test_large_outputs_ask_for_huge_pages(op):
    """So large that malloc maps them anew, whatever it did before."""
    with mx.stream(mx.cpu):
        x = mx.ones((4096, 4096))
        mx.eval(x)  # and held, so that it lends no memory
        others = (x,) if op == "add_rms_norm" else ()
        outputs = getattr(mlx_norms, op)(x, *others, mx.ones((4096,)), 1e-5)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        mx.eval(outputs)
    for array in outputs:
        view = np.array(array, copy=False)
        assert "hg" in flags_of_pages_at(view.ctypes.data + view.nbytes // 2)
