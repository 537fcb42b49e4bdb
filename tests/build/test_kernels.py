"""The Metal kernels' text, as Metal's compilers will see it."""

import importlib.metadata
import itertools
import random
import re
import subprocess
import sys

import pytest

import join
from metalsim import Library, address_spaces, rules
from metalsim.classes import members_of_classes
from mlx_norms.ladders import SGEMM
from msl.declarations import ADDRESS_SPACES
from msl.tokens import Tokens
from support.cuda_text import KERNELS
from support.variant import ROOT

LIBRARIES = sorted(join.libraries())
FAMILIES = {
    "norm",
    "group_norm",
    "group_norm_held",
    "group_norm_vjp",
    "norm_norm_add_norm_vjp",
    "norm_channels",
    "norm_vjp",
    "linear",
    "matmul",
    "ladders_layer_norm",
    "ladders_sgemm",
    "rope",
}


# A member of each library in which one needs its qualifier.
UNQUALIFIED = {
    "ladders_layer_norm": "read_from",
    "norm": "fetch_all",
    "norm_norm_add_norm_vjp": "arrive",
    "norm_vjp": "set_row",
}


def joined(folder, *options):
    command = [sys.executable, ROOT / "tools", "join", "metal", folder, *options]
    subprocess.run(command, check=True)
    return {path.stem: path.read_text() for path in folder.glob("*.metal")}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """What the build embeds for the compiler at run time, by library."""
    return joined(tmp_path_factory.mktemp("kernels"))


@pytest.fixture(scope="module")
def with_cuda(tmp_path_factory):
    """The same with the kernels that only CUDA launches."""
    return joined(tmp_path_factory.mktemp("kernels"), "--cuda")


@pytest.fixture(params=LIBRARIES)
def text(request, texts):
    return texts[request.param]


def test_a_library_for_each_family(texts, with_cuda):
    assert sorted(texts) == sorted(with_cuda) == LIBRARIES
    assert FAMILIES < set(texts)
    differs = [name for name in texts if texts[name] != with_cuda[name]]
    assert differs == ["linear", "matmul"]
    assert "line_tiles" not in texts["matmul"] and "gemv_line_tiles" in with_cuda["matmul"]


def test_self_contained_ascii_without_what_metal_lacks(text):
    assert rules.check(text) == []
    assert text.isascii() and '#include "' not in text and "#pragma once" not in text
    assert set(re.findall(r"#include <(\w+)", text)) <= {"metal_stdlib", "metal_simdgroup_matrix"}


@pytest.fixture
def spaces():
    """The faults that clang finds in a text's address spaces, in all instances of its kernels."""
    if address_spaces.compiler() is None:
        pytest.skip("instrument missing: clang++, for the address spaces of MSL")
    return address_spaces.check


BFLOAT = ("MLX_NORMS_NATIVE_BFLOAT",)
# Each define and each version of Metal once; all pairs of them are the build's.
READINGS = {"to_4.0-no_bfloat": ((), False), "4.1-bfloat": (BFLOAT, True)}
OTHERS = {"to_4.0-bfloat": (BFLOAT, False), "4.1-no_bfloat": ((), True)}


@pytest.mark.instrument
@pytest.mark.parametrize(
    "defines, generic",
    [pytest.param(*of, id=name) for name, of in READINGS.items()]
    + [pytest.param(*of, id=name, marks=pytest.mark.build) for name, of in OTHERS.items()],
)
def test_address_spaces(spaces, text, defines, generic):
    assert spaces(text, defines=defines, generic=generic) == []


@pytest.mark.instrument
@pytest.mark.parametrize("name, member", UNQUALIFIED.items())
def test_metal_4_1_refuses_a_member_for_any_space(spaces, texts, name, member):
    """Of objects that it hands on as the thread's."""
    planted, count = re.subn(rf"(\b{member}\([^()]*\))\s+thread {{", r"\1 {", texts[name])
    assert count == 1
    assert spaces(planted) == []
    found = spaces(planted, generic=True)
    assert found and all(d.space for d in found)


