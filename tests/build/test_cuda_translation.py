"""The kernels in CUDA: what becomes of Metal's text, and that NVRTC compiles every kernel of it."""

import itertools
import re
import sys

import pytest

from msl.tokens import SourceError
from support import nvrtc
from support.cuda_text import (
    ARCHITECTURES,
    BFLOAT16,
    COMPILER,
    FLOAT16,
    FLOAT32,
    GROUPS,
    KERNELS,
    LAYOUT,
    ONE_ROW,
    VECTORS,
    compile,
    constant_sets,
    source_of,
    translation,
)
from support.variant import ROOT
from to_cuda import OPTIONS, Parameters, translate

pytestmark = pytest.mark.applies(sys.platform != "darwin")  # for which there is no NVRTC

for_architectures = pytest.mark.parametrize(
    "architecture",
    [pytest.param(a, marks=() if a == "compute_90" else pytest.mark.build) for a in ARCHITECTURES],
)
# Elsewhere products are rounded before they are added, in every specialization.
WITH_FMA = {"norm/norm"}
WITH_FMA |= {"norm/vjp/norm_vjp", "norm/vjp/parameter_gradients"}
WITH_FMA |= {"norm/norm_add_norm/vjp/norm_add_norm_vjp", "norm/several/rms_norms"}
WITH_FMA |= {"group_norm/group_norm", "group_norm/vjp/group_norm_vjp"}
WITH_FMA |= {"linear/norm_linear", "linear/cuda/quantized_tiles"}
WITH_FMA |= {"norm/channels/channel_norm", "norm/channels/channel_norm_vjp"}
WITH_FMA |= {"group_norm/held/held_groups", "rope/norm_rope"}
# CUDA's sine and cosine of large angles.
OF_ANGLES = {"rope/norm_rope"}


OF_EACH_TEMPLATE = {k.expression.split("<")[0]: n for n, (_, k) in KERNELS.items()}.values()


def shares():
    """Of each kernel's sets of constants, by architecture; one of a template always runs."""
    for name in KERNELS:
        if name in OF_EACH_TEMPLATE:
            yield pytest.param(name, "compute_90", slice(1), id=f"{name}-one")
        for i, a in enumerate(ARCHITECTURES):
            share = slice(i, None, len(ARCHITECTURES))
            yield pytest.param(name, a, share, marks=pytest.mark.build, id=f"{name}-{a}")


@pytest.mark.parametrize("name, architecture, share", list(shares()))
def test_every_kernel_compiles(name, architecture, share):
    stem, kernel = KERNELS[name]
    for constants in constant_sets(name)[share]:
        simds = constants.get("column_simds", constants.get("simds_per_row", 8))
        group_size = GROUPS.get(name, 32 * simds)
        ptx = compile(translation(stem), kernel, architecture, group_size, **constants)
        assert ptx.count(".entry") == 1, "what was not asked for is compiled too"
        # All but the sine and cosine is inlined, what a thread holds is in registers, and pointers
        # are known for what they point to.
        angles = stem in OF_ANGLES
        assert len(re.findall(r"\.func\b", ptx)) <= angles
        assert angles or not re.search(r"\bcall\b", ptx)
        if angles:
            assert set(re.findall(r"__local_depot\d+\[(\d+)\]", ptx)) <= {"28"}
        else:
            assert ".local" not in ptx
        assert not re.search(r"\b(ld|st)\.(?!global|shared|param|local)", ptx)
        assert angles or ".f64" not in ptx
        assert (
            stem in WITH_FMA or re.search("ladders|matmul", stem) or not re.search(r"\bfma\b", ptx)
        )
        assert f".maxntid {group_size}" in ptx
        assert f".minnctapersm {max(512 // group_size, 1)}" in ptx


CPP14 = ("--std=c++14", *OPTIONS[1:])


def some_constants(stem):
    """Without which a kernel cannot be compiled: what it divides by."""
    packed = {"linear_bits": 4, "linear_group_size": 64}
    return packed if stem == "linear/cuda/quantized_tiles" else {}


@pytest.mark.build
@pytest.mark.parametrize("name", OF_EACH_TEMPLATE)
def test_every_kernel_is_cpp14(name):
    """As MSL is before version 4.0, whose compiler may refuse what is newer.

    tests/build/test_kernels.py has clang's word on it for each library.
    """
    stem, kernel = KERNELS[name]
    source = source_of(translation(stem), GROUPS.get(name, 256), **some_constants(stem))
    nvrtc.compile(source, kernel.expression, "compute_90", CPP14)


