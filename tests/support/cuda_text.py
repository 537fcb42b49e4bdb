"""The kernels' CUDA text, and specializations of it compiled by NVRTC."""

import functools
import os
import random
import re

from to_cuda import OPTIONS, translate

from . import nvrtc
from .variant import ROOT

COMPILER = os.environ.get("CXX", "c++")
ARCHITECTURES = ("compute_75", "compute_80", "compute_90", "compute_100")
FLOAT32, FLOAT16, BFLOAT16 = 0, 1, 2
VECTORS, ONE_ROW, TWO_AXES, LAYOUT = 4, 8, 8, 16


@functools.cache
def translation(stem):
    return translate(ROOT / f"kernels/{stem}.metal", ROOT, COMPILER)


def stem_of(path):
    return str(path.relative_to(ROOT / "kernels").with_suffix(""))


KERNELS = {
    kernel.name: (stem, kernel)
    for stem in map(stem_of, sorted(ROOT.glob("kernels/**/*.metal")))
    for kernel in translation(stem).kernels
}


def source_of(translated, group_size=256, threads_per_core=512, **constants):
    """The text for the compiler, with these function constants, and all others 0."""
    lines = [f"#define GROUP_SIZE {group_size}", f"#define THREADS_PER_CORE {threads_per_core}"]
    for c in translated.constants:
        lines.append(f"#define FC_{c.index} {int(constants.pop(c.name, 0))}")
    assert not constants
    return "\n".join([*lines, translated.text])


def compile(translated, kernel, architecture, group_size=256, **constants):
    """PTX of a kernel."""
    source = source_of(translated, group_size, **constants)
    return nvrtc.compile(source, kernel.expression, architecture, OPTIONS)


def values(constant, kernel):
    """The possible values of a kernel's function constant."""
    if kernel.startswith("norm_rope") and constant.name in ("looped", "center"):
        return (False,)
    if kernel.startswith("rms_norms") and constant.name == "looped":
        return (False,)
    if constant.type == "bool":
        return (False, True)
    if re.fullmatch("channels_(x|s|cotangent)_flags", constant.name):  # always by a layout
        how = (LAYOUT, LAYOUT | VECTORS, LAYOUT | TWO_AXES, LAYOUT | VECTORS | TWO_AXES)
        return [type | of for type in (FLOAT32, FLOAT16, BFLOAT16) for of in how]
    if constant.name.endswith("_flags"):
        how = (0, LAYOUT, VECTORS, LAYOUT | VECTORS | TWO_AXES, ONE_ROW | VECTORS)
        return [type | of for type in (FLOAT32, FLOAT16, BFLOAT16) for of in how]
    if constant.name.endswith("_type"):
        return (FLOAT32, FLOAT16, BFLOAT16)
    numbers = {"simds_per_row": (1, 2, 16, 32), "lanes_per_row": (1, 4, 32)}
    numbers |= {"full_count": (0, 1, 3), "stages": (0, 1, 2), "cluster": (1, 2)}
    numbers["staged_weights"] = (0, 1, 2)
    numbers["activation"] = (0, 1, 2, 3)
    numbers |= {"column_lanes": (1, 4, 8, 32), "column_simds": (1, 4, 8)}
    numbers |= {"column_count": (1, 5, 8), "column_full": (0, 1, 4)}
    numbers |= {"linear_projections": (1, 2, 3, 4), "linear_biases": (0, 1, 10, 15)}
    numbers["partner"] = (0, 1, 2, 3)
    if kernel.startswith("norm_rope"):
        numbers["simds_per_row"] = (1,)
        numbers["partner"] += (4,) if int(kernel[-1]) % 2 else ()
    if kernel.startswith("norm_linear"):
        numbers["simds_per_row"] = (1, 2, 4, 8)
    numbers |= {"linear_bits": (0, 4, 8), "linear_group_size": (32, 64, 128)}
    if kernel.startswith("quantized"):
        numbers["linear_bits"] = (4, 8)
    return numbers[constant.name]


GROUPS = {"sgemm_tile_32": 1024, "sgemm_tile_threads": 64, "sgemm_tile_simdgroup": 32}
GROUPS |= {"simdgroup_blocked_32": 128, "simdgroup_blocked_64": 128, "layer_norm_naive_32_4": 32}
GROUPS |= {name: 256 for name in KERNELS if name.startswith(("channel_norm", "norm_rope"))}
GROUPS |= {name: 256 for name in KERNELS if name.startswith("group_")}
GROUPS |= {name: 512 for name in KERNELS if name.startswith("held_groups")}
GROUPS |= {f"group_statistics_{simds}": 32 * simds for simds in (1, 4, 8, 16)}
GROUPS["group_gradient_sums_64"] = 64
GROUPS |= {name: 32 * int(name.split("_")[-1]) for name in KERNELS if "_tiles_" in name}


def constant_sets(name):
    """Sets of function constants, mixed so that each constant has each of its values."""
    rng = random.Random(name)
    columns = {}
    constants = translation(KERNELS[name][0]).constants
    # At least one set per architecture, even if the constants have fewer values.
    sets = max(len(ARCHITECTURES), *(len(values(c, name)) for c in constants), 0)
    for constant in constants:
        of = values(constant, name)
        columns[constant.name] = [of[i % len(of)] for i in range(sets)]
        rng.shuffle(columns[constant.name])
    return [{name: column[i] for name, column in columns.items()} for i in range(sets)]
