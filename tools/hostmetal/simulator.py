"""Runs the software device's launches in metalsim."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx

import metalsim

from .checks import Refused, check_launch, constant_values
from .declared import Declared


class Failed(Exception):
    """The exception that MLX throws when the GPU or Metal's compiler has failed, with its text."""

    is_whole_text = thrown_by_mlx = True


@dataclass(frozen=True)
class Launch:
    """A launch that ran.

    Attributes:
        library, kernel: The names of the library and the kernel.
        constants: The values of the function constants, by name.
        grid: The grid's threadgroups, or its threads if `in_threads`.
        group: Threads per threadgroup.
        max_threads: How many the kernel declares at most; 0: none.
        buffers: {index: "Input", "Output", "Buffer" or "Bytes"}, as bound.
        arrays: Names of the parameters in device memory.
        temporaries: Indices of the buffers that were handed to add_temporary.
        donated: Whether an output is in the buffer of an input.
        result: metalsim's result: faults, bytes read and written by parameter name, barriers,
            SIMD ops, threads.
    """

    library: str
    kernel: str
    constants: dict[str, object]
    grid: tuple[int, int, int]
    group: tuple[int, int, int]
    max_threads: int
    in_threads: bool
    buffers: dict[int, str]
    arrays: frozenset[str]
    temporaries: frozenset[int]
    donated: bool
    result: metalsim.Result


class Simulator:
    """Checks and runs the device's launches.

    Attributes:
        check, order, fast_error: metalsim's check level and schedule for the next launches, and how
            far metal::fast is off in them.
        max_threads: The most threads per threadgroup of a pipeline. None: what its kernel declares
            by max_total_threads_per_threadgroup, or else 1024.
        fails: Returns the error text with which a launch's command buffer fails, or None.
        failed: By stream index, the error text of an earlier command buffer, which MLX throws at
            its next use of that stream.
        falters: Returns the error text with which Metal's compiler, another process, fails to
            build a library or a kernel of this name, or None.
        mlx: The release of MLX: before 0.32.0 a command buffer that fails ends the process.
        launches: Launches that ran, in order.
        faults: Refusals, and the simulator's findings, as sentences.
    """

    def __init__(self, check: int, order: int, fast_error: float = 0):
        self.check = check
        self.order = order
        self.fast_error = fast_error
        self.max_threads: int | None = None
        self.fails: Callable[[object], str | None] = lambda launch: None
        self.failed: dict[int, str] = {}
        self.falters: Callable[[str], str | None] = lambda name: None
        self.mlx = mx.__version__
        self.launches: list[Launch] = []
        self.faults: list[str] = []
        self._memory: dict[str, int] = {}  # the threadgroup memory that each kernel has used so far

    def clear(self) -> None:
        """Waits for pending launches, then forgets launches and faults."""
        self.wait()
        self.launches.clear()
        self.faults.clear()

    def exit(self) -> None:
        """Ends the process with a failure if there are faults that nobody has removed."""
        self.wait()
        if self.faults:
            print("hostmetal:", *dict.fromkeys(self.faults), sep="\n", file=sys.stderr, flush=True)
            os._exit(1)

    def wait(self) -> None:
        """Waits for all submitted launches, without the GIL, so that they can run."""
        import _hostmetal

        while _hostmetal.pending():
            time.sleep(0.0005)

    def kernels(self, library) -> dict[str, dict[str, int]]:
        """Indices of the constants that each of a library's kernels needs; called by the device."""
        self._ask_compiler(library.name)
        compiled, declared = _compile(library.text, library.name, self.check)
        indices = compiled.constants()
        return {
            kernel: {name: indices[name] for name in declared.mentioned(kernel) & indices.keys()}
            for kernel in compiled.kernels()
        }

    def pipeline(self, pipeline) -> None:
        """Checks a new pipeline; called by the device."""
        self._ask_compiler(pipeline.kernel)
        library, declared = self._compiled(pipeline)
        if pipeline.kernel not in library.kernels():
            raise Refused(
                f"{pipeline.kernel}: library {pipeline.library.name} has no kernel of this name"
            )
        constant_values(pipeline, declared)

    def thread_limit(self, pipeline) -> int:
        """The pipeline's maxTotalThreadsPerThreadgroup; called by the device."""
        _, declared = self._compiled(pipeline)
        return self.max_threads or declared.max_threads(pipeline.kernel) or 1024

    def static_memory(self, pipeline) -> int:
        """The pipeline's staticThreadgroupMemoryLength, as seen so far; called by the device."""
        return self._memory.get(pipeline.kernel, 0)

    def encode(self, launch) -> list[int]:
        """Checks a launch and returns the buffers that it writes; called by the device."""
        if text := self.failed.pop(launch.stream, None) or self.fails(launch):
            if tuple(map(int, self.mlx.split(".")[:2])) < (0, 32):
                # Thrown where Metal says that the command buffer has ended, and nobody catches.
                print("libc++abi: terminating due to uncaught exception:", text, file=sys.stderr)
                sys.stderr.flush()
                os.abort()
            raise Failed(text)
        _, declared = self._compiled(launch.pipeline)
        parameters = declared.parameters(launch.pipeline.kernel)
        constants = constant_values(launch.pipeline, declared)
        return check_launch(launch, parameters, declared.bound(launch.pipeline.kernel, constants))

    def run(self, launch) -> None:
        """Runs a launch; called by the device."""
        pipeline = launch.pipeline
        library, declared = self._compiled(pipeline)
        constants = constant_values(pipeline, declared)
        parameters = declared.parameters(pipeline.kernel)
        result = library.launch(
            pipeline.kernel,
            arguments(launch.bindings),
            **{"grid" if launch.in_threads else "groups": tuple(launch.grid)},
            group=tuple(launch.group),
            constants=constants,
            tg=launch.threadgroup_memory,
            order=self.order,
            fast_error=self.fast_error,
        )
        addresses = {"Input": set(), "Output": set()}
        for bound in launch.bindings.values():
            addresses.setdefault(bound.kind.name, set()).add(bound.address)
        self.launches.append(
            Launch(
                pipeline.library.name,
                pipeline.kernel,
                constants,
                tuple(launch.grid),
                tuple(launch.group),
                declared.max_threads(pipeline.kernel) or 0,
                launch.in_threads,
                {index: bound.kind.name for index, bound in launch.bindings.items()},
                frozenset(p.name for p in parameters if p.space == "device"),
                frozenset(i for i, bound in launch.bindings.items() if bound.temporary),
                bool(addresses["Input"] & addresses["Output"]),
                result,
            )
        )
        self.faults += map(str, result.faults)
        used = max(self._memory.get(pipeline.kernel, 0), result.threadgroup_bytes)
        self._memory[pipeline.kernel] = used

    def _ask_compiler(self, name: str) -> None:
        if text := self.falters(name):
            raise Failed(text)

    def _compiled(self, pipeline) -> tuple[metalsim.Library, Declared]:
        return _compile(pipeline.library.text, pipeline.library.name, self.check)


