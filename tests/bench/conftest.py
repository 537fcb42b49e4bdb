"""What tests of the bench command run on."""

import mlx.core as mx
import pytest

from command import cli
from harness import clocks, conditions, device_copy, ladder, measuring
from mlx_norms._measure import timing
from support.bench_case import CACHE


@pytest.fixture
def small_machine(request, monkeypatch):
    """A machine of little cache, and short samples."""
    monkeypatch.setattr(conditions, "cache_bytes", lambda: CACHE)
    monkeypatch.setattr(device_copy, "size", lambda: 1 << 18)
    monkeypatch.setattr(device_copy, "measure", lambda size: timing.Samples((size / (1 << 28),)))
    monkeypatch.setattr(measuring, "_copies", lambda moved: {})
    monkeypatch.setattr(clocks.HostClock, "sample_seconds", 1e-3)
    monkeypatch.setattr(measuring, "_PEAK_SIZE", {"cpu": 64, "cuda": 1024, "metal": 64})
    before = mx.default_device()
    if "backend" not in request.fixturenames:
        mx.set_default_device(mx.cpu)
    yield
    mx.set_default_device(before)


@pytest.fixture
def rungs_anywhere(monkeypatch):
    """Rungs run on the CPU: each is MLX's own."""
    own = {"layer": lambda x, w, b: mx.fast.layer_norm(x, w, b, 1e-5), "sgemm": mx.matmul}
    monkeypatch.setattr(ladder, "function", lambda config, rung: own[config.op])
    monkeypatch.setattr(cli, "_device", lambda args: mx.cpu)