@pytest.mark.parametrize("newer", ["if constexpr (1) {}", "int a[2] = {}; auto [b, c] = a;"])
def test_cpp17_is_refused(tmp_path, newer):
    translated = snippet(tmp_path, f"kernel void k(device int* x) {{ {newer} }}")
    expression = translated.kernels[0].expression
    nvrtc.compile(source_of(translated), expression, "compute_90", OPTIONS)
    with pytest.raises(nvrtc.Refused, match="snippet.metal.*error"):
        nvrtc.compile(source_of(translated), expression, "compute_90", CPP14)


def whole_vectors(ptx):
    """The instructions of 16 bytes: loads, stores."""
    wide = r"\.global\.(?:v4\.[bfu]32|v2\.[bfu]64)\b"
    return tuple(len(re.findall(rf"\b{access}{wide}", ptx)) for access in ("ld", "st"))


# What a launch of norm sets, besides the accesses: vectors that it reads and writes.
NORMS = {
    "rms": ({"has_weight": True, "round_early": True}, 2, 1),
    "layer": ({"center": True, "has_weight": True, "has_bias": True, "round_early": True}, 3, 1),
    "add rms": ({"has_weight": True, "has_residual": True, "round_early": True}, 3, 2),
    "offset": ({"has_weight": True, "has_weight_offset": True}, 2, 1),
    "clamp": ({"has_residual": True, "clamp_sum": True}, 2, 2),
    "norm first": (
        {"norm_first": True, "has_residual": True, "has_post_weight": True}
        | {"has_weight": True, "round_early": True},
        4,
        2,
    ),
    "clamp of a norm": ({"norm_first": True, "has_residual": True, "clamp_sum": True}, 2, 2),
}
OF_SEVERAL = {
    "two": ({"has_weight": True, "has_weight2": True}, 2, 1),
    "four": ({"has_x3": True, "has_x4": True}, 1, 1),
}
VJPS = {
    "rms": ({"has_weight": True, "want_input": True, "want_weight": True}, 3, 1),
    "layer": (
        {"center": True, "has_weight": True}
        | {"want_input": True, "want_weight": True, "want_bias": True},
        3,
        1,
    ),
    "add": ({"has_weight": True, "has_sum_cotangent": True, "want_input": True}, 4, 1),
    "weight only": ({"want_weight": True}, 2, 0),
}
NORM_ADD_NORM_VJPS = {
    "both weights": (
        {"has_post_weight": True, "has_weight": True}
        | {"want_post_weight": True, "want_weight": True},
        6,
        2,
    ),
    "clamp": ({"clamped_sum": True}, 4, 2),
}
OF_STEM = {"norm/norm": NORMS, "norm/several/rms_norms": OF_SEVERAL}
OF_STEM["norm/vjp/norm_vjp"] = VJPS
OF_STEM["norm/norm_add_norm/vjp/norm_add_norm_vjp"] = NORM_ADD_NORM_VJPS
# Whose persistent loops stage rows: launches, with the arrays of rows and weights that each has.
OF_LOOPS = {
    "norm/vjp/norm_vjp": {"layer": (2, 1), "add": (3, 1)},
    "norm/norm_add_norm/vjp/norm_add_norm_vjp": {"both weights": (4, 2)},
}
LAUNCHES = [(name, norm) for name in KERNELS for norm in OF_STEM.get(KERNELS[name][0], ())]


def launch_constants(name, norm):
    """The kernel's constants in a launch of aligned rows that 4 SIMD-groups share.

    Some threads have one vector less than others.
    """
    stem = KERNELS[name][0]
    width, vectors = parts_of(name)
    type = FLOAT32 if width == 4 else BFLOAT16
    constants = {"simds_per_row": 4, "lanes_per_row": 32, "no_tail": True}
    constants["full_count"] = vectors - 1
    constants |= OF_STEM[stem][norm][0]
    if stem in OF_LOOPS:
        constants |= {"cluster": 1, "hold_weight": True}
        constants["fetch_next"] = stem == "norm/vjp/norm_vjp"
    for constant in translation(stem).constants:
        if constant.name.endswith("_flags"):
            one_row = re.match("(post_)?weight|bias", constant.name) is not None
            constants[constant.name] = type | VECTORS | (ONE_ROW if one_row else 0)
    return constants


def parts_of(name):
    """Elements a vector, vectors per thread."""
    width, vectors, *_ = re.findall(r"\d+", name)
    return int(width), int(vectors)


@pytest.mark.slow
@pytest.mark.build
@for_architectures
@pytest.mark.parametrize("name, norm", LAUNCHES)
def test_rows_are_read_and_written_in_whole_vectors(name, norm, architecture):
    stem, kernel = KERNELS[name]
    width, vectors = parts_of(name)
    flags, reads, writes = OF_STEM[stem][norm]
    constants = launch_constants(name, norm)
    ptx = compile(translation(stem), kernel, architecture, 128, **constants)
    assert "cp.async" not in ptx
    if stem == "norm/vjp/norm_vjp":
        reads += 2  # of the first row, and of each next one
    # A vector of partial sums is one of float32.
    wanted = ("want_weight", "want_bias", "want_post_weight")
    writes += sum(flags.get(name, 0) for name in wanted) * width // 4
    loads, stores = whole_vectors(ptx)
    assert loads == reads * vectors
    # What is written last is found in the code twice.
    assert writes * vectors <= stores < 2 * writes * vectors


