"""What a planted defect is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One defect: the text `old`, which occurs once in `file`, becomes `new`."""

    name: str
    file: str
    old: str
    new: str
    tests: str | None  # pytest's arguments
    redundant: str | None = None  # why no test can see it; it is then not run
    at_levels: bool = False  # whether it shows at some levels of the CPU kernels only
    isa: str = "baseline"  # the instruction set that it takes to show