def arguments(bindings) -> dict[int, object]:
    """A launch's bindings as metalsim's arguments.

    A buffer ends at the last element of the arrays bound from it, so that reading the rest of an
    allocation is out of bounds.
    """
    ends: dict[int, int] = {}
    for bound in bindings.values():
        ends[bound.address] = max(ends.get(bound.address, 0), bound.end)
    return {
        index: bound.bytes
        if bound.kind.name == "Bytes"
        else metalsim.Memory(
            bound.address,
            ends[bound.address],
            offset=bound.offset,
            written=(bound.begin, bound.end) if bound.must_fill else None,
            initialized=bound.initialized,
        )
        for index, bound in bindings.items()
    }


@functools.cache
def _compile(text: str, name: str, check: int) -> tuple[metalsim.Library, Declared]:
    library = metalsim.Library.from_source(text, name=name, check=check)
    return library, Declared(library, text)


@functools.cache
def start() -> Simulator:
    """Attaches a simulator to the device, for the life of the process.

    METALSIM_CHECK and METALSIM_ORDER set its check level (1 by default) and schedule (0), and
    METALSIM_FAST_ERROR how far metal::fast is off, also where it computes MLX's ropes.

    Returns:
        The simulator, which is the same at each call.
    """
    import _hostmetal

    given = (os.environ.get(f"METALSIM_{name}") for name in ("CHECK", "ORDER", "FAST_ERROR"))
    check, order, fast_error = given
    simulator = Simulator(int(check or 1), int(order or 0), float(fast_error or 0))
    _hostmetal.attach(simulator)
    # These hold the GIL while they wait for streams, whose launches need it.
    for name in ("clear_cache", "set_cache_limit"):
        setattr(mx, name, _waiting(simulator, getattr(mx, name)))
    atexit.register(simulator.exit)
    return simulator


def _waiting(simulator, function):
    @functools.wraps(function)
    def waiting(*args, **kwargs):
        simulator.wait()
        return function(*args, **kwargs)

    return waiting