WIDE_LOAD = r"\bld\.global\.(?:v4\.[bfu]32|v2\.[bfu]64)\b"


OF_FEW = [(name, norm) for name, norm in LAUNCHES if KERNELS[name][0] not in OF_LOOPS]


@pytest.mark.slow
@pytest.mark.parametrize("name, norm", OF_FEW)
def test_few_rows_are_all_fetched_before_any_is_used(name, norm):
    stem, kernel = KERNELS[name]
    constants = launch_constants(name, norm) | {"fetch_first": True}
    ptx = compile(translation(stem), kernel, "compute_90", 128, **constants)
    loads = [match.start() for match in re.finditer(WIDE_LOAD, ptx)]
    assert len(loads) == OF_STEM[stem][norm][1] * parts_of(name)[1]
    stored = re.search(r"\bst\.global\b", ptx).start()
    assert max(loads) < min(ptx.index("shfl.sync"), stored)


def test_layouts_that_are_not_read_take_no_room():
    """A launch costs the host the more the larger its arguments are."""
    stem, kernel = KERNELS["norm_4_1_1024"]
    dense = launch_constants("norm_4_1_1024", "layer")
    taken = []
    for strided in ([], ["x_flags"], ["weight_flags", "bias_flags"]):
        places = {name: VECTORS | LAYOUT * i for i, name in enumerate(strided, 1)}
        taken.append(sizes_of_parameters(translation(stem), kernel, dense | places))
    pointers = 8 * -(-kernel.parameters.layouts // 8)
    assert taken == [(pointers, 1), (pointers, 24), (pointers, 48)]


def sizes_of_parameters(translated, kernel, constants, group_size=128):
    """Bytes of the kernel's two structures."""
    ptx = compile(translated, kernel, "compute_90", group_size, **constants)
    return tuple(map(int, re.findall(r"\.param \.align \d+ \.b8 [^\s\[]+\[(\d+)\]", ptx)))


GEMV = [(way, rows) for way in ("lines", "columns") for rows in (1, 4, 8)]


@pytest.mark.slow
@pytest.mark.parametrize("way, rows", GEMV)
def test_gemv_reads_whole_vectors_before_it_uses_any(way, rows):
    """Of the matrix 8 in flight a lane, or 4 where more rows leave no registers for them."""
    name = f"gemv_{way}_{rows}"
    stem, kernel = KERNELS[name]
    constants = {"matmul_type": BFLOAT16, "w_vectors": True, "x_vectors": True}
    group_size = 256 if way == "lines" else 512
    ptx = compile(translation(stem), kernel, "compute_90", group_size, **constants)
    assert "ld.global.u8" not in ptx and "ld.global.u16" not in ptx
    in_flight = 8 if rows <= (2 if way == "lines" else 4) else 4
    # Of x, lines take vectors of 16 bytes, too; columns take eight rows of the matrix in any case.
    loads = in_flight * (4 + rows) // 4 if way == "lines" else 8
    assert len(re.findall(WIDE_LOAD, ptx)) == loads
    first_use = re.search(r"\bfma\b", ptx).start()
    before = [m.start() for m in re.finditer(WIDE_LOAD, ptx) if m.start() < first_use]
    assert len(before) >= in_flight
    source = source_of(translation(stem), group_size, **constants)
    assert nvrtc.spilled_bytes(source, kernel.expression, "sm_90", OPTIONS) == 0


# The elements of a vector, and the types of a product.
TILE_TYPES = {FLOAT32: (4, "tf32"), FLOAT16: (8, "f16"), BFLOAT16: (8, "bf16")}

# As plans have them: lines or columns, types, SIMD-groups and threadgroups that share the depth.
WAYS = [("line", 4, 1), ("line", 8, 1), ("column", 4, 1), ("column", 8, 1), ("column", 16, 1)]
TILES = [(*way, dtype) for way in (*WAYS, ("column", 8, 4)) for dtype in TILE_TYPES]
TILES += [("column", 12, 2, dtype) for dtype in (FLOAT16, BFLOAT16)]


@pytest.mark.slow
@pytest.mark.parametrize("way, simds, cluster, dtype", TILES)
def test_tiles_are_multiplied_by_matrix_units(way, simds, cluster, dtype):
    """What is in flight comes before the first product; no lane hands on anything."""
    elements, name = TILE_TYPES[dtype]
    stem, kernel = KERNELS[f"gemv_{way}_tiles_{elements}_{simds}"]
    constants = {"matmul_type": dtype, "x_vectors": True}
    constants |= {"cluster": cluster} if way == "column" else {}
    translated = translation(stem)
    ptx = compile(translated, kernel, "compute_90", 32 * simds, **constants)
    products = [m.start() for m in re.finditer(rf"\bmma\.\S+\.{name}\.{name}\.f32 ", ptx)]
    assert len(products) == (3 if dtype == FLOAT32 else 1) * 8  # of floats the halves of each
    loads = [m.start() for m in re.finditer(WIDE_LOAD, ptx)]
    in_flight = 12 if way == "line" else 8 + 8 // elements
    assert len(loads) == in_flight and max(loads) < products[0]
    assert "shfl" not in ptx and "ld.global.u16" not in ptx
    assert ("mapa.shared::cluster" in ptx) == (cluster > 1)
    source = source_of(translated, 32 * simds, **constants)
    assert nvrtc.spilled_bytes(source, kernel.expression, "sm_90", OPTIONS) == 0


QUANTIZED_TILES = ((1, 4), (1, 8), (1, 16), (2, 4), (2, 8), (2, 16))  # of rows; SIMD-groups
QUANTIZED = list(zip(QUANTIZED_TILES, itertools.cycle(((4, 64), (8, 32), (8, 64), (4, 32)))))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TILE_TYPES)
@pytest.mark.parametrize("tiles, kind", QUANTIZED)
def test_packed_tiles_are_multiplied_by_matrix_units(tiles, kind, dtype):
    """Words are copied to threadgroup memory in vectors, the next step's after the products."""
    (rows, simds), (bits, group) = tiles, kind
    stem, kernel = KERNELS[f"quantized_tiles_{rows}_{simds}"]
    constants = {"whole": True, "no_tail": True, "linear_aligned": True}
    constants |= {
        "linear_bits": bits,
        "linear_group_size": group,
        "linear_x_flags": dtype | VECTORS,
        "words_staged": True,
    }
    lines = 2  # tiles of them
    ptx = compile(translation(stem), kernel, "compute_90", 32 * simds, **constants)
    element = "f16" if dtype == FLOAT16 else "bf16"
    products = [m.start() for m in re.finditer(rf"\bmma\.\S+\.{element}\.{element}\.f32 ", ptx)]
    # Of floats three parts; of 8 bits two digits, but in float16; each and ones, for 16 of a step.
    digits = 2 if bits == 8 and dtype != FLOAT16 else 1
    parts = 3 if dtype == FLOAT32 else 1
    assert len(products) == (64 // bits) * parts * rows * (lines * digits + 1)
    copies = [m.start() for m in re.finditer(r"\bcp\.async\.cg\.shared\.global .*, 16;", ptx)]
    assert len(copies) == 8 * 2 and copies[-8] > products[-1]  # before the loop, and in it
    few = rows == 1 and dtype != FLOAT32
    threads = 512 if few or simds == 16 else 256
    source = source_of(translation(stem), 32 * simds, threads, **constants)
    # A few addresses, which are loaded once in a step of many instructions. Sixteen SIMD-groups
    # have few registers for two tiles, but add up in the order of those for one.
    most = 128 if (rows, simds) == (2, 16) else 64 if dtype == FLOAT32 else 16
    assert nvrtc.spilled_bytes(source, kernel.expression, "sm_90", OPTIONS) <= most


LOOP_KERNELS = [name for name, (stem, _) in KERNELS.items() if stem in OF_LOOPS]


@pytest.mark.build
@for_architectures
@pytest.mark.parametrize("stages, stages_weights", [(1, True), (2, False), (2, True)])
@pytest.mark.parametrize("name", LOOP_KERNELS)
def test_rows_ahead_are_copied_to_stages(name, stages, stages_weights, architecture):
    """In copies of 16 bytes that pass by the registers, where the architecture has them."""
    stem, kernel = KERNELS[name]
    vectors = parts_of(name)[1]
    for norm, (arrays, weights) in OF_LOOPS[stem].items():
        staged_weights = weights if stages_weights else 0
        constants = launch_constants(name, norm) | {"stages": stages}
        constants["staged_weights"] = staged_weights
        ptx = compile(translation(stem), kernel, architecture, 128, **constants)
        assert ".local" not in ptx
        address = r"\[%rd?\d+(?:\+\d+)?\]"
        copies = len(re.findall(rf"cp\.async\.cg\.shared\.global {address}, {address}, 16;", ptx))
        loads = whole_vectors(ptx)[0]
        groups = ptx.count("cp.async.commit_group;")
        if architecture == "compute_75":
            assert (copies, groups) == (0, 0) and "cp.async" not in ptx
            groups, odd = divmod(loads - weights * vectors, arrays * vectors)
            assert not odd
        else:
            of_weights = vectors * staged_weights
            assert copies == groups * arrays * vectors + of_weights
            assert loads == vectors * weights - of_weights
            assert re.findall(r"cp\.async\.wait_group (\d+);", ptx) == [str(stages - 1)]
        # A group in the loop, and those before it, which may stand there as a loop.
        assert 2 <= groups <= 1 + stages
        loads = len(re.findall(r"\bld\.shared\.(?:v4\.[bfu]32|v2\.[bfu]64)\b", ptx))
        # What passed by registers may be taken from there once.
        again = 0 if architecture == "compute_75" else arrays - 2
        assert loads >= (arrays + again + staged_weights) * vectors


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["rms", "add", "both weights", "clamp"])
@pytest.mark.parametrize("name", LOOP_KERNELS)
def test_staged_rows_leave_registers_enough(name, norm):
    """The machine code keeps no register's value in memory."""
    stem, kernel = KERNELS[name]
    if norm in OF_STEM[stem]:
        constants = launch_constants(name, norm) | {"stages": 2, "staged_weights": 2}
        source = source_of(translation(stem), 128, **constants)
        assert nvrtc.spilled_bytes(source, kernel.expression, "sm_90", OPTIONS) == 0


