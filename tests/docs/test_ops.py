"""docs/ops.md says which options exclude each other: those pairs are refused, and no others."""

import itertools
import re
from pathlib import Path

import mlx.core as mx
import pytest

import mlx_norms

TEXT = (Path(__file__).parents[2] / "docs" / "ops.md").read_text()
X, W = mx.ones((2, 4, 8)), mx.ones(8)
# A value of each option that has an effect.
OPTIONS = {
    "weight_offset": 1.0,
    "rounding": "late",
    "scale": 0.5,
    "shift": 0.5,
    "gate": X,
    "activation": "silu",
    "num_groups": 2,
    "dtype": mx.float16,
    "axis": 1,
    "a weight `[H, D]`": mx.ones((4, 8)),
    "clamp": True,
    "residual2": X,
    "factor": 2.0,
}
OF = {
    "rms_norm": ("gate", "num_groups", "axis", "activation"),
    "layer_norm": ("axis", "activation"),
    "add_rms_norm": ("clamp", "residual2", "factor"),
    "add_layer_norm": ("clamp", "residual2", "factor"),
}
SHARED = ("weight_offset", "rounding", "scale", "shift", "dtype", "a weight `[H, D]`")


def excluded():
    """The pairs of the page's table, by op."""
    table = TEXT.partition("## What excludes what")[2].partition("\n## ")[0]
    pairs = {}
    for row in re.findall(r"^\| (`.*) \| (.*) \| (.*) \|$", table, re.M):
        ops, options, others = (re.findall(r"a weight `\[H, D\]`|`(\w+)`", cell) for cell in row)
        named = [
            [name or "a weight `[H, D]`" for name in names] for names in (ops, options, others)
        ]
        for op, *pair in itertools.product(*named):
            pairs.setdefault(op, set()).add(frozenset(pair))
    return pairs


def call(op, names):
    given = {name: OPTIONS[name] for name in names}
    weight = given.pop("a weight `[H, D]`", mx.ones(4) if "axis" in given else W)
    residual = [X] if op.startswith("add_") else []
    mx.eval(getattr(mlx_norms, op)(X, *residual, weight, **given))


@pytest.mark.parametrize("op", OF)
def test_pairs_that_are_not_in_the_table_go_together(op):
    pairs, names = excluded()[op], [*SHARED, *OF[op]]
    assert len(pairs) >= 1
    for pair in itertools.combinations(names, 2):
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
        if other and other not in ("axis", "a weight `[H, D]`"):
            with pytest.raises(ValueError, match="group must be None with"):
                mlx_norms.rms_norm(X, W, group=group, **{other: OPTIONS[other]})
