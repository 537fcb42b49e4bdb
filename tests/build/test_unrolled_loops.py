"""Loops that are unrolled: Metal's text marks those that CUDA's does, which leaves no local memory.

Nobody can read here what Apple's compiler makes of a private array, but PTX tells of NVIDIA's.
"""

import functools
import importlib
import re
import sys
import tempfile
from pathlib import Path

import pytest

import join
from msl.loops import unrolled
from msl.tokens import Tokens
from support import cuda_text as cuda

pytestmark = pytest.mark.applies(sys.platform != "darwin")  # for which there is no NVRTC

METALS = '_Pragma("clang loop unroll(full)") '
CUDAS = '_Pragma("unroll") '
MARK = "MARKED "  # which is no pragma, so that it stays where it is
# CUDA's own functions reduce large angles in local memory; Metal's text has others.
CUDAS_SINES = re.compile(r"#ifdef __CUDACC__(?=\n// Apart: inlined|\n  bool is_near)")

TEXT = """
constant constexpr int kSteps = 4;
constant int given [[function_constant(0)]];
template <int N, typename T>
void f(int n) {
  for (int i = 0; i < N; ++i) {
    for (int j = 1; j < (N + 3) / 4 * 2; j += 2)
      g();
  }
  for (int i = 0; i < n; ++i) {}
  for (int i = 0; i < N && n > 0; ++i) {}
  for (int i = 0; next(i, n); i += N) {}
  for (int i = n; i < N; ++i) {}
  for (uint i = 0; i < n; ++i) {}
}
#ifdef EITHER
void g(int N) {
  for (int i = 0; i < 4; ++i) {} for (int i = 0; i < N; ++i) {}
}
#else
template <typename T, int M = 2> struct S {
  template <int N> void h() {
    for (int i = 0; i < N * M; ++i) {}
  }
  void h(int N) {
    for (int i = 0; i < N * M; ++i) {}
  }
};
#endif
template <int N>
void declared();
void h(int N) {
  for (int i = 0; i < N; ++i) {}
  for (int i = 0; i < kSteps / 2; ++i) {}
  for (int i = 0; i < kSteps * given; ++i) {}
}
"""


def test_loops_of_constant_length_are_unrolled():
    """Those to an expression of numbers, constants and parameters of the templates around them."""
    text = unrolled(TEXT, "f")
    marks = [line.count(METALS) for line in text.split("\n")]
    assert [(n, count) for n, count in enumerate(marks, 1) if count] == [
        *((6, 1), (7, 1), (18, 1), (23, 1), (34, 1))
    ]
    assert text.replace(METALS, "") == TEXT


@functools.cache
def translation(text):
    """A Metal text in CUDA, with the pragmas that it has and no others."""
    module = importlib.import_module("to_cuda.translate")
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(module, "unroll_loops", lambda tokens, pragma: None)
        path = Path(folder, "kernels.metal")
        path.write_text(text.replace(METALS, MARK))
        translated = module.translate(path, path.parent, cuda.COMPILER)
    translated.text = translated.text.replace(MARK, CUDAS)
    return translated


METAL = join.texts()
LIBRARIES = {k.name: library for library in METAL for k in translation(METAL[library]).kernels}


def loops(text):
    """Each loop of a CUDA text, and whether it is marked."""
    tokens = Tokens(text.replace(CUDAS, MARK), "loops")
    for i in range(len(tokens)):
        if tokens.is_word(i, "for"):
            end = tokens.after(tokens.close(tokens.after(i)))
            while tokens[end] not in ("{", ";"):
                end = tokens.skip_brackets(end) + 1
            words = [tokens[k] for k in tokens.significant(i, tokens.skip_brackets(end))]
            loop = " ".join(word for word in words if word != MARK.strip())
            yield loop, tokens[tokens.before(i)] == MARK.strip()


@pytest.mark.parametrize("library", METAL)
def test_metal_marks_what_cuda_does(library):
    stems = {cuda.KERNELS[name][0] for name in LIBRARIES if LIBRARIES[name] == library}
    of_cuda = {loop for stem in stems for loop in loops(cuda.translation(stem).text)}
    assert {True, False} == {marked for _, marked in of_cuda}
    assert set(loops(translation(METAL[library]).text)) == of_cuda


def has_local_memory(name, without=""):
    """Whether one of the kernel's specializations keeps an array there."""
    text = CUDAS_SINES.sub("#if 0", METAL[LIBRARIES[name]])
    translated = translation(text.replace(without, ""))
    kernel = next(k for k in translated.kernels if k.name == name)
    sets = cuda.constant_sets(name)[cuda.ARCHITECTURES.index("compute_90") :: 4]
    for constants in sets:
        group_size = cuda.GROUPS.get(name, 32 * constants.get("simds_per_row", 8))
        ptx = cuda.compile(translated, kernel, "compute_90", group_size, **constants)
        if ".local" in ptx:
            return True
    return False


def ends(names):
    """Of each template the kernels of the least and the largest numbers: its marks are the same."""
    of_template = {}
    for name in names:
        stem, kernel = cuda.KERNELS[name]
        template = stem, kernel.expression.partition("<")[0]
        numbers = [int(number) for number in re.findall(r"\d+", name)]
        of_template.setdefault(template, []).append((numbers, name))
    return sorted({end(of)[1] for of in of_template.values() for end in (min, max)})


@pytest.mark.build
@pytest.mark.parametrize("name", ends(LIBRARIES))
def test_metals_pragmas_leave_no_local_memory(name):
    assert not has_local_memory(name)


@pytest.mark.parametrize("name", ["norm_8_4_1024", "norm_linear_16_8", "simdgroup_blocked_64"])
def test_without_pragmas_there_is_local_memory(name):
    assert has_local_memory(name, without=METALS)