@pytest.mark.parametrize("activation", [0, 2])
@pytest.mark.parametrize("name", ["held_groups_8_4", "held_groups_8_2", "held_groups_4_4"])
def test_held_groups_leave_registers_enough(name, activation):
    """For the threads that csrc/norm/groups/plan.cpp asks for."""
    stem, kernel = KERNELS[name]
    flags = VECTORS | (BFLOAT16 if "_8_" in name else FLOAT32)
    operands = ("group_x", "group_y", "weight", "bias")
    constants = dict.fromkeys((f"{operand}_flags" for operand in operands), flags)
    constants |= {"has_weight": True, "has_bias": True, "activation": activation}
    source = source_of(translation(stem), 160, 1280, **constants, whole=True, no_tail=True)
    assert nvrtc.spilled_bytes(source, kernel.expression, "sm_90", OPTIONS) == 0


@pytest.mark.build
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", LOOP_KERNELS)
def test_groups_of_a_cluster_add_up_their_partial_sums(name, size):
    """Each writes a part of the vectors, where there are clusters; all of it takes two barriers."""
    stem, kernel = KERNELS[name]
    width, vectors = parts_of(name)
    in_norm_vjp = stem == "norm/vjp/norm_vjp"
    norm = "layer" if in_norm_vjp else "both weights"
    second = "want_bias" if in_norm_vjp else "want_post_weight"
    constants = launch_constants(name, norm) | {"stages": 2, "cluster": size}
    for wanted in ((True, True), (True, False), (False, True))[: 3 if size == 2 else 1]:
        constants |= {"want_weight": wanted[0], second: wanted[1]}
        ptx = compile(translation(stem), kernel, "compute_90", 128, **constants)
        assert ptx.count("barrier.cluster.arrive") == ptx.count("barrier.cluster.wait") == 2
        # A loop without rows has fetched its weight to where it stores its sums.
        all_there = ptx.index("cp.async.wait_group 0;")
        assert all_there < ptx.index("st.shared", all_there) < ptx.index("barrier.cluster.arrive")
        theirs = len(re.findall(r"\bld\.shared::cluster\.v4\.", ptx))
        assert theirs == sum(wanted) * vectors * width // 4 * size
        assert ".local" not in ptx
    ptx = compile(translation(stem), kernel, "compute_80", 128, **constants)
    assert "cluster" not in ptx[ptx.index(".entry") :]


