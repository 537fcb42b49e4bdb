"""Defects planted in the CPU kernels, and the part of the suite that must see each."""

from dataclasses import dataclass

KERNELS = "csrc/cpu/norm_kernels.cpp"
SIMD = "csrc/cpu/simd.h"
SUM = "csrc/cpu/pairwise_sum.h"
RUNS = "csrc/cpu/row_runs.h"
EVAL = "csrc/cpu/norm_eval.cpp"


@dataclass(frozen=True)
class Mutant:
    """One defect: the text `old`, which occurs once in `file`, becomes `new`."""

    name: str
    file: str
    old: str
    new: str
    tests: str  # pytest's arguments, from tests/


MUTANTS = []