def members_for_any_space(text, name):
    """Where there is a member function that does not say where its objects are."""
    tokens = Tokens(text, name)
    for i in members_of_classes(tokens):
        if tokens[i] != "(":
            continue
        words, k = set(), tokens.after(tokens.close(i))
        while tokens.is_word(k):
            words.add(tokens[k])
            k = tokens.after(k)
        if tokens[k] in ("{", ";") and not words & ADDRESS_SPACES:
            yield tokens.where(i)


def test_every_member_function_names_the_space_of_its_objects():
    """Also those that hand nothing on yet, and those for CUDA only."""
    files = [*ROOT.glob("kernels/**/*.h"), *ROOT.glob("kernels/**/*.metal")]
    for path in files:
        if path.parent.name != "to_cuda":
            name = str(path.relative_to(ROOT))
            assert [*members_for_any_space(path.read_text(), name)] == []
    text = "struct S {\n  int n;\n  int f() const {\n    return (n);\n  }\n};\n"
    assert [*members_for_any_space(text, "s.h")] == ["s.h:3"]
    assert [*members_for_any_space(text.replace("const", "const thread"), "s.h")] == []


def kernels(texts):
    return [
        name
        for library, text in texts.items()
        for name in Library.from_source(text, name=library, check=1).kernels()
    ]


def test_each_is_compiled_by_itself(text):
    """What the build embeds is a library's text, and what it lacks of each kernel."""
    rest, lacks = join.by_kernel(text)
    assert lacks.keys() == set(Library.from_source(text).kernels())
    whole = {name for name, line in lacks.items() if not line}
    assert set(Library.from_source(rest).kernels()) == whole
    name, line = next(reversed(lacks.items()))
    assert set(Library.from_source(rest + line + "\n").kernels()) == whole | {name}


def test_a_macro_instantiates_one_kernel():
    of = 'template [[host_name("{}_" #N)]] [[kernel]] decltype(f<N>) f<N>;'
    both = " ".join(of.format(name) for name in "ab")
    with pytest.raises(ValueError, match="INSTANTIATE_F instantiates 2 kernels: a macro for each"):
        join.by_kernel(f"#define INSTANTIATE_F(N) {both}\nINSTANTIATE_F(4)\n")


def test_every_kernel_is_in_one(texts, with_cuda):
    """What the launch plans ask for by name."""
    # By elements of a vector and threads of a group: vectors of a thread.
    vectors = {
        "norm": {(4, 512): (1, 2, 3, 4), (4, 1024): (4,)} | {(8, 512): (1, 2), (8, 1024): (2,)},
        "norm_vjp": {(4, 256): (1, 2), (4, 512): (1, 2, 4), (8, 256): (1,), (8, 512): (1, 2)},
    }
    vectors["rms_norms"] = vectors["norm"]
    of_few = {(4, 256): (1, 2), (4, 512): (1, 2), (8, 256): (1,), (8, 512): (1,)}
    vectors["norm_add_norm_vjp"] = of_few
    names = {
        f"{kernel}_{n}_{v}_{threads}"
        for kernel, of in vectors.items()
        for (n, threads), counts in of.items()
        for v in counts
    }
    names |= {"parameter_gradients_4", "parameter_gradients_8", "sum_partials"}
    names |= {"gather_rows_2", "gather_rows_4"}
    names |= {f"norm_rope_4_{v}" for v in (1, 2, 3, 4, 6, 8)}
    names |= {f"norm_rope_8_{v}" for v in (1, 2, 3, 4)}
    names |= {f"channel_norm_{n}_{v}" for n in (1, 4, 8) for v in (1, 2, 4, 8)}
    names |= {f"channel_norm_vjp_{n}_{v}" for n in (1, 4, 8) for v in (1, 2, 4, 8)}
    parts = ("partials", "normalize", "gradient_partials", "input_gradient")
    names |= {f"group_{part}_{n}" for part in parts for n in (4, 8)}
    names |= {f"held_groups_4_{v}" for v in (1, 2, 4, 8, 10, 16, 20, 32)}
    names |= {f"held_groups_8_{v}" for v in (1, 2, 4, 8, 10, 16, 20)}
    names |= {f"group_statistics_{simds}" for simds in (1, 4, 8, 16)}
    names |= {"group_gradient_sums_64", "group_gradient_sums_256"}
    rows = {4: (1, 4), 8: (1, 2, 4, 8), 16: (1, 2, 4, 8)}
    names |= {f"norm_linear_{n}_{r}" for n, of in rows.items() for r in of}
    names |= {f"sgemm_{rung.name}" for rung in SGEMM}
    names |= {f"gemv_{way}_{rows}" for way in ("lines", "columns") for rows in range(1, 9)}
    names |= {"simdgroup_blocked_32", "simdgroup_blocked_64"}
    rungs = ("naive", "naive_32", "shared", "simd", "vectorized", "fused", "robust", "welford")
    names |= {f"layer_norm_{rung}_4" for rung in rungs} | {"layer_norm_welford_2"}
    names |= {f"layer_norm_regtiled_4_{fours}" for fours in (1, 2, 4)}
    assert sorted(kernels(texts)) == sorted(names)
    tiles = {f"gemv_line_tiles_{n}_{simds}" for n in (4, 8) for simds in (4, 8)}
    tiles |= {f"gemv_column_tiles_{n}_{simds}" for n in (4, 8) for simds in (4, 8, 16)}
    tiles.add("gemv_column_tiles_8_12")
    tiles |= {f"quantized_tiles_{n}_{simds}" for n in (1, 2) for simds in (4, 8, 16)}
    assert sorted(kernels(with_cuda)) == sorted(names | tiles)


