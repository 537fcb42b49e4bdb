"""What takes turns: calls of MLX's functions, and of torch's.

Each takes its inputs from several sets in turn, so that none is still in the cache when it is used
again; or from a single set, to keep it in the cache.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Mapping

import mlx.core as mx
from mlx.utils import tree_map

from mlx_norms._measure import machine, timing

from . import conditions, peers

MOST_SETS = 4096
CACHES = 8  # caches' worth of inputs in turn on a GPU: with two, some stay in the cache
_TORCH_CACHE = 16 << 30


def sets_needed(input_bytes: int, hot: bool = False, caches: int = 2) -> int:
    """The number of input sets that fill ``caches`` caches, up to a sensible maximum; 1 if hot."""
    if hot:
        return 1
    return max(1, min(MOST_SETS, -(-caches * conditions.cache_bytes() // max(1, input_bytes))))


def copies(inputs: list, count: int) -> list[list]:
    """``count`` sets of arrays with the values of ``inputs``, each in its own memory."""
    sets = [inputs, *(tree_map(lambda a: a + 0, inputs) for _ in range(count - 1))]
    mx.eval(sets)
    return sets


class Calls:
    """Calls of an MLX function, built by :meth:`prepare` and run by :meth:`finish`.

    Args:
        function: A function of the arrays of a set.
        sets: Sets of inputs, taken in turn.
        cotangents: As many sets of cotangents. If given, a call computes the gradients of all
            inputs, and its forward pass is evaluated before.
        output_bytes: Bytes of a call's outputs, which limits how many are evaluated together.
        context: What the calls are built and evaluated in, as mlx_norms.patched.
    """

    def __init__(
        self,
        function: Callable,
        sets: list,
        cotangents: list | None = None,
        output_bytes: int = 0,
        context: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
    ) -> None:
        self.output_bytes, self.context = output_bytes, context
        self._function = function
        self._turn = itertools.cycle(zip(sets, cotangents or itertools.repeat(None)))

    def prepare(self, count: int) -> list:
        calls = [self._call() for _ in range(count)]
        outputs = [outputs for outputs, gradients in calls if gradients is not None]
        if outputs:
            mx.eval(outputs)  # keeps the forward out of the backward's time
            mx.synchronize()
        return [outputs if gradients is None else gradients for outputs, gradients in calls]

    def _call(self) -> tuple:
        inputs, cotangents = next(self._turn)
        if cotangents is None:
            return self._function(*inputs), None
        return mx.vjp(self._function, inputs, cotangents)

    def finish(self, pending: list, *, alone: bool = False) -> None:
        """Evaluate pending calls and drop results: together, as memory allows, or one by one."""
        together = len(pending)
        if mx.default_device() == mx.cpu:
            together = timing.batch_size(self.output_bytes)
        together = 1 if alone else together
        pending.reverse()
        while pending:
            part = pending[-together:]
            del pending[-together:]
            mx.eval(part)


class TorchCalls:
    """Like :class:`Calls`, for a function of torch tensors."""

    context = contextlib.nullcontext

    def __init__(self, function: Callable, sets: list, cotangents=None, output_bytes=0) -> None:
        self.output_bytes = output_bytes
        self._torch, self._function = sys.modules["torch"], function
        self._turn = itertools.cycle(zip(sets, cotangents or itertools.repeat(None)))

    def prepare(self, count: int) -> list[Callable]:
        calls = [self._call() for _ in range(count)]
        peers.synchronize()
        return calls

    def _call(self) -> Callable:
        inputs, cotangents = next(self._turn)
        if cotangents is None:
            return functools.partial(self._function, *inputs)
        outputs = self._function(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        return functools.partial(self._torch.autograd.grad, outputs, inputs, cotangents)

    def finish(self, pending: list[Callable], *, alone: bool = False) -> None:
        results = []  # kept, so that each call writes to its own memory
        with self._torch.set_grad_enabled(False):
            for call in pending:
                results.append(call())
                if alone:
                    peers.synchronize()
        peers.synchronize()


def in_turn(
    functions: Mapping[str, Callable],
    inputs: list,
    *,
    of_bytes: int,
    output_bytes: int,
    hot: bool = False,
    caches: int = 2,
    cotangents: list | None = None,
) -> dict[str, Calls]:
    """Calls of functions of the same sets of inputs, of which ``of_bytes`` must be past the cache.

    The gradients of a side named "compiled" are compiled as a whole, with what they need of the
    forward.
    """
    count = sets_needed(of_bytes, hot, caches)
    sets = copies(inputs, count)
    given = copies(cotangents, count) if cotangents else None
    found = {}
    for name, function in functions.items():
        if name == "compiled" and given:
            both = [[*of, *its] for of, its in zip(sets, given, strict=True)]
            found[name] = Calls(_gradients(function, len(inputs)), both, None, output_bytes)
        else:
            made = mx.compile(function) if name == "compiled" else function
            found[name] = Calls(made, sets, given, output_bytes)
    return found


def _gradients(function: Callable, size: int) -> Callable:
    return mx.compile(lambda *arrays: mx.vjp(function, arrays[:size], arrays[size:])[1])


def torch_calls(config, function: Callable, hot: bool = False) -> TorchCalls:
    """A torch function at a config."""

    def random(shape, gradient=config.backward):
        return peers.random(shape, config.dtype, gradient)

    count = range(sets_needed(config.input_bytes, hot))
    shapes = config.shapes()
    sets = [[random(shapes[name]) for name in config.inputs_of()] for _ in count]
    cotangents = None
    if config.backward:
        cotangents = [[random(c.shape, False) for c in config.cotangents()] for _ in count]
    return TorchCalls(function, sets, cotangents, config.output_bytes)


def able(about: object, sides: dict, say: Callable[[str], None]) -> dict:
    """The sides that can run, each called once; tells ``say`` about the others, which are torch's.

    What is no :class:`Calls` or :class:`TorchCalls` times itself, and is not called here.
    """
    found = {}
    for name, side in sides.items():
        try:
            if hasattr(side, "prepare"):
                with side.context():
                    side.finish(side.prepare(1))
        except Exception as error:  # torch and Triton may raise anything
            if not isinstance(side, TorchCalls):
                raise
            say(f"{name} does not do {about}: {error}")
        else:
            found[name] = side
    return found


def sides_of(config, names: Iterable[str], hot: bool = False) -> dict:
    """Ours, and the peers that have the op of a config.

    Where mx.fast's gradient is wrong on CUDA (docs/mlx_layer_norm_gradient.md), it is left out: it
    may end in an illegal memory access.
    """
    make_room()
    ours, fast = config.functions()
    on_cuda = machine.backend() == "cuda"
    wrong = on_cuda and config.backward and "bias" in config.inputs_of() and config.is_ragged
    found = {"ours": ours} | ({"mx.fast": fast} if "mx.fast" in names and not wrong else {})
    cotangents = config.cotangents() if config.backward else None
    sizes = dict(of_bytes=config.input_bytes, output_bytes=config.output_bytes, hot=hot)
    sides = in_turn(found, config.inputs(), cotangents=cotangents, **sizes)
    for name in names:
        if name != "mx.fast" and (function := peers.FUNCTIONS[name]().get(config.op)):
            sides[name] = torch_calls(config, function, hot)
    return sides


def make_room() -> None:
    """Free cached memory: the next config cannot use this one's buffers, nor torch MLX's."""
    if mx.get_cache_memory() > machine.memory_bytes() // 4:
        mx.clear_cache()
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_initialized() and torch.cuda.memory_reserved() > _TORCH_CACHE:
        torch.cuda.empty_cache()