LINEAR_KERNELS = [name for name, (stem, _) in KERNELS.items() if stem == "linear/norm_linear"]
# As csrc/linear/plan.cpp has them: elements per vector, rows, outputs, vectors, and threads
# per core of RMSNorm and of LayerNorm.
LINEAR_SHAPES = (
    *((4, 1, 4, 4, 384, 512), (4, 4, 4, 1, 512, 512), (8, 1, 4, 4, 384, 384)),
    *((8, 2, 4, 2, 512, 512), (8, 4, 4, 1, 512, 512), (8, 8, 4, 1, 384, 384)),
    *((16, 1, 8, 1, 512, 512), (16, 2, 4, 2, 384, 384), (16, 4, 4, 1, 384, 384)),
    (16, 8, 4, 1, 256, 256),
)


def test_projections_have_the_shapes_of_the_plan():
    plan = (ROOT / "csrc/linear/plan.cpp").read_text()
    table = re.search(r"kShapes\[\] = (.*?);", plan, re.DOTALL)[1]
    shapes = re.findall(r"{" + ", ".join([r"(\d+)"] * 6) + "}", table)
    assert [tuple(map(int, shape)) for shape in shapes] == list(LINEAR_SHAPES)
    for width, rows, outputs, vectors, *_ in LINEAR_SHAPES:
        _, kernel = KERNELS[f"norm_linear_{width}_{rows}"]
        # With all rows in registers at once, and the norm's weight and bias.
        assert kernel.expression.endswith(f",{rows},{outputs},{vectors},{rows + 2}>")
    assert len(LINEAR_KERNELS) == len(LINEAR_SHAPES)


