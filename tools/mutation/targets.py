"""The files that defects are planted in, and the tests that must see them."""

from fnmatch import fnmatch
from functools import cache
from typing import NamedTuple

from support.variant import ROOT

from .excluded import is_excluded
from .operators import Site, sites


class Target(NamedTuple):
    """Files by patterns of their paths, without those that an earlier target has.

    Attributes:
        tests: pytest's arguments: at best what is quick and sees most first.
    """

    files: str
    tests: str


def _of(folder: str, *names: str) -> str:
    """Tests in a folder: `x` is its test_x.py, and `x::y` the test y of that."""
    paths = (f"tests/{folder}/test_" + name.replace("::", ".py::", 1) for name in names)
    return " ".join(path if "::" in path else f"{path}.py" for path in paths)


ROWS = _of("norm", "gradients::test_one_dtype", "probes", "rounding", "fused", "layouts")
ROWS += " " + _of("battery", "battery::test_layouts")
GRADIENTS = _of("norm", "gradients", "magnitudes", "threads", "short_rows")
LONG_ROWS = " " + _of("battery", "battery::test_long_rows")
OPTIONS = _of("norm", "l2", "clamp", "heads", "gradients::test_options", "factor", "modulated")
OPTIONS += LONG_ROWS
GATED = _of("norm", "gated") + LONG_ROWS
AXIS = _of("norm", "axis")
NORM_ADD_NORM = _of("norm", "norm_add_norm") + LONG_ROWS
GROUPS = _of("group_norm", "forward", "transforms", "array_options", "small_samples", "layers")
ROPE = _of("rope", "norm_rope")
LINEAR = _of("linear", "linear", "quantized_matmul")
LINEAR_KERNEL = _of("linear", "linear", "linear_kernel", "quantized_matmul")
MATMUL = _of("matmul", "matmul")
FUSION = _of("patching", "fusion", "fusion_transforms", "patching", "fuse")
FUSION += " " + _of("patching", "unused_outputs", "patching_threads", "taken", "models")
AROUND = FUSION + " " + _of("patching", "around_norms", "written_norms", "written_left")
WRITTEN = _of("patching", "written_norms", "written_left", "written_drawn")
PRODUCTS = _of("patching", "products", "projections")
GRAPH = _of("norm", "compile", "compiled_twice", "vmap", "shapeless", "donation")
GRAPH += " " + _of(
    "battery", *(f"battery::test_{n}" for n in ("vmap", "compile", "tangents", "derivatives"))
)

_CPU = [
    Target("csrc/cpu/activations.h", GATED),
    Target("csrc/cpu/row_*.h", _of("norm", "layouts", "threads", "gradients::test_one_dtype")),
    Target("csrc/cpu/[sp]*.h", f"{ROWS} {GRADIENTS}"),
    Target("csrc/norm/c*lanes.* csrc/norm/channels/eval_cpu.cpp", f"{AXIS} {GROUPS}"),
    Target("csrc/norm/cpu/any_*", f"{ROWS} {GRADIENTS} {OPTIONS} {GATED}"),
    Target("csrc/norm/cpu/* csrc/norm/cpu_parameters.h", f"{ROWS} {GRADIENTS} {OPTIONS}"),
    Target("csrc/norm/eval_cpu.cpp", f"{ROWS} {GRADIENTS} {OPTIONS} {GATED}"),
    Target("csrc/norm/norm_add_norm/e*.cpp csrc/norm/norm_add_norm/*m.cpp", NORM_ADD_NORM),
    Target("csrc/norm/norm_add_norm/vjp.cpp", NORM_ADD_NORM),
    Target("csrc/norm/groups/cpu_[ckst]* csrc/norm/groups/*eval_cpu.cpp", GROUPS),
    Target("csrc/rope/cpu_[ak]* csrc/rope/eval_cpu.cpp csrc/rope/transforms.cpp", ROPE),
    Target("csrc/linear/projection.cpp csrc/linear/checks.cpp", LINEAR),
    Target("csrc/common/axes.cpp", _of("norm", "layouts", "batches", "axis")),
    Target("csrc/common/outputs.cpp", _of("norm", "donation", "layouts")),
    Target("csrc/op/op.cpp csrc/op/node.cpp", f"{GRAPH} {NORM_ADD_NORM} {AXIS}"),
    Target("csrc/norm/derivatives.cpp", f"{GRAPH} " + _of("patching", "unused_outputs")),
    Target("csrc/patching/written.cpp csrc/patching/reader.cpp csrc/patching/mono*.cpp", WRITTEN),
    Target("csrc/patching/ropes.cpp", _of("patching", "ropes")),
    Target("csrc/patching/[agmn]*.cpp csrc/patching/pros*.cpp", AROUND),
    Target("csrc/patching/rebuild.cpp csrc/patching/rules.cpp", AROUND),
    Target("csrc/patching/patched.cpp csrc/patching/pending.cpp", FUSION),
]
# What sees most of how the ops are called comes last: it takes a minute.
CPU = [target._replace(tests=f"{target.tests} tests/battery/test_battery.py") for target in _CPU]

