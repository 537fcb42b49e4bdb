"""The specializations that launch plans make, of the calls in calls.py.

The calls run on the software Metal device (tools/hostmetal), which takes their launches and runs
none.
"""

from __future__ import annotations

import json
import re
import struct
from functools import cache

from metalsim.compiler import find_compiler, preprocess
from msl.declarations import declarations
from msl.tokens import Tokens

from .measure import Specialization

# The library in the name that MLX keeps a kernel's text by.
_LIBRARY = re.compile(r"mlx_norms_(\w+)_[0-9a-f]{16}(?:_|$)")


def launched(texts: dict[str, str]) -> dict[Specialization, list[str]]:
    """Each specialization with the calls that launch it.

    Args:
        texts: the libraries' texts, in which function constants have their names.
    """
    from hostmetal.build import printed

    lines = printed("-c", "from agx.launched import run; run()")
    found: dict[Specialization, list[str]] = {}
    for line in lines.splitlines():
        call, library, kernel, constants, group = json.loads(line)
        names = names_by_index(texts[library], library)
        # A plan sets what its kernel family has; what is 0 is not told from what is not set.
        given = {names[index]: value for index, value in constants.items() if value}
        of = Specialization(library, kernel, tuple(sorted(given.items())), tuple(group))
        found.setdefault(of, []).append(call)
    return found


@cache
def names_by_index(text: str, name: str) -> dict[str, str]:
    """Names of function constants by index."""
    declared = declarations(Tokens(preprocess(text, name, find_compiler()), name))
    return {c.index: c.name for c in declared.constants}


def run() -> None:
    """Prints a line for each launch, in a process whose extension is on the device."""
    from hostmetal.simulator import Simulator

    seen = []

    class Recorder(Simulator):
        def kernels(self, library):
            return {}

        def pipeline(self, pipeline):
            pass

        def thread_limit(self, pipeline):
            return 1024

        def encode(self, launch):
            return []

        def run(self, launch):
            pipeline = launch.pipeline
            constants = {}
            for c in pipeline.constants:
                form = "?" if len(c.value) == 1 else "i"
                constants[c.index] = int(struct.unpack(form, c.value)[0])
            library = _LIBRARY.match(pipeline.library.name)[1]
            seen.append([library, pipeline.kernel, constants, list(launch.group)])

    import _hostmetal

    recorder = Recorder(0, 0)
    _hostmetal.attach(recorder)

    import mlx.core as mx

    from .calls import calls

    mx.set_default_device(mx.cpu)
    for call in calls():
        seen.clear()
        call.run()
        recorder.wait()
        for launch in seen:
            print(json.dumps([call.name, *launch]))
        mx.clear_cache()
    recorder.exit()  # fails if one of the methods above did