def linear_constants(name, **others):
    """The constants of a launch on whole, aligned rows."""
    width, _ = parts_of(name)
    flags = (FLOAT32 if width == 4 else BFLOAT16) | VECTORS
    packed = {"linear_bits": 4, "linear_group_size": 64} if width == 16 else {}
    return {
        **dict(simds_per_row=1, lanes_per_row=32, whole=True, no_tail=True),
        **dict(has_weight=True, weight_flags=flags, linear_normed=True),
        **dict(linear_projections=1, linear_aligned=True, linear_x_flags=flags),
        **packed,
        **others,
    }


@pytest.mark.parametrize("shape", LINEAR_SHAPES, ids=lambda shape: "_".join(map(str, shape[:2])))
def test_weights_are_fetched_before_any_is_used(shape):
    width, rows, outputs, vectors, *_ = shape
    name = f"norm_linear_{width}_{rows}"
    stem, kernel = KERNELS[name]
    ptx = compile(translation(stem), kernel, "compute_90", 32, **linear_constants(name))
    halves = [m.start() for m in re.finditer(r"\bld\.global\.v2\.[bfu]32\b", ptx)]
    wide = [m.start() for m in re.finditer(WIDE_LOAD, ptx)]
    of_rows = (rows + 1) * vectors * (2 if width == 16 else 1)  # and the norm's weight
    weights, others = (halves, 0) if width == 16 else (wide, of_rows)
    assert len(weights) == vectors * outputs + others
    assert len(wide) == of_rows + (0 if width == 16 else vectors * outputs)
    if width > 4:  # else the text has another order than the machine code
        assert sum(at < ptx.index("fma.rn") for at in weights) >= vectors * outputs


@pytest.mark.slow
@pytest.mark.build
@pytest.mark.parametrize("norm", ["rms", "layer", "gated"])
@pytest.mark.parametrize("shape", LINEAR_SHAPES, ids=lambda shape: "_".join(map(str, shape[:2])))
def test_projections_leave_registers_enough(shape, norm):
    """The machine code keeps no register's value in memory, but for four and one in two cases."""
    width, rows, _, _, of_rms, of_layer = shape
    per_core = of_layer if norm == "layer" else of_rms
    name = f"norm_linear_{width}_{rows}"
    stem, kernel = KERNELS[name]
    of_norm = {
        "rms": dict(linear_projections=3, linear_biases=7),
        "layer": dict(center=True, has_bias=True),
        "gated": dict(linear_gated=True, linear_projections=2, linear_has_residual=True),
    }
    constants = linear_constants(name, **of_norm[norm])
    for other in ("bias_flags", "linear_residual_flags", "linear_sum_flags"):
        constants[other] = constants["linear_x_flags"]
    source = source_of(translation(stem), 32, threads_per_core=per_core, **constants)
    spilled = nvrtc.spilled_bytes(source, kernel.expression, "sm_90", OPTIONS)
    assert spilled <= {(16, 4, "layer"): 16, (16, 1, "layer"): 4}.get((width, rows, norm), 0)


def snippet(tmp_path, text):
    path = tmp_path / "kernels/snippet.metal"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#include <metal_stdlib>\nusing namespace metal;\n{text}")
    return translate(path, tmp_path, COMPILER)


def ptx_of(tmp_path, text, **constants):
    translated = snippet(tmp_path, text)
    return compile(translated, translated.kernels[0], "compute_90", **constants)


