"""The whole chain, for many kernels at once."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from metalsim.compiler import CompileError
from msl.tokens import SourceError

from .frontend import Refused, optimized, specialized
from .mesa import Statistics, compile_all, statistics
from .opencl import OpenCL, translate
from .packages import Tree

AT_ONCE = 64  # kernels in one process of Mesa's


@dataclass(frozen=True)
class Specialization:
    """What a pipeline is made of.

    Attributes:
        library: the name of the kernel's text.
        kernel: its host name.
        constants: names and values of the function constants.
        group, exactly: as opencl.translate takes them.
    """

    library: str
    kernel: str
    constants: tuple[tuple[str, object], ...] = ()
    group: tuple[int, int, int] | None = None
    exactly: bool = False


@dataclass
class Measured:
    """What became of a specialization.

    Attributes:
        group: threads of a threadgroup that it was compiled for.
        by_chip: its statistics, or why there are none.
        listings: Mesa's, by chip.
    """

    of: Specialization
    group: tuple[int, int, int] | None = None
    by_chip: dict[str, Statistics | str] = field(default_factory=dict)
    listings: dict[str, str] = field(default_factory=dict)


def measure(
    tree: Tree,
    texts: dict[str, str],
    specializations: Iterable[Specialization],
    chips: Iterable[str],
) -> list[Measured]:
    """Runs specializations of these texts through the chain, in order."""
    chips, specializations = tuple(chips), list(specializations)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:

        def optimize(numbered) -> tuple[OpenCL, Path] | Exception:
            number, of = numbered
            try:
                text = texts[of.library]
                made = translate(text, of.library, of.kernel, of.group, of.exactly)
                source = Path(folder, f"kernel{number}.clcpp")
                source.write_text(made.text)
                optimized(tree, source)
                return made, source
            except (CompileError, Refused, SourceError) as error:
                return error

        def specialize(numbered) -> tuple[Measured, Path | None]:
            number, of = numbered
            measured = Measured(of, of.group)
            try:
                found = by_kernel[replace(of, constants=())]
                if isinstance(found, Exception):
                    raise found
                made, source = found
                measured.group = made.group
                macros, to = made.macros(dict(of.constants)), Path(folder, f"{number}.spv")
                return measured, specialized(tree, source, macros, to)
            except (CompileError, Refused, SourceError) as error:
                reason = str(error).splitlines()[0]
                measured.by_chip = dict.fromkeys(chips, reason)
                return measured, None

        # Once each, whatever the values of function constants.
        kernels = list(dict.fromkeys(replace(of, constants=()) for of in specializations))
        by_kernel = dict(zip(kernels, pool.map(optimize, enumerate(kernels))))
        fronts = list(pool.map(specialize, enumerate(specializations)))
        compiled = {path: measured for measured, path in fronts if path}
        _back(tree, compiled, chips)
    return [measured for measured, _ in fronts]


def _back(tree: Tree, compiled: dict[Path, Measured], chips: Iterable[str]) -> None:
    """Adds what Mesa makes of each SPIR-V file."""
    paths = list(compiled)
    for chip in chips:
        for start in range(0, len(paths), AT_ONCE):
            part = {path: compiled[path].group for path in paths[start : start + AT_ONCE]}
            for path, output in compile_all(tree, part, chip).items():
                compiled[path].by_chip[chip] = statistics(output)
                compiled[path].listings[chip] = output.listing
            print(f"{chip}: {start + len(part)} of {len(paths)}", file=sys.stderr)
