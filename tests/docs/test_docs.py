"""The examples in the docstrings print what they say."""

import ast
import doctest
import inspect
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
    assert "dtype=mx.float32" in examples("rms_norm").docstring
    assert "clamp=True" in examples("add_rms_norm").docstring


def test_stub_and_marker_are_installed():
    roots = [Path(root) for root in mlx_norms.__path__]
    (stub,) = [root / "_ext.pyi" for root in roots if (root / "_ext.pyi").exists()]
    assert any((root / "py.typed").exists() for root in roots)
    functions = [
        node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.FunctionDef)
    ]
    named = {f.name: [a.arg for a in (*f.args.args, *f.args.kwonlyargs)] for f in functions}
    ladders = mlx_norms.ladders
    ops = {name: getattr(mlx_norms, name) for name in OPS}
    ops |= {"layer_norm_by_rung": ladders.layer_norm, "sgemm_by_rung": ladders.sgemm}
    for name, op in ops.items():
        assert named[name] == [*inspect.signature(op).parameters]
