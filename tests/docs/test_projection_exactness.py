"""bench/projection_exactness.py measures what it says, and bench/pages/projections.py shows it."""

import dataclasses
import sys

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

import projection_exactness as exactness
from pages import projections

SEED = 3


@pytest.fixture(autouse=True)
def device_is_put_back():
    before = mx.default_device()
    yield
    mx.set_default_device(before)


def test_measures():
    exact = mx.array([[3.0, 4.0], [4.0, 3.0]])
    assert exactness.relative_rms(exact, exact) == 0
    assert exactness.relative_rms(exact.astype(mx.bfloat16) * 1.5, exact) == pytest.approx(0.5)
    assert exactness.agreement(exact[:, ::-1], exact) == 0
    assert exactness.agreement(mx.array([[3.0, 4.0], [3.0, 4.0]]), exact) == 0.5


@pytest.mark.parametrize("bits", [None, 4])
def test_a_widened_model_is_of_the_same_weights(bits):
    def built():
        mx.random.seed(SEED)
        return exactness.llama.build(exactness.llama.TINY, bits)[0]

    with mx.stream(mx.cpu):
        model, tokens = built(), mx.arange(4)[None]
        model.set_dtype(mx.float32)
        expected = model(tokens)
        wide = built()
        exactness.widen(wide)
        got = wide(tokens)
        assert got.dtype == mx.float32
        assert mx.allclose(got, expected, rtol=1e-4, atol=1e-5)
        assert {a.dtype for _, a in tree_flatten(wide.parameters())} == {mx.float32}


def test_widened_layers_keep_their_biases():
    layer = nn.QuantizedLinear(64, 32, bias=True)
    layer.bias = mx.arange(32.0)
    model = nn.Sequential(layer)
    exactness.widen(model)
    assert mx.allclose(model(mx.zeros((1, 64))), layer.bias)


@pytest.mark.gpu
@pytest.mark.parametrize("bits", [None, 4])
def test_distances(backend, bits):
    """Two projections of each layer and one before the head; both sides are of 16 bits."""
    shapes = exactness.llama.TINY
    found, projections, _ = exactness.distances(shapes, bits, SEED)
    assert projections == 2 * shapes.num_hidden_layers + 1
    stock, ours = (found["relative rms", side] for side in exactness.SIDES)
    assert 2**-10 < stock < 2**-4 and 2**-10 < ours < 2**-4 and stock != ours
    assert (found, projections) == exactness.distances(shapes, bits, SEED)[:2]


def test_no_figures_where_there_are_no_projections(monkeypatch, tmp_path, capsys):
    file = tmp_path / "figures.csv"
    arguments = ["--device", "cpu", "--seeds", "1", "--csv", str(file)]
    monkeypatch.setattr(sys, "argv", ["bench", "projection_exactness", *arguments])
    monkeypatch.setattr(exactness, "distances", lambda *_: ({}, 0, ""))
    with pytest.raises(SystemExit):
        exactness.main()
    assert "it takes a GPU" in capsys.readouterr().err and not file.exists()


def test_table_is_written(monkeypatch, tmp_path):
    """From a CSV of the script, whose models' distances are given here."""

    def distances(shapes, bits, seed):
        by_side = {"stock": 0.25 * (seed + 1), "projections": 0.125 * (seed + 1)}
        return {(m, s): by_side[s] for m in exactness.MEASURES for s in by_side}, 5, "a llama"

    monkeypatch.setattr(exactness, "distances", distances)
    arguments = ["--device", "cpu", "--seeds", "3", "--csv", str(tmp_path / "figures.csv")]
    monkeypatch.setattr(sys, "argv", ["bench", "projection_exactness", *arguments])
    exactness.main()

    page = tmp_path / "page.md"
    (part,) = projections.PARTS
    part = dataclasses.replace(part, page=page, results=(tmp_path / "figures",))
    page.write_text("before\n{}{}after\n".format(*part.marks))
    assert part.put(check=True) == 1
    assert part.put(write=True) == 0
    assert part.put(check=True) == 0
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n")
    formats = exactness.llama.FORMATS
    starts = tuple(f"| {name} |" for name in formats)
    lines = [line for line in text.splitlines() if line.startswith(starts)]
    assert len(lines) == len(formats) * len(exactness.MEASURES)
    for line in lines:
        cells = [cell.strip() for cell in line.split("|")[3:-1]]
        assert cells == ["0.5 (0.25 to 0.75)", "0.25 (0.125 to 0.375)", "0.5 (0.5 to 0.5)"]
