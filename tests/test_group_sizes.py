"""Kernels declare the largest threadgroups that plans for Metal ask for.

Apple's compiler takes the number for a budget of registers: one too large costs registers, and a
launch beyond it is refused.
"""

import itertools
from math import prod

import mlx.core as mx
import pytest

import mlx_norms
from linear_case import case, most_rows
from metalsim import Library
from mlx_norms.ladders import LAYER_NORM, SGEMM
from variant import ROOT

pytestmark = [pytest.mark.backends("metal-sim"), pytest.mark.usefixtures("backend")]

# How a row is shared out changes at powers of two: they have the most threads of each kind.
LENGTHS = [1 << k for k in range(16)]
WIDTHS = (mx.float32, mx.float16)


def norms():
    for dtype in WIDTHS:
        for length in LENGTHS:
            x, w = mx.ones((1, length), dtype), mx.ones(length, dtype)
            yield [mlx_norms.layer_norm(x, w, w)]
            yield mx.vjp(mlx_norms.layer_norm, [x, w, w], [x])[1]
        rows = mx.ones((2, 3, 2, 3, 2, 300), dtype).transpose(4, 1, 3, 0, 2, 5)[..., ::2]
        yield [mlx_norms.rms_norm(rows)]  # more axes than a layout holds


def projections():
    for kind in (None, (4, 64), (8, 32)):
        for dtype in WIDTHS:
            for rows in range(1, most_rows(kind) + 1):
                for length in (128, 1 << 14):
                    yield case("rms_norm_linear", (rows, length), (5,), dtype, kinds=(kind,))()


def products():
    for rows, depths in {range(1, 9): (128, 1 << 12), (32, 64): (64,)}.items():
        for m, k in itertools.product(rows, depths):
            yield [mlx_norms.matmul(mx.ones((m, k)), mx.ones((k, 64)))]
            yield [mlx_norms.matmul(mx.ones((m, k)), mx.ones((64, k)).T)]


def ladders():
    for rung in SGEMM:
        yield [mlx_norms.matmul(mx.ones((40, 40)), mx.ones((40, 40)), kernel=rung.name)]
    for rung in LAYER_NORM[:-1]:  # but for ours
        for dtype in rung.dtypes:
            for length in LENGTHS:
                yield [mlx_norms.layer_norm(mx.ones((1, length), dtype), kernel=rung.name)]


def declared(folders):
    """The threads that the kernels in these folders declare, by name."""
    found = {}
    for path in (p for folder in folders for p in sorted(ROOT.glob(f"kernels/{folder}*.metal"))):
        library = Library(path, include=[ROOT])
        found |= {name: library.max_threads(name) for name in library.kernels()}
    return found


FAMILIES = {  # by folder; what is in matmul/cuda no plan for Metal asks for
    norms: ["", "norm_vjp/"],
    projections: ["linear/"],
    products: ["matmul/"],
    ladders: ["layer_norm_ladder/", "sgemm_ladder/"],
}


def test_families_are_all_there_are():
    folders = {
        f"{p.parent.relative_to(ROOT / 'kernels')}/" for p in ROOT.glob("kernels/**/*.metal")
    }
    known = {folder or "./" for folders in FAMILIES.values() for folder in folders}
    assert folders - {"matmul/cuda/"} == known


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_the_largest_groups_are_declared(launches, family):
    used = {}
    for arrays in family():
        for launch in launches(*arrays):
            used[launch.kernel] = max(used.get(launch.kernel, 0), prod(launch.group))
    limits = declared(FAMILIES[family])
    assert {name: used[name] for name in used.keys() & limits.keys()} == limits
    assert used.keys() <= limits.keys()
