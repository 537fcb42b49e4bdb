"""Rows that are split over a group, and training with one: local processes, each a member."""

import io
import re
from pathlib import Path

import mlx.core as mx
import pytest

import mlx_norms
from support import ring
from support.bits import assert_same_bits
from support.inputs import normal

MEMBER = Path(__file__).parent / "member.py"


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_members(size, tmp_path):
    """Every case of member.py, in every member."""
    ring.run(MEMBER, size, tmp_path)


def test_group_of_one_is_no_group(backend):
    x, w = normal((3, 64), mx.float16, seed=1), normal((64,), mx.float16, seed=2)
    mx.eval(x, w)
    got = mlx_norms.rms_norm(x, w, group=mx.distributed.init())
    expected = mlx_norms.rms_norm(x, w)
    assert nodes(got) == nodes(expected) == ["mlx_norms::RMSNorm"]
    assert_same_bits(got, expected)


def nodes(a):
    """Names of the nodes in the graph of a."""
    text = io.StringIO()
    mx.export_to_dot(text, a)
    return re.findall('label ="(.*?)"', text.getvalue())


def test_group_of_another_type(backend):
    for group in (2, "ring", mx.distributed):
        with pytest.raises(TypeError, match=r"group must be mx.distributed.Group or None but is "):
            mlx_norms.rms_norm(mx.ones((2, 4)), group=group)
