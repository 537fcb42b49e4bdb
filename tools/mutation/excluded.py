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


_STAGES = "rows are fetched in stages on CUDA alone"
_CHOICE = "a choice of how a launch goes, or what is read again, with the same values"
_LOOP = "the loop over any rows has the same bits"
_SAMPLE = "what the check before a first use takes as a sample decides no result"

EXCLUDED = [
    Excluded("csrc/gpu/recorded.*:no bits", "a plan's flags follow from strides; see pinned.py"),
    Excluded("csrc/op/run.cpp:add:*", "where a plan is kept decides no result", "kWays"),
    Excluded("kernels/norm/*", _STAGES, "stages > 0"),
    Excluded("kernels/norm/*", _STAGES, "+ stages"),
    Excluded("kernels/norm/*:part of condition", _STAGES, "stages == 0"),
    Excluded("kernels/norm/vjp/*:one choice", "the rows that a thread has not are 0", "has_row ?"),
    Excluded("kernels/norm/vjp/*:parameter_gradients:*", "spares a loop over rows", "i >= length"),
    Excluded("kernels/norm/rows_ahead.h:*", "a row that is not used takes registers", "fetch_next"),
    Excluded("kernels/norm/held_row.h:get_vector:always", _CHOICE),
    Excluded("kernels/norm/rows_ahead.h:is_staged:*", _STAGES),
    Excluded("kernels/norm/vjp/*", _STAGES, "holds_sum_cotangent"),
    Excluded("kernels/norm/vjp/*:no statement", _STAGES, "sum_cotangent.fetch_ahead"),
    Excluded("csrc/norm/groups/geometry.cpp:*", _CHOICE + "; pinned.py has those that are none"),
    Excluded("csrc/linear/tiles_plan.cpp:plan_tiles:*", _CHOICE, "cores"),
    Excluded("csrc/norm/persistent_loops.cpp:Cluster:*", _CHOICE),
    Excluded("csrc/patching/*:is_compiled_sum:*", "nothing else has this name", "!compiled"),
    Excluded("csrc/norm/groups/plan.cpp:launch_held:*", _CHOICE, "few_registers"),
    Excluded("csrc/norm/groups/plan.cpp:launch_held:*", _CHOICE, "spec.activation =="),
    Excluded("csrc/norm/vjp_plan.cpp:fetches_next:*", _CHOICE),
    Excluded("csrc/norm/cpu/fast_rows.cpp:rows_together:*", _CHOICE),
    Excluded("csrc/norm/cpu/*:suits:always", _LOOP, "are_whole_rows"),
    Excluded("csrc/norm/cpu/*:suits:part of condition", _LOOP, "i == kX ||"),
    Excluded("csrc/norm/cpu/*:suits:verdict", _LOOP),
    Excluded("csrc/norm/eval_cpu.cpp:*:one choice", _CHOICE, "blocks_of_sums"),
    Excluded("csrc/norm/cpu/rows.h:sums:unwrapped", _CHOICE),
    Excluded("csrc/op/node.cpp:make:never", _CHOICE),
    Excluded("csrc/rope/cpu_angles.h:sine_and_cosine:always", _CHOICE),
    Excluded("csrc/norm/cpu/lanes.cpp:rows_ahead:*", "an address that is fetched ahead"),
    Excluded("*:prefetch*:*", "an address that is fetched ahead"),
    Excluded("*:sample*:*", _SAMPLE),
    Excluded("*:*_like:*", _SAMPLE),
    Excluded("*:append_key:*", _SAMPLE),
]


def is_excluded(site: Site) -> bool:
    return any(each.matches(site) for each in EXCLUDED)