def test_parameters_follow_their_indices(tmp_path):
    translated = snippet(
        tmp_path,
        """
        constant bool wide [[function_constant(3)]];
        constant int kind [[function_constant(1)]];
        template <typename T>
        [[kernel, max_total_threads_per_threadgroup(64)]] void copy(
            constant const int& n [[buffer(7)]],
            device T* to [[buffer(4), function_constant(wide)]],
            constant const int* from_layout [[buffer(5)]],
            uint at [[thread_position_in_grid]],
            const device T* from [[buffer(0)]]) {
          to[at] = from[n + from_layout[kind]];
        }
        template [[host_name("copy_wide")]] [[kernel]] decltype(copy<float4>) copy<float4>;
        kernel void plain(device half* x) { x[0] = 0.5h; }
        """,
    )
    copy, plain = translated.kernels
    assert [copy.name, plain.name] == ["copy_wide", "plain"]
    assert copy.parameters == Parameters({4: 0, 0: 8}, words=16, layouts=20, end=44)
    assert plain.parameters == Parameters({0: 0}, words=8, layouts=8, end=8)
    assert {c.name: c.index for c in translated.constants} == {"wide": "3", "kind": "1"}

    ptx = compile(translated, copy, "compute_90", group_size=64, kind=2)
    assert sizes_of_parameters(translated, copy, {"kind": 2}, group_size=64) == (24, 24)
    assert whole_vectors(ptx) == (1, 1)
    for value in ("0\\+16", "1\\+8"):  # n, layout[2]
        assert re.search(rf"ld\.param\.[bu]32 \s*%r\d+, \[\w+_param_{value}\]", ptx)
    with pytest.raises(nvrtc.Refused, match="group size"):
        compile(translated, copy, "compute_90", group_size=65)
    assert "cvt.rn.f16.f32" in compile(translated, plain, "compute_90")


POSITIONS = {
    "uint a [[thread_position_in_grid]]": "ctaid.x ntid.x tid.x",
    "uint2 a [[thread_position_in_grid]]": "ctaid.x ctaid.y ntid.x ntid.y tid.x tid.y",
    "uint3 a [[threadgroup_position_in_grid]]": "ctaid.x ctaid.y ctaid.z",
    "ushort a [[thread_position_in_threadgroup]]": "tid.x",
    "uint2 a [[threads_per_threadgroup]]": "ntid.x ntid.y",
    "uint a [[threadgroups_per_grid]]": "nctaid.x",
    "uint a [[thread_index_in_threadgroup]]": "ntid.x ntid.y tid.x tid.y tid.z",
    "uint a [[thread_index_in_simdgroup]]": "ntid.x ntid.y tid.x tid.y tid.z",
    "uint a [[simdgroup_index_in_threadgroup]]": "ntid.x ntid.y tid.x tid.y tid.z",
    "uint a [[simdgroups_per_threadgroup]]": "ntid.x ntid.y ntid.z",
    "uint a [[threads_per_simdgroup]]": "",
}


@pytest.mark.parametrize("position, registers", POSITIONS.items())
def test_positions(tmp_path, position, registers):
    sum = {"uint2": "a.x + a.y", "uint3": "a.x + a.y + a.z"}.get(position.split()[0], "a")
    ptx = ptx_of(tmp_path, f"kernel void k(device uint* x, {position}) {{ x[0] = {sum}; }}")
    assert " ".join(sorted(set(re.findall(r"%(\w+\.[xyz])", ptx)))) == registers


def test_address_spaces(tmp_path):
    ptx = ptx_of(
        tmp_path,
        """
        constant constexpr int n = 8;
        constant int table[] = {1, 2, 3};
        struct Sums {
          threadgroup float* of;
          void skip(int n) thread { of += n; }
          float at(int i) const thread { return of[i]; }
        };
        inline float first(threadgroup const float* p, thread float& v, device float* x) {
          return p[0] + v + x[table[int(x[1])]];
        }
        kernel void k(device float* x [[buffer(0)]], uint i [[thread_index_in_simdgroup]]) {
          threadgroup float shared[n * 2][4], more[n];
          shared[i][0] = more[i] = x[i];
          threadgroup_barrier(mem_flags::mem_threadgroup);
          thread float v = 2.5;
          Sums sums{shared[0]};
          sums.skip(4);
          x[0] = first(shared[0], v, x) + sums.at(int(i)) + *((threadgroup float*)more + i);
        }
        """,
    )
    sizes = re.findall(r"\.shared .* \w+\[(\d+)\]", ptx)
    assert sorted(map(int, sizes)) == [32, 256]
    assert "bar.sync" in ptx and "ld.shared" in ptx and "ld.global" in ptx
    assert ".local" not in ptx and ".f64" not in ptx


def test_halves_of_a_vector(tmp_path):
    ptx = ptx_of(
        tmp_path,
        """kernel void k(device uint4* x) {
          uint4 v = x[0];
          x[1] = uint4(v.zw, v.xy);
        }""",
    )
    loaded, stored = re.findall(r"\.v4\.u32\s.*\{(.*)\}", ptx)
    x, y, z, w = loaded.split(", ")
    assert stored == ", ".join((z, w, x, y))


def test_bytes_of_two_words(tmp_path):
    ptx = ptx_of(
        tmp_path, "kernel void k(device uint* x) { x[0] = permute_bytes(x[1], 0x3fu, 0x4055u); }"
    )
    assert len(re.findall(r"\bprmt\.b32\b", ptx)) == 1


