"""docs/ops.md says which options exclude each other: those pairs are refused, and no others."""

import inspect
import itertools
import re
from pathlib import Path

import mlx.core as mx
import pytest

import mlx_norms

TEXT = (Path(__file__).parents[2] / "docs" / "ops.md").read_text()
X, W = mx.ones((2, 4, 8)), mx.ones(8)
HEADS = "a weight `[H, D]`"
# A value of each option that has an effect; that of an array is X.
OPTIONS = {
    "weight_offset": 1.0,
    "rounding": "late",
    "scale": 0.5,
    "shift": 0.5,
    "activation": "silu",
    "num_groups": 2,
    "dtype": mx.float16,
    "axis": 1,
    "clamp": True,
    "factor": 2.0,
}
WITHOUT_EFFECT = ("norm_before_gate", "group", "stream")  # alone, or of one process
OF = ("rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm")


def excluded():
    """The pairs of the page's table, by op."""
    table = TEXT.partition("## What excludes what")[2].partition("\n## ")[0]
    pairs = {}
    for row in re.findall(r"^\| (`.*) \| (.*) \| (.*) \|$", table, re.M):
        ops, options, others = (re.findall(r"a weight `\[H, D\]`|`(\w+)`", cell) for cell in row)
        named = [[name or HEADS for name in names] for names in (ops, options, others)]
        for op, *pair in itertools.product(*named):
            pairs.setdefault(op, set()).add(frozenset(pair))
    return pairs


def options(op):
    """Those of the signature, by name, each with a value."""
    named = inspect.signature(getattr(mlx_norms, op)).parameters.values()
    given = {
        of.name: X if of.annotation == "mx.array | None" else OPTIONS[of.name]
        for of in named
        if of.kind == of.KEYWORD_ONLY and of.name not in WITHOUT_EFFECT
    }
    return given | {HEADS: mx.ones((4, 8))}


def call(op, names):
    given = {name: options(op)[name] for name in names}
    weight = given.pop(HEADS, mx.ones(4) if "axis" in given else W)
    residual = [X] if op.startswith("add_") else []
    mx.eval(getattr(mlx_norms, op)(X, *residual, weight, **given))


@pytest.mark.parametrize("op", OF)
def test_pairs_that_are_not_in_the_table_go_together(op):
    pairs = excluded().get(op, ())
    for pair in itertools.combinations(options(op), 2):
        if frozenset(pair) in pairs:
            with pytest.raises(ValueError, match=rf"^\[{op}\] (\w+) must "):
                call(op, pair)
        else:
            call(op, pair)


def test_layouts_and_bases_are_among_them():
    assert excluded()["norm_rope"] == {frozenset({"base", "freqs"})}
    with pytest.raises(ValueError, match="Only one of base or freqs"):
        mlx_norms.norm_rope(X[None], None, layout="BHLD", offset=0, base=5.0, freqs=mx.ones(4))


def test_a_group_is_excluded_by_what_the_table_says():
    group = mx.distributed.init()
    for pair in excluded()["rms_norm"]:
        (other,) = pair - {"group"} if "group" in pair else [None]
        if other and other not in ("axis", HEADS):
            with pytest.raises(ValueError, match="group must be None with"):
                mlx_norms.rms_norm(X, W, group=group, **{other: options("rms_norm")[other]})
