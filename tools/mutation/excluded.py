"""Places where an operator changes no result that a test could see, each with the reason."""

from fnmatch import fnmatchcase
from typing import NamedTuple

from .operators import Site


class Excluded(NamedTuple):
    """Sites of an operator in a function.

    Attributes:
        key: A pattern of file:function:operator.
        reason: Why they change nothing.
        word: What the text that is replaced has, where not all of the function's are meant.
    """

    key: str
    reason: str
    word: str = ""

    def matches(self, site: Site) -> bool:
        return fnmatchcase(site.name.rpartition(":")[0], self.key) and self.word in site.old


EXCLUDED = [
    Excluded(
        "csrc/gpu/recorded.cpp:*:no bits",
        "what a plan reads of flags follows from sizes and strides; pinned.py has the others",
    ),
    Excluded(
        "kernels/norm/vjp/norm_vjp.metal:norm_vjp:one choice",
        "the rows that a thread has not are zeros where they are not staged",
        "has_row ?",
    ),
    Excluded(
        "kernels/norm/vjp/parameter_gradients.metal:parameter_gradients:*",
        "loads and stores are checked; this spares the loop over the rows",
        "i >= length",
    ),
    Excluded(
        "kernels/norm/rows_ahead.h:*",
        "a row in registers that is not used takes only their place",
        "fetch_next",
    ),
]


def is_excluded(site: Site) -> bool:
    return any(each.matches(site) for each in EXCLUDED)
