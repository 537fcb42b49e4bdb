"""Metal's conversions to bfloat16, of every float32."""

import numpy as np
import pytest

from metalsim import Library
from support.variant import ROOT

TEXT = """
#include "kernels/common/float_types.h"

// Of the floats with a thread's high half: those that each function rounds wrongly.
[[kernel]] void all_floats(
    device uint4* wrong [[buffer(0)]],
    uint high [[thread_position_in_grid]]) {
  uint4 count = uint4(0, 0, 0, 0);
  for (uint low = 0; low < 0x10000u; ++low) {
    float v = as_type<float>(high << 16 | low);
    bool up = low > 0x8000u || (low == 0x8000u && (high & 1u) == 1u);
    bool nan = (high & 0x7fffu) >= 0x7f80u && (high << 16 | low) << 1 > 0xff000000u;
    uint right = up ? high + 1u : high;

    uint one = float_to_bfloat(v);
    uint two = floats_to_bfloats(v, -v);
    uint4 four = as_type<uint4>(round_to(float4(v, -v, -v, v), kBFloat16));
    uint2 stored = narrow(as_type<float4>(four), kRoundedBFloat16);
    uint4 loaded = as_type<uint4>(widen(stored, kBFloat16));
    uint high_alone = as_type<uint>(bfloat_to_float(ushort(high)));

    // The quiet NaNs have these bits.
    bool one_is_right = nan ? (one & 0x7fc0u) == 0x7fc0u : one == right;
    bool negative = nan ? (two >> 16 & 0x7fc0u) == 0x7fc0u : two >> 16 == (right ^ 0x8000u);
    count.x += one_is_right ? 0u : 1u;
    count.y += (two & 0xffffu) == one && negative ? 0u : 1u;
    bool first = four.x == one << 16 && four.y == (two & 0xffff0000u);
    count.z += first && four.z == four.y && four.w == four.x ? 0u : 1u;
    bool packed = stored.x == two && stored.y == (two >> 16 | two << 16);
    bool widened = loaded.x == four.x && loaded.y == four.y && loaded.z == four.z;
    widened = widened && loaded.w == four.w && high_alone == high << 16;
    count.w += packed && widened ? 0u : 1u;
  }
  wrong[high] = count;
}
"""
NATIVE = "MLX_NORMS_NATIVE_BFLOAT"


@pytest.mark.slow
@pytest.mark.instrument
@pytest.mark.parametrize("defines", [(), (NATIVE, "__HAVE_BFLOAT__")], ids=["by bits", "native"])
def test_every_float_is_rounded(defines, tmp_path):
    """To the nearest, ties to even; a NaN to a quiet one. Native: the simulator's."""
    path = tmp_path / "all_floats.metal"
    path.write_text(TEXT)
    library = Library(path, [ROOT], list(defines), check=0)
    wrong = np.full((1 << 16, 4), 1, np.uint32)
    result = library.launch("all_floats", {"wrong": wrong}, groups=256, group=256, out=["wrong"])
    assert not result.faults
    names = (
        "float_to_bfloat",
        "floats_to_bfloats",
        "round_to",
        "narrow and widen of rounded values",
    )
    for name, of in zip(names, wrong.T, strict=True):
        high = np.flatnonzero(of)
        assert not high.size, f"{name}: {of.sum()} wrong, first with the high half {high[0]:#06x}"