def test_exponential(tmp_path):
    ptx = ptx_of(tmp_path, "kernel void k(device float* x) { x[0] = precise::exp(x[1]); }")
    assert "ex2.approx" in ptx and ".f64" not in ptx and "call" not in ptx


def test_constants_that_follow_from_others(tmp_path):
    text = """
        constant int kind [[function_constant(1)]];
        constant bool odd = (kind & 1) != 0;
        kernel void k(
            device int* x, device int* y [[buffer(1), function_constant(odd)]]) {
          x[0] = odd ? y[0] : 5;
        }"""
    for kind, loads in ((2, 0), (3, 1)):
        assert len(re.findall(r"\bld\.global\b", ptx_of(tmp_path, text, kind=kind))) == loads


def test_errors_of_the_compiler_name_the_metal_source(tmp_path):
    text = "kernel void k(device float* x) {\n  x[0] = nonsense(x[1]);\n}\n"
    with pytest.raises(nvrtc.Refused, match=r'snippet.metal\(4\): error.*"nonsense" is undefined'):
        ptx_of(tmp_path, text)


# What is arithmetic in half or a sum of integers in MSL would be something else here.
UNKNOWN_TO_THE_PRELUDE = {
    "x[0] = float(half(x[0]) + half(x[1]));": "deleted|no operator|more than one operator",
    "x[0] = simd_sum(x[0]);": "simd_sum",
    "x[0] = simd_shuffle(int(x[0]), 0);": "deleted",
    "x[0] = simd_shuffle_xor(int(x[0]), 1);": "deleted",
    "x[0] = as_type<float>(ulong(3));": "as_type",
    "atomic_uint* p;": "atomic_uint",
    "packed_float3 v;": "packed_float3",
    "threadgroup_barrier(0);": "mem_flags",
}


@pytest.mark.parametrize("statement, message", UNKNOWN_TO_THE_PRELUDE.items())
def test_what_the_prelude_lacks_does_not_compile(tmp_path, statement, message):
    with pytest.raises(nvrtc.Refused, match=message):
        ptx_of(tmp_path, f"kernel void k(device float* x) {{ {statement} }}")


REFUSED = {
    "kernel void k(device float* x [[buffer(0), coherent(device)]]) {}": r"\[\[coherent\]\]",
    "kernel void k(threadgroup float* x [[threadgroup(0)]]) {}": "'x'",
    "kernel void k(device float& x) {}": "'x'",
    "kernel void k(constant const half& x) {}": "'x'",
    "kernel void k(constant const uint* sizes) {}": "'sizes'",
    "kernel void k(device int* a [[buffer(1)]], device int* b [[buffer(1)]]) {}": "another's",
    "kernel void k(texture2d<float> image [[texture(0)]]) {}": "image",
    "kernel void k(device int* a, uint i [[thread_index_in_quadgroup]]) {}": "quadgroup",
    "kernel void k(device int* a, uint2 i [[thread_index_in_simdgroup]]) {}": "'i'",
    "kernel void k(device int* a, ushort2 i [[thread_position_in_grid]]) {}": "'i'",
    "kernel void k(device int3* a) {}": "int3",
    "kernel void k(device int* a, uint i [[thread_position_in_grid]],"
    " uint2 j [[threads_per_grid]]) {}": "different widths",
    "kernel void k(device int* a) { char4 v; }": "char4",
    "kernel void k(device int* a) { metal::int2 v; }": "int2",
    "kernel void k(device float4* a) { a[0].xy = a[1].xy; }": "'xy'",
    "kernel void k(device float4* a) { float2 v = a[0].yx; }": "'yx'",
    "kernel void k(device int* a) { threadgroup int n = 1; }": "'threadgroup'",
    "kernel void k(device int* a) { static threadgroup int n; }": "'threadgroup'",
    "kernel void k(device int* a) { [[unroll]] for (;;) {} }": r"\[\[unroll\]\]",
    "constant float f [[function_constant(0)]];": "'f'",
    "constant constexpr int n = 2; constant int f [[function_constant(n)]];": "'f'",
    "namespace a { kernel void k(device int* a) {} }": "in a block",
    "kernel void k(device int* a);": "without a body",
    'template [[host_name("h")]] kernel void k<int>(device int*);': "no kernel",
}


@pytest.mark.parametrize("text, message", REFUSED.items())
def test_what_has_no_translation_is_refused(tmp_path, text, message):
    with pytest.raises(SourceError, match=rf"snippet\.metal:4: .*{message}"):
        snippet(tmp_path, f"\n{text}")


def test_what_the_preprocessor_refuses(tmp_path):
    with pytest.raises(SourceError, match='snippet.metal:3.*"kernels/nothing.h"|nothing.h'):
        snippet(tmp_path, '#include "kernels/nothing.h"')
