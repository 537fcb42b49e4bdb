"""One member of a group, which runs every case; test_distributed.py starts it as each of them.

The members make the same whole arrays, each takes its parts, and holds what becomes of them
against what becomes of whole ones in one process. They communicate within a case, so all must take
the same steps in each, and none can go on when one has failed.
"""

import mlx.core as mx
import numpy as np

from support import ring, sharded_cases, training_cases


class Member:
    def __init__(self, group):
        self.group = group
        self.rank = group.rank()
        self.size = group.size()

    def part(self, a, axis=-1):
        """This member's part of an array, of MLX or NumPy."""
        split = mx.split if isinstance(a, mx.array) else np.split
        return split(a, self.size, axis)[self.rank]

    def parts(self, arrays):
        return [self.part(a) for a in arrays]


if __name__ == "__main__":
    ring.meet()
    member = Member(mx.distributed.init(strict=True, backend="ring"))
    for case in (*sharded_cases.CASES, *training_cases.CASES):
        print(case.__name__)  # what a member that never ends is at
        case(member)
