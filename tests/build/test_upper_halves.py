"""No kernel of the CPU returns with upper halves of vector registers in use.

With them SSE code takes several times as long, as MLX's, until something ends that.
"""

import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mlx_norms import _ext
from support import variant
from support.upper_halves import Code
from support.variant import ROOT, Variant

LIBRARY = "libmlx_norms_cpu.so"
BUILT = Path(_ext.__file__).with_name(LIBRARY)
LEVELS = 4
TABLES = 2  # of a level: of norms and ropes

pytestmark = pytest.mark.applies(sys.platform == "linux" and platform.machine() == "x86_64")

# Functions, and whether they may return with upper halves in use.
FUNCTIONS = {
    "no write": ("vmovaps %xmm0, %xmm1; ret", False),
    "ymm": ("vmovaps %ymm0, %ymm1; ret", True),
    "zmm": ("vmovaps %zmm0, %zmm1{%k1}{z}; ret", True),
    "registers that do not count": ("vmovaps %zmm16, %zmm17; ret", False),
    "memory": ("vmovaps %ymm0, (%rsp); ret", False),
    "vzeroupper": ("vmovaps %ymm0, %ymm1; vzeroupper; ret", False),
    "before a tail call": ("vmovaps %ymm0, %ymm1; jmp f0", True),
    "ended in a tail call": ("vmovaps %ymm0, %ymm1; jmp f5", False),
    "of a pointer's function": ("vmovaps %ymm0, %ymm1; jmp *%rax", True),
    "in a call": ("call f1; ret", True),
    "ended after a call": ("call f1; vzeroupper; ret", False),
    "before another library's": ("vmovaps %ymm0, %ymm1; call memcpy@PLT; ret", True),
    "on one way": ("je 1f; vmovaps %ymm0, %ymm1; jne 1f; vzeroupper; 1: ret", True),
    "on no way": ("je 1f; vmovaps %ymm0, %ymm1; vzeroupper; 1: ret", False),
    "in a call of itself": ("je 1f; call f14; vmovaps %ymm0, %ymm1; 1: ret", True),
    "by a table of jumps": ("jmp *%rax; ret; vmovaps %ymm0, %ymm1; ret", True),
}

# The kernels by the number of their calls, and those that left upper halves in use.
WATCHED = """
import ctypes
import itertools
import json
import re
import sys
from collections import Counter

import mlx.core as mx

from mlx_norms import _ext
from mlx_norms._table import OPS
from support.norm_case import DTYPES
from support.table import arrays_of, cotangents_of

watch, kernels = map(ctypes.CDLL, sys.argv[1:])
if not watch.can_read():
    sys.exit("instrument missing: XGETBV that tells what is in use")


def each(what, kind=ctypes.c_long):
    count = ctypes.c_int.in_dll(watch, "watched").value
    return (kind * count).in_dll(watch, what)[:]


mx.set_default_device(mx.cpu)
table = f"kernels_{_ext.cpu_isa()}"
symbols = [f"_ZN9mlx_norms3cpu{room}{len(table)}{table}E" for room in ("", "4rope")]
watch.watch(*(ctypes.byref(ctypes.c_char.in_dll(kernels, symbol)) for symbol in symbols))
names = [re.search(r"(\\w+)\\]", name.decode())[1] for name in each("names", ctypes.c_char_p)]
left = Counter()
for op, dtype in itertools.product(OPS.values(), DTYPES):
    # Small groups, rows with a tail, and what has kernels for many rows.
    for sizes in ({}, dict(D=33, C=6), dict(B=2, D=130, C=130), dict(N=300)):
        arrays = arrays_of(op, dtype, **sizes)
        cots = cotangents_of(op.ours()(*arrays))
        calls = dict(forward=op.ours(), backward=lambda *a: mx.vjp(op.ours(), [*a], cots)[1])
        for way, call in calls.items():
            left.subtract({f"{op} {way}: {name}": n for name, n in zip(names, each("left"))})
            mx.eval(call(*arrays))
            left.update({f"{op} {way}: {name}": n for name, n in zip(names, each("left"))})
print(json.dumps([dict(zip(names, each("calls"))), +left]))
"""


def test_every_way_to_return_is_seen(tmp_path):
    text = ""
    for i, (code, _) in enumerate(FUNCTIONS.values()):
        lines = code.replace("; ", "\n")
        text += f"f{i}: .cfi_startproc\n{lines}\n.cfi_endproc\n"
    text += '.section .data.rel.ro, "aw"\n.globl kernels_test\n.type kernels_test, @object\n'
    text += f"kernels_test: {' '.join(f'.quad f{i};' for i in range(len(FUNCTIONS)))}\n"
    text += ".size kernels_test, . - kernels_test\n"
    source, library = tmp_path / "functions.s", tmp_path / "functions.so"
    source.write_text(text)
    subprocess.run(["cc", "-shared", source, "-o", library], check=True)
    names = list(FUNCTIONS)
    in_use = [names[i] for _, i in Code(library).in_use()]
    assert in_use == [name for name, (_, used) in FUNCTIONS.items() if used]


def test_code_of_this_build():
    code = Code(BUILT)
    assert len({table for table, _ in code.kernels}) >= TABLES * len(_ext.cpu_isas())
    assert not code.in_use()


@pytest.mark.build
@pytest.mark.instrument
@pytest.mark.parametrize("compiler", ["g++", "clang++-16"])
def test_code_of_all_levels(compiler, tmp_path):
    if not shutil.which(compiler):
        pytest.skip(f"instrument missing: {compiler}")
    options = f"-DCMAKE_CXX_COMPILER={compiler}", "-DMLX_NORMS_CPU_LEVELS=all"
    build = Variant(tmp_path, options=options).build
    command = ["cmake", "--build", build, "--target", "mlx_norms_cpu"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (library,) = build.glob(f"*/{LIBRARY}")
    code = Code(library)
    assert len({table for table, _ in code.kernels}) == TABLES * LEVELS
    assert not code.in_use()


@pytest.fixture(scope="module")
def watch(tmp_path_factory):
    library = tmp_path_factory.mktemp("watch") / "watch.so"
    source = ROOT / "tests" / "support" / "watch_kernels.cpp"
    command = ["c++", "-std=c++20", "-O1", "-shared", "-fPIC", f"-I{ROOT}", source, "-o", library]
    subprocess.run(command, check=True)
    return library


@pytest.mark.parametrize("level", _ext.cpu_isas())
def test_kernels_of_all_ops_leave_none_in_use(level, watch):
    """Read right after each call of a kernel, on the stream's thread."""
    env = variant.environment(MLX_NORMS_CPU_ISA=level, MLX_NORMS_CPU_THREADS="1")
    command = [sys.executable, "-c", WATCHED, watch, BUILT]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if "instrument missing" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    calls, left = json.loads(done.stdout)
    assert all(calls.values()), calls
    assert not left
