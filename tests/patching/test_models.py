"""Every architecture of mlx_lm, tiny: logits stock and patched, and how many norms are fused, with
residual adds and ropes."""

import importlib.util
import re
import sys
from pathlib import Path

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten, tree_unflatten

import mlx_norms
from mlx_norms.commands import CommandError, _tiny_models
from support import model_fusions

WITHOUT_NORM_WEIGHTS = {"nanochat", "talkie"}  # all of their norms are called without one

FUSIONS = model_fusions.stored()
ROPES = model_fusions.stored_ropes()

of_described = pytest.mark.applies(model_fusions.DESCRIBED)


@pytest.fixture(scope="module", autouse=True)
def cpu():
    before = mx.default_device()
    mx.set_default_device(mx.cpu)
    yield
    mx.set_default_device(before)


def norm_weights(model):
    """The norms' weights by name, those that are nested the least first: the last norm's."""
    weights = [
        (name, value)
        for name, value in tree_flatten(model.parameters())
        if re.search(r"(norm|ln)[^.]*\.weight$", name)
    ]
    return sorted(weights, key=lambda item: (item[0].count("."), len(item[0])))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.applies(model_fusions.is_there(name)))
        for name in FUSIONS
    ],
)
def test_patched_logits(name):
    """One prefill and one decode step: as stock, unless one element of a norm's weight is off."""
    model = _tiny_models.build(name)
    tokens = model_fusions.tokens(name)
    stock = model_fusions.logits(model, tokens)
    with mlx_norms.patched():
        patched = model_fusions.logits(model, tokens)
    report = mlx_norms.report()
    assert model_fusions.fusions(report) == FUSIONS[name]
    assert (report.ropes, report.rope_pairs) == ROPES.get(name, (0, 0))
    assert model_fusions.agree(patched, stock)

    weights = norm_weights(model)
    assert not any(mx.any(weight == 1).item() for _, weight in weights)
    assert (not weights) == (name in WITHOUT_NORM_WEIGHTS)
    if not weights:
        return
    path, weight = weights[0]
    model.update(tree_unflatten([(path, weight.at[0].multiply(1.05))]))
    with mlx_norms.patched():
        perturbed = model_fusions.logits(model, tokens)
    assert not model_fusions.agree(perturbed, stock)


def test_fusions_over_all_models():
    assert sum(FUSIONS.values()) >= 1500
    assert sum(count > 0 for count in FUSIONS.values()) >= 115


def test_ropes_over_all_models():
    assert len(ROPES) >= 30
    assert sum(pairs for _, pairs in ROPES.values()) >= 200


def test_counts_are_of_all_models_that_run():
    assert list(FUSIONS) == _tiny_models.names()


@of_described
def test_every_architecture_is_there():
    folder = Path(importlib.util.find_spec("mlx_lm").origin).parent / "models"
    architectures = {
        path.stem for path in folder.glob("*.py") if "\nclass ModelArgs" in path.read_text()
    }
    configured = {entry["module"] for entry in _tiny_models._configurations().values()}
    assert configured | {"olmo"} == architectures
    assert len(architectures) == 126


def test_parameters_come_from_the_seed_and_none_is_constant():
    first, again, other = (
        tree_flatten(_tiny_models.build("gemma2", seed).parameters(), destination={})
        for seed in (3, 3, 4)
    )
    for name, value in first.items():
        assert mx.array_equal(value, again[name])
        assert not mx.any(value == other[name]).item()
        assert mx.any(value != value.flatten()[0]).item()


@pytest.mark.parametrize(
    "name, message",
    [
        ("lama", "no tiny model 'lama', but there are .*llama"),
        ("?", "no tiny model '.' among .*llama, .*qwen3"),
        ("olmo", "no tiny model 'olmo': .*fails"),
        ("bitnet", "'bitnet' runs on Metal only"),
    ],
)
def test_what_cannot_be_built_is_said(name, message):
    with pytest.raises(ValueError, match=message):
        _tiny_models.build(name)
    with pytest.raises(ValueError, match=message):
        _tiny_models.vocabulary(name)


def test_missing_mlx_lm_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlx_lm.models.llama", None)
    with pytest.raises(CommandError, match="need mlx_lm.*: type  pip install mlx-lm==0.32.2"):
        _tiny_models.build("llama")