# Values of the constants that leave arguments out, beside those of bools.
NUMBERS = {
    "linear_projections": range(1, 5),
    "linear_biases": (0, 1, 2, 4, 8),
    "linear_bits": (0, 4),
}
NEVER = [  # no plan has these
    lambda c: c.get("linear_gated") and c["linear_projections"] != 2,
    lambda c: c.get("has_x4") and not c["has_x3"],
    lambda c: c.get("has_weight3") and not c["has_x3"],
    lambda c: c.get("has_weight4") and not c["has_x4"],
    lambda c: (
        not c.get("linear_normed", True)
        and (
            c["has_weight"] or c["has_bias"] or c["linear_projections"] != 1 or not c["linear_bits"]
        )
    ),
    lambda c: "sums_weight" in c and not (c["sums_weight"] or c["sums_bias"]),
]


def template(name):
    """The file and function template of a kernel; its family, if CUDA has others of it."""
    stem, kernel = KERNELS.get(name, (None, None))
    return (stem, kernel.expression.partition("<")[0]) if kernel else re.sub(r"(_\d+)+$", "", name)


@pytest.mark.build
@pytest.mark.instrument
@pytest.mark.parametrize("name", LIBRARIES)
def test_no_argument_that_constants_leave_out_is_named(name, with_cuda):
    library = Library.from_source(with_cuda[name], name=name, check=0)
    conditional = re.compile(r", if (\w+)")
    # One of each template: what is gone does not depend on its parameters.
    for kernel in {template(kernel): kernel for kernel in library.kernels()}.values():
        names = {m[1] for p in library.parameters(kernel) if (m := conditional.search(p))}
        if kernel.startswith("norm_linear"):
            names = {"has_weight", "has_bias", "linear_has_residual", "linear_gated"}
            names |= {"linear_normed", *NUMBERS}
        # What this kernel divides by.
        always = dict(linear_bits=4, linear_group_size=64) if "quantized" in kernel else {}
        names = sorted(names)
        values = [NUMBERS.get(name, (False, True)) for name in names]
        sets = [dict(zip(names, v)) | always for v in itertools.product(*values)]
        sets = [constants for constants in sets if not any(never(constants) for never in NEVER)]
        # Whether an argument is named depends on few of the constants: nearly each three.
        for constants in random.Random(kernel).sample(sets, min(len(sets), 48)):
            assert library.absent_named(kernel, constants) == []


def test_the_package_has_no_instruments():
    files = {file.parts[0] for file in importlib.metadata.files("mlx_norms")}
    assert {name for name in files if not name.endswith(".dist-info")} == {"mlx_norms"}
