"""The examples in the docstrings print what they say."""

import doctest
from pathlib import Path

import mlx.core as mx
import pytest

import mlx_norms
from support.documented import OPS


def examples(name):
    op = getattr(mlx_norms, name)
    return doctest.DocTestParser().get_doctest(
        op.__doc__, {"mx": mx, "mlx_norms": mlx_norms}, name, None, 0
    )


@pytest.mark.parametrize("name", [name for name in OPS if examples(name).examples])
def test_examples(name):
    """On the CPU: the last digits of a GPU's may differ."""
    runner = doctest.DocTestRunner()
    results = runner.run(examples(name))
    assert results.attempted > 0 and results.failed == 0


def test_options_are_shown_by_example():
    assert 'rounding="late"' in examples("rms_norm").docstring
    assert "dtype=mx.float32" in examples("layer_norm").docstring
    assert "clamp=True" in examples("add_rms_norm").docstring


def test_marker_of_types_is_installed():
    assert any((Path(root) / "py.typed").exists() for root in mlx_norms.__path__)
