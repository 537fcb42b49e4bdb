"""The table of shapes at which mx.fast was measured faster, which then computes them."""

import csv

import mlx.core as mx
import pytest

import mlx_norms
from mlx_norms import _ext
from mlx_norms.patching import slower

pytestmark = pytest.mark.usefixtures("backend")

ROWS, LENGTH = 4, 64


@pytest.fixture
def cells(backend):
    """Sets the table, of cells about rows of LENGTH float32 elements unless said otherwise."""

    def set_cells(*ops, dtype=mx.float32, rows=(2, ROWS), lengths=(LENGTH, 100), on=None):
        on = on or {"metal-sim": "metal"}.get(backend, backend)
        _ext.set_slower_cells([(on, op, dtype, *rows, *lengths) for op in ops])

    yield set_cells
    slower.load()


def norms(rows=ROWS, length=LENGTH):
    """The reasons of an RMS norm and a layer norm, each of an array and of a sum."""
    x = mx.ones((rows, length))
    w = mx.ones((length,))
    with mlx_norms.patched():
        mx.fast.rms_norm(x, w, 1e-5)
        mx.fast.layer_norm(x, w, None, 1e-5)
        mx.fast.rms_norm(x + x, w, 1e-5)
        mx.fast.layer_norm(x + x, w, None, 1e-5)
    report = mlx_norms.report()
    assert report.calls == 4
    return report.fused, report.passed_on


def test_without_a_cell(cells):
    cells()
    assert norms() == (2, 0)


@pytest.mark.parametrize("op", ["rms", "layer"])
def test_a_norm_alone(cells, op):
    cells(op)
    assert norms() == (2, 1)


@pytest.mark.parametrize("op", ["rms", "layer"])
def test_a_sum_whose_norm_alone_is_ours(cells, op):
    cells(f"add_{op}")
    assert norms() == (1, 0)
    assert any("measured slower" in reason for reason in mlx_norms.report().reasons)


def test_a_sum_neither_way(cells):
    cells("rms", "add_rms")
    assert norms() == (1, 2)
    assert any("measured faster" in reason for reason in mlx_norms.report().reasons)


@pytest.mark.parametrize(
    "rows, length, inside",
    [
        (2, 64, True),
        (4, 100, True),
        (1, 64, False),
        (5, 64, False),
        (4, 63, False),
        (4, 101, False),
    ],
)
def test_ranges_are_inclusive(cells, rows, length, inside):
    cells("rms")
    assert norms(rows, length) == (2, 1 if inside else 0)


@pytest.mark.parametrize("other", [{"dtype": mx.float16}, {"on": "another"}])
def test_cells_of_other_dtypes_and_backends(cells, other):
    cells("rms", "layer", "add_rms", "add_layer", **other)
    assert norms() == (2, 0)


def test_results_are_those_of_mx_fast(cells):
    cells("rms")
    x = mx.random.normal((ROWS, LENGTH))
    w = mx.random.normal((LENGTH,))
    with mlx_norms.patched():
        y = mx.fast.rms_norm(x, w, 1e-5)
    assert mx.array_equal(y, mx.fast.rms_norm(x, w, 1e-5))


def test_the_file(cells, monkeypatch, tmp_path):
    with slower.TABLE.open(newline="") as file:
        columns = csv.DictReader(file).fieldnames
    row = ["cpu", "rms", "float32", 2, 4, 64, 100, 0.9, "a chip", mx.__version__]
    file = tmp_path / "slower.csv"
    file.write_text("\n".join(",".join(map(str, line)) for line in (columns, row)))
    rows = []
    with monkeypatch.context() as patch:
        patch.setattr(slower, "TABLE", file)
        patch.setattr(_ext, "set_slower_cells", rows.extend)
        slower.load()
    assert rows == [("cpu", "rms", mx.float32, 2, 4, 64, 100)]
