"""The Metal kernels' text, as Metal's compilers will see it."""

import importlib.metadata
import re
import subprocess
import sys

import pytest

from metalsim import Library, address_spaces, rules
from mlx_norms.ladders import SGEMM
from variant import ROOT


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """What the build embeds for the compiler at run time."""
    out = tmp_path_factory.mktemp("kernels") / "joined.metal"
    subprocess.run([sys.executable, ROOT / "kernels/join.py", "metal", out], check=True)
    return out.read_text()


def test_self_contained_ascii_without_what_metal_lacks(text):
    assert rules.check(text, self_contained=True) == []
    assert '#include "' not in text and "#pragma once" not in text


@pytest.mark.instrument
def test_address_spaces(text):
    if address_spaces.compiler() is None:
        pytest.skip("instrument missing: clang++, for the address spaces of MSL")
    assert address_spaces.check(text) == []


def test_every_kernel_is_in_it(text):
    """What the launch plans ask for by name."""
    widths = {
        "norm": {4: (1, 2, 3, 4, 8), 8: (1, 2, 3, 4)},
        "norm_vjp": {4: (1, 2, 4, 8), 8: (1, 2, 4)},
    }
    names = {f"{k}_{n}_{v}" for k, of in widths.items() for n, vs in of.items() for v in vs}
    names |= {"parameter_gradients_4", "parameter_gradients_8", "sum_partials"}
    names |= {"gather_rows_2", "gather_rows_4"}
    rows = {4: (1, 4), 8: (1, 2, 4, 8), 16: (1, 2, 4, 8)}
    names |= {f"norm_linear_{n}_{r}" for n, of in rows.items() for r in of}
    names |= {f"sgemm_{rung.name}" for rung in SGEMM}
    names |= {f"gemv_{way}_{rows}" for way in ("lines", "columns") for rows in range(1, 9)}
    names |= {f"gemv_line_tiles_{n}_{simds}" for n in (4, 8) for simds in (4, 8)}
    names |= {f"gemv_column_tiles_{n}_{simds}" for n in (4, 8) for simds in (4, 8, 16)}
    names.add("gemv_column_tiles_8_12")
    names |= {"simdgroup_blocked_32", "simdgroup_blocked_64"}
    rungs = ("naive", "naive_32", "shared", "simd", "vectorized", "fused", "robust", "welford")
    names |= {f"layer_norm_{rung}_4" for rung in rungs} | {"layer_norm_welford_2"}
    names |= {f"layer_norm_regtiled_4_{fours}" for fours in (1, 2, 4)}
    assert set(Library.from_source(text, name="kernels", check=1).kernels()) == names


def test_function_constants_have_indices_of_their_own(text):
    indices = re.findall(r"function_constant\((\d+)\)\]\];", text)
    assert len(indices) > 20
    assert len(set(indices)) == len(indices)


def test_the_package_has_no_instruments():
    files = {file.parts[0] for file in importlib.metadata.files("mlx_norms")}
    assert {name for name in files if not name.endswith(".dist-info")} == {"mlx_norms"}
