"""How many pipelines Metal compiles as an op is first used, with its self-check."""

import json
import subprocess
from pathlib import Path

import pytest

from hostmetal.build import for_tests
from mlx_norms._table import OPS
from support import hangs

pytestmark = [pytest.mark.instrument, pytest.mark.build]

# By op, forward and with its gradients, when samples were few and reached fewer kernels.
BEFORE = json.loads((Path(__file__).parents[1] / "support/first_use_pipelines.json").read_text())
MORE = 2

COUNT = """
import json
import os
import hostmetal
import mlx.core as mx
import mlx_norms
from mlx_norms import _ext
from mlx_norms._table import OPS

SIZES = dict(B=2, N=3, D=64, H=2, K=2, L=3, C=16, P=5, M=8)

def pipelines(op, backward):
    simulator = hostmetal.start()
    mx.set_default_device(mx.cpu)
    arrays = [
        mx.random.normal(op.shape(name, SIZES), key=mx.random.key(i))
        for i, name in enumerate(op.inputs)
    ]
    mx.eval(arrays)
    ours = op.ours()
    loss = lambda *args: sum(mx.sin(y).sum() for y in ours(*args))
    f = mx.grad(loss, list(range(len(arrays)))) if backward else ours
    mx.eval(f(*arrays))
    simulator.wait()
    assert not simulator.faults, simulator.faults
    return len(_ext.built_pipelines())

# Each in a process of its own, where nothing has been built or checked.
for name, op in OPS.items():
    for backward in (False, True):
        child = os.fork()
        if child == 0:
            print(json.dumps([name, backward, pipelines(op, backward)]), flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, (name, backward)
"""


def test_first_uses():
    done = for_tests("_ext").python(
        "-c",
        COUNT,
        variables={"MLX_NORMS_SELF_CHECK": "1"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=hangs.SECONDS,
    )
    assert done.returncode == 0
    counts = {name: [0, 0] for name in OPS}
    for name, backward, count in map(json.loads, done.stdout.splitlines()):
        counts[name][backward] = count
    assert BEFORE.keys() == OPS.keys()
    for name, now in counts.items():
        if now != BEFORE[name]:
            print(f"{name}: {BEFORE[name]} before, {now} now")
    too_many = {
        name: now
        for name, now in counts.items()
        if any(n > before + MORE for n, before in zip(now, BEFORE[name], strict=True))
    }
    assert not too_many
