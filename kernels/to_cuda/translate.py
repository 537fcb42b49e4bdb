"""Metal source to CUDA text: tokens are replaced in place, so lines keep their numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import join
from msl.comments import without_comments
from msl.declarations import Declarations, FunctionConstant, declarations, read_attributes
from msl.literals import cpp_literal
from msl.loops import unroll_loops
from msl.reach import reached
from msl.spaces import erase_address_spaces
from msl.tokens import SourceError, Tokens

from .parameters import Parameters, rewrite_parameters
from .vectors import cuda_name, rewrite_vectors

PRELUDE = Path(__file__).with_name("prelude.h")
# The options that the text must be compiled with. Without contraction sums are bit-identical in
# every specialization of a kernel.
OPTIONS = ("--std=c++17", "--device-as-default-execution-space", "--fmad=false")

_BOUNDS = (
    "__launch_bounds__(GROUP_SIZE,"
    " THREADS_PER_CORE < GROUP_SIZE ? 1 : THREADS_PER_CORE / GROUP_SIZE)"
)


@dataclass
class KernelText:
    """A kernel, which launches call `name`, and how to compile and call it.

    Attributes:
        expression: NVRTC's name expression.
        parameters: the offsets of a launch's arguments.
    """

    name: str
    expression: str
    parameters: Parameters


@dataclass
class Translation:
    """A Metal source in CUDA: its text, its kernels and the function constants of the text."""

    text: str
    kernels: list[KernelText]
    constants: list[FunctionConstant]


def translate(path: Path, root: Path, compiler: str) -> Translation:
    """Translates a Metal source file.

    Args:
        path: the file.
        root: the folder that its includes are relative to.
        compiler: a C++ compiler, which preprocesses it.

    Raises:
        SourceError: If something in it has no translation.
    """
    # The prelude has what Metal's headers declare.
    tokens = join.read(path, root, compiler, ["__CUDACC__"])
    unroll_loops(tokens, "unroll")
    declared = declarations(tokens)
    entries = {}
    for host, entry in declared.entries.items():
        arguments = re.sub(r"\w+", lambda m: cuda_name(m[0], host), entry.arguments) or "<0>"
        entries[host] = (entry.kernel, f"{entry.kernel.name}{arguments}".replace(" ", ""))
    for start, stop in declared.instantiations:
        tokens.erase(start, stop)
    flags = {
        k.name: [c.name for c in declared.constants if c.name.endswith("_flags") and c.name in read]
        for k in declared.kernels.values()
        for read in [reached(tokens, k)]
    }
    _rewrite_constants(tokens, declared)
    parameters = {
        k.name: rewrite_parameters(tokens, k, flags[k.name]) for k in declared.kernels.values()
    }
    _rewrite_attributes(tokens, declared)
    _rewrite_words(tokens)
    rewrite_vectors(tokens)
    _rewrite_shared_variables(tokens)
    erase_address_spaces(tokens)
    prelude = without_comments(PRELUDE.read_text())
    text = f'#line 1 "kernels/to_cuda/{PRELUDE.name}"\n{prelude}{tokens.text()}'
    kernels = [
        KernelText(host, expression, parameters[kernel.name])
        for host, (kernel, expression) in sorted(entries.items())
    ]
    return Translation(text, kernels, declared.constants)


def _rewrite_constants(tokens: Tokens, declared: Declarations):
    for c in declared.constants:
        if not c.index.isdigit() or c.type not in ("bool", "int"):
            raise SourceError(
                f"{tokens.where(c.start)}: function constant '{c.name}' is no bool or int with a"
                " number as its index"
            )
        tokens.erase(c.start, c.stop)
        tokens[c.start] = f"constexpr {c.type} {c.name} = FC_{c.index};"


def _rewrite_attributes(tokens: Tokens, declared: Declarations):
    """Makes kernels templates, of which only requested ones are compiled."""
    heads = {k.body: k for k in declared.kernels.values()}
    i = block_end = 0
    while i < len(tokens):
        attributes = {}
        start = i
        if tokens.is_attribute(i):
            attributes = read_attributes(tokens, i)
            i = tokens.close(i)
            tokens.erase(start, i + 1)
        elif tokens.is_word(i, "kernel"):
            attributes = {"kernel": ""}
        unknown = attributes.keys() - {"kernel", "host_name", "max_total_threads_per_threadgroup"}
        if unknown or (start != i and not attributes):
            name = min(unknown, default="")
            raise SourceError(f"{tokens.where(start)}: attribute [[{name}]] has no translation")
        if "kernel" in attributes:
            body = next((body for body in sorted(heads) if body > i), None)
            if body is None or start < block_end:
                raise SourceError(f"{tokens.where(start)}: a kernel without a body, or in a block")
            template = "" if heads[body].is_template else "template <int = 0> "
            tokens[start] = f"{template}__global__ {_BOUNDS}"
        if tokens[i].startswith("{"):
            block_end = max(block_end, tokens.close(i))
        i += 1


def _rewrite_words(tokens: Tokens):
    for i in range(len(tokens)):
        if tokens.kind(i) == "number":
            tokens[i] = cpp_literal(tokens[i])
        elif tokens.is_word(i, "inline"):
            tokens[i] = "__forceinline__"


def _rewrite_shared_variables(tokens: Tokens):
    """Translates `threadgroup` where it does not belong to a pointer."""
    for i in range(len(tokens)):
        if not tokens.is_word(i, "threadgroup"):
            continue
        signs, end = [], i
        while tokens[end] not in (";", "=", "(", ")", "{"):
            signs += [tokens[end]] if tokens[end] in ("*", "&", ",") else []
            end = tokens.skip_brackets(end) + 1
        if signs[:1] in (["*"], ["&"]):
            continue
        starts = tokens[tokens.before(i)][-1:] in ("{", "}", ";")
        if not starts or tokens[end] != ";" or set(signs) - {","}:
            raise SourceError(f"{tokens.where(i)}: 'threadgroup' has no translation here")
        tokens[i] = "__shared__"
