"""The README's examples: what they run, and what it says that they print."""

import re
import shlex
from pathlib import Path

import pytest

from metalsim.__main__ import main
from published import kl_forward

pytestmark = pytest.mark.instrument

FOLDER = Path(__file__).parents[1]
README = (FOLDER / "README.md").read_text()
REDUCE = """
#include <metal_stdlib>
using namespace metal;
kernel void row_sum(
    device const float* x, device float* sums, constant uint& columns,
    uint row [[threadgroup_position_in_grid]], uint t [[thread_position_in_threadgroup]],
    uint n [[threads_per_threadgroup]], uint simd [[simdgroup_index_in_threadgroup]],
    uint simds [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float partial[32];
  float sum = 0;
  for (uint i = t; i < columns; i += n) { sum += x[row * columns + i]; }
  sum = simd_sum(sum);
  if (lane == 0) { partial[simd] = sum; }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  sum = simd_sum(lane < simds ? partial[lane] : 0);
  if (t == 0) { sums[row] = sum; }
}
"""


def commands(block):
    """The arguments of the block's calls of metalsim, and what follows them."""
    joined = block.replace("\\\n", "")
    return [shlex.split(line) for line in re.findall(r"^(?:\$ )?metalsim (.*)$", joined, re.M)]


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S)


@pytest.fixture
def own_file(tmp_path, monkeypatch):
    (tmp_path / "reduce.metal").write_text(REDUCE)
    monkeypatch.chdir(tmp_path)


def test_first_run(own_file, capsys):
    listing, launch = (command for block in blocks("sh") for command in commands(block))
    assert main(listing) == 0
    assert "buffer 2: constant uint & columns" in capsys.readouterr().out
    assert main(launch) == 0
    assert "sums = [" in capsys.readouterr().out


def test_race(tmp_path, monkeypatch, capsys):
    """Of the package that is installed, in place of the wheel that is downloaded."""
    source = kl_forward.losses()
    if source is None:
        pytest.skip(f"instrument missing: mlx-lm {kl_forward.VERSION}")
    (tmp_path / "kl_forward.metal").write_text(kl_forward.metal(source))
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("console")
    (command,) = commands(block)
    assert main(command) == 1
    printed = " ".join(capsys.readouterr().out.split())
    shown = re.split(r"^\.\.\.\n", block.split("\nkl_forward\n")[1], flags=re.M)
    for part in (shown[0], *re.findall(r"kl_forward\.metal:.*?times\)", shown[1], re.S)):
        assert " ".join(part.split()) in printed
    assert len(re.findall(r"times\)", shown[1])) == 2


def test_python(own_file, capsys):
    (block,) = blocks("python")
    exec(block, {})
    assert capsys.readouterr().out.startswith("[1000. 1000. 1000. 1000.] (16000, 0) ")
