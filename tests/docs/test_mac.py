"""bench/mac.py times calls that compute the same, and each in one launch."""

import csv
import subprocess
import sys

import mlx.core as mx
import pytest

import mac
from mlx_norms import _ext
from support.table import assert_close
from support.variant import ROOT


@pytest.fixture
def products_of_more_rows():
    _ext.set_product_rows(max(mac.PRODUCT_ROWS))
    yield
    _ext.set_product_rows(0)


def arrays_in(results):
    return list(results) if isinstance(results, list | tuple) else [results]


@pytest.mark.usefixtures("backend", "products_of_more_rows")
def test_sides_agree():
    mx.random.seed(0)
    for row in mac.rows(tiny=True):
        both = [arrays_in(f(*row.arrays)) for f in (row.ours, row.stock)]
        mx.eval(both)
        # MLX's products round weights to 16 bits, and its chains each step.
        tolerance = 1e-5 if "float32" in row.name else 0.03
        assert_close(*both, tolerance, row.name)


@pytest.mark.gpu
@pytest.mark.usefixtures("products_of_more_rows")
def test_products_of_more_rows_are_one_launch(launches):
    for row in mac.products(128, 8):
        mx.eval(row.arrays)
        (launch,) = launches(*arrays_in(row.ours(*row.arrays)))
        assert launch.kernel.startswith("norm_linear"), row.name


@pytest.mark.slow
def test_script(tmp_path):
    file = tmp_path / "mac.csv"
    command = [sys.executable, "bench", "mac", "--device", "cpu", "--csv", file]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert {row["how"] for row in rows} == {"many", "one", "first", "checked"}
    assert all(float(row["us"]) > 0 for row in rows)
    assert [row["side"] for row in rows] == ["ours", "stock"] * (len(rows) // 2)