METAL = [
    Target("kernels/common/gather_rows.metal", _of("norm", "layouts")),
    Target("kernels/common/[!m]*", f"{ROWS} {GRADIENTS}"),
    Target("kernels/norm/channels/* csrc/norm/channels/plan.cpp", AXIS),
    Target("kernels/norm/norm_first.h kernels/norm/norm_add_norm/*", NORM_ADD_NORM),
    Target("csrc/norm/norm_add_norm/*plan.cpp", NORM_ADD_NORM),
    Target("kernels/norm/several/* csrc/norm/together.cpp", _of("norm", "rms_norms", "heads")),
    Target("kernels/norm/gate.h", GATED),
    Target("kernels/norm/modulate.h", _of("norm", "modulated")),
    Target("kernels/norm/vjp/*", f"{GRADIENTS} {OPTIONS} {GATED} " + _of("norm", "probes")),
    Target("kernels/norm/[lpr]*", f"{GRADIENTS} {OPTIONS} {NORM_ADD_NORM}"),
    Target("kernels/norm/*", f"{ROWS} {OPTIONS} {GATED} {NORM_ADD_NORM}"),
    Target("kernels/group_norm/* csrc/norm/groups/*plan.cpp csrc/norm/groups/g*.cpp", GROUPS),
    Target("kernels/rope/* csrc/rope/plan.cpp", ROPE),
    Target("kernels/linear/* csrc/linear/*plan.cpp", LINEAR_KERNEL),
    Target("csrc/linear/norm_linear.cpp csrc/linear/mlx_product.cpp", LINEAR_KERNEL),
    Target("kernels/matmul/* kernels/ladders/sgemm/* kernels/common/matrix_units.h", MATMUL),
    Target("csrc/matmul/plan.cpp csrc/gpu/batch_axes.cpp", MATMUL),
    Target("kernels/ladders/layer_norm/*", _of("ladders", "layer_norm_ladder")),
    Target("csrc/gpu/recorded.* csrc/op/run.cpp", _of("norm", "recorded_calls")),
    Target("csrc/gpu/geometry.h csrc/gpu/specialization.cpp", f"{ROWS} {GRADIENTS}"),
    Target("csrc/gpu/rows.*", f"{ROWS} " + _of("norm", "short_rows", "pending_operands")),
    Target("csrc/norm/plan.cpp", f"{ROWS} {OPTIONS} {GATED}"),
    Target("csrc/norm/vjp_plan.cpp", f"{GRADIENTS} {OPTIONS} {GATED}"),
    Target("csrc/norm/norm_vjp.cpp", f"{GRADIENTS} {GRAPH}"),
    Target("csrc/norm/persistent_loops.cpp", f"{GRADIENTS} {OPTIONS}"),
    Target("csrc/patching/pro[dj]*.cpp csrc/patching/side_by_side.cpp", PRODUCTS),
]


def files(targets: list[Target]) -> dict[str, Target]:
    """Each file that is theirs, with its target."""
    found: dict[str, Target] = {}
    for folder in ("csrc", "kernels"):
        for path in sorted((ROOT / folder).rglob("*.*")):
            name = path.relative_to(ROOT).as_posix()
            of = next((t for t in targets if any(fnmatch(name, p) for p in t.files.split())), None)
            if of and path.suffix in (".h", ".cpp", ".metal"):
                found[name] = of
    return found


@cache
def all_sites(metal: bool) -> list[tuple[Site, str]]:
    """The sites in the Metal kernels and their plans, or all others, with the tests of each."""
    return [
        (site, target.tests)
        for file, target in files(METAL if metal else CPU).items()
        for site in sites(file, (ROOT / file).read_text())
        if not is_excluded(site)
    ]
