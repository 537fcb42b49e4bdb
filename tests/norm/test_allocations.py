"""A call made before costs the heap what MLX's nodes do, and a launch made before nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.variant import ROOT

SOURCE = Path(__file__).parent.parent / "support" / "count_allocations.cpp"
pytestmark = [
    pytest.mark.usefixtures("backend"),
    pytest.mark.applies(sys.platform == "linux"),  # by its loader
]

COUNT = """
import ctypes
import json
import sys

import mlx.core as mx

import mlx_norms

sys.path.insert(0, "tests")
counter = ctypes.CDLL(sys.argv[1])
assert counter.find_extension()


def counts():
    found = (ctypes.c_long * 3)()
    counter.counts(found)
    return list(found)


def added(since):
    return [b - a for a, b in zip(since, counts())]

"""

# The heap's blocks for building a call, per call: all of them, of which one of a caller's kind.
BUILDING = """
x, w = mx.ones((4, 64)), mx.ones(64)
mx.eval(x, w)


def of_building(call):
    for _ in range(4):
        mx.eval(call())
    kept = [None] * 10
    since = counts()
    for i in range(10):
        kept[i] = call()
    return added(since)[0] / 10


def patched():
    with mlx_norms.patched():
        return of_building(lambda: mx.fast.rms_norm(x, w, 1e-5))


calls = {
    "add": lambda: mx.add(x, x),
    "divmod": lambda: mx.divmod(x, x),
    "rms_norm": lambda: mlx_norms.rms_norm(x, w),
    "layer_norm": lambda: mlx_norms.layer_norm(x, w, w),
    "scale and shift": lambda: mlx_norms.rms_norm(x, w, scale=w, shift=w),
    "add_rms_norm": lambda: mlx_norms.add_rms_norm(x, x, w),
}
found = {name: of_building(call) for name, call in calls.items()}
print(json.dumps(found | {"patched": patched()}))
"""

# The extension's own blocks and locks for encoding a launch that was made before.
ENCODING = """
from norm.test_recorded_calls import CALLS
from mlx_norms import _ext

found = {}
for name in sorted(CALLS.keys() - {"matmul"}):  # which is more than one launch on some GPUs
    for seed in range(3):
        mx.eval(CALLS[name](seed))
    result = CALLS[name](3)
    again, since = _ext.launches_encoded_again(), counts()
    mx.eval(result)
    found[name] = [*added(since)[1:], _ext.launches_encoded_again() - again]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def counter(tmp_path_factory):
    library = tmp_path_factory.mktemp("counter") / "counter.so"
    subprocess.run(
        ["c++", "-std=c++17", "-O1", "-shared", "-fPIC", SOURCE, "-o", library, "-ldl"], check=True
    )
    return library


def run(counter, script):
    done = subprocess.run(
        [sys.executable, "-c", COUNT + script, counter],
        env=os.environ | {"LD_PRELOAD": str(counter)},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_building_takes_no_more_blocks_than_a_node_of_mlx(counter):
    found = run(counter, BUILDING)
    of_one, of_two = found.pop("add"), found.pop("divmod")
    assert of_one > 0
    for name, blocks in found.items():
        assert blocks <= (of_two if name == "add_rms_norm" else of_one), name


@pytest.mark.gpu
def test_encoding_again_takes_no_block_and_no_lock(counter):
    for name, (blocks, locks, launches) in run(counter, ENCODING).items():
        assert (blocks, locks, launches) == (0, 0, 1), name
