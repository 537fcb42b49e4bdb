"""What is chosen by the generation of Apple's GPU changes launches, and no bits of norms."""

import mlx.core as mx
import pytest

import mlx_norms
from mlx_norms import _ext
from support.inputs import normal
from support.rope_case import qk_norm_rope

pytestmark = [
    pytest.mark.usefixtures("backend"),
    pytest.mark.gpu,
    pytest.mark.backends("metal", "metal-sim"),
]

X, W = normal((1, 5, 3, 64), mx.float32, seed=1), normal((64,), mx.float32, seed=2)
ROW = normal((1, 4096), mx.float32, seed=3)
QUANTIZED = mx.quantize(normal((40, 512), mx.float32, seed=4), group_size=32, bits=4)
CALLS = {
    "norm": lambda: [mlx_norms.rms_norm(X, W)],
    "rope": lambda: list(qk_norm_rope(X, X, W, W, offset=3)),
}


@pytest.fixture
def choose():
    chosen = []

    def choose(name, value):
        chosen.append(name)
        _ext.set_choice(name, value)

    yield choose
    for name in chosen:
        _ext.set_choice(name, None)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("threads", [32, 64])
def test_threadgroups_of_few_rows(call, threads, choose):
    today = call()
    mx.eval(today)
    choose("group_threads", threads)
    for _ in range(3):  # the last ones by a plan of before
        found = call()
        mx.eval(found)
        assert all(map(mx.array_equal, found, today))


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_threads_of_a_launch(call, launches, choose):
    (before,) = launches(*call())
    choose("group_threads", 32)
    (few,) = launches(*call())
    assert before.group == (256, 1, 1) and few.group == (32, 1, 1)
    assert few.grid[0] == 8 * before.grid[0] and few.kernel == before.kernel
    choose("few_groups", 0)
    (many,) = launches(*call())
    assert many.group == before.group and many.grid == before.grid


def test_rows_of_several_simd_groups_stay(launches, choose):
    (before,) = launches(mlx_norms.rms_norm(ROW))
    choose("group_threads", 32)
    (after,) = launches(mlx_norms.rms_norm(ROW))
    assert before.constants["simds_per_row"] > 1 and after.group == before.group


def test_few_threads(launches, choose):
    (before,) = launches(mlx_norms.rms_norm(ROW))
    choose("few_threads", 4096)
    (after,) = launches(mlx_norms.rms_norm(ROW))
    assert not before.constants["fetch_first"] and after.constants["fetch_first"]


def test_simd_groups_of_a_product(launches, choose):
    def product():
        return mlx_norms.quantized_matmul(ROW[:, :512], *QUANTIZED, group_size=32)

    (before,) = launches(product())
    for simds in (1, 2, 8):
        choose("product_simds", simds)
        (launch,) = launches(product())
        assert launch.kernel == before.kernel and launch.group == (32 * simds, 1, 1)
        assert launch.constants["simds_per_row"] == simds


def test_there_is_no_such_choice():
    with pytest.raises(ValueError, match="no choice elements"):
        _ext.set_choice("elements", 1)


def test_pipelines_say_their_first_launch():
    mx.eval(mlx_norms.rms_norm(X, W))
    groups = {name: group for name, *_, group in _ext.built_pipelines()}
    assert 256 in {group for name, group in groups.items() if name.startswith("norm_4_1_")}
