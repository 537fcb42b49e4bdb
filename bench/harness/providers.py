"""The providers that are timed: MLX functions, torch's and Liger's.

Each takes its inputs from several sets in turn, so that none is still in the cache when it is used
again; or from a single set, to keep it in the cache.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Iterable

import mlx.core as mx
from mlx.utils import tree_map

from mlx_norms._measure import machine, timing

from . import conditions, device_clock, peers
from .configs import OPS, Config

MOST_SETS = 4096
TORCH_CACHE = 16 << 30
_PLUG = 8192  # rows and columns of a matmul that keeps a device busy for a while


def sets_needed(input_bytes: int, hot: bool = False, caches: int = 2) -> int:
    """The number of input sets that fill ``caches`` caches, up to a sensible maximum; 1 if hot."""
    if hot:
        return 1
    return max(1, min(MOST_SETS, -(-caches * conditions.cache_bytes() // max(1, input_bytes))))


def regime(input_bytes: int, hot: bool = False) -> str:
    """Where calls find their inputs, "memory" or "cache"."""
    sets = sets_needed(input_bytes, hot)
    return "cache" if sets * input_bytes <= conditions.cache_bytes() else "memory"


def copies(inputs: list[mx.array], count: int) -> list[list[mx.array]]:
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
    """

    def __init__(
        self,
        function: Callable,
        sets: list[list[mx.array]],
        cotangents: list[list[mx.array]] | None = None,
        output_bytes: int = 0,
    ) -> None:
        self.output_bytes = output_bytes
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

    def launch(self, pending: list) -> list:
        """Start to evaluate pending calls; returns what must stay alive until they are done."""
        mx.async_eval(pending)
        return pending

    def start(self) -> object:
        """Build a call and start to evaluate it, as a user would; returns what must stay alive."""
        outputs, gradients = self._call()
        outputs = outputs if gradients is None else gradients
        mx.async_eval(outputs)
        return outputs

    def wait(self) -> None:
        mx.synchronize()

    def plug(self) -> object:
        """Keep the device busy while calls are launched, so that it does not wait for the host."""
        plug = _plug() @ _plug()
        mx.async_eval(plug)
        return plug

    mark = staticmethod(device_clock.mark)
    seconds_between = staticmethod(device_clock.seconds_between)


@functools.cache
def _plug() -> mx.array:
    plug = mx.random.normal((_PLUG, _PLUG)).astype(mx.bfloat16)
    mx.eval(plug)
    return plug


class TorchCalls:
    """Like :class:`Calls`, for a function of torch tensors."""

    def __init__(self, function: Callable, sets: list, cotangents=None, output_bytes=0) -> None:
        self.output_bytes = output_bytes
        self._torch = sys.modules["torch"]
        self._function = function
        self._turn = itertools.cycle(zip(sets, cotangents or itertools.repeat(None)))

    def prepare(self, count: int) -> list[Callable]:
        calls = [self._call() for _ in range(count)]
        self.wait()
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
                    self.wait()
        self.wait()

    def launch(self, pending: list[Callable]) -> list:
        with self._torch.set_grad_enabled(False):
            return [call() for call in pending]

    def start(self) -> object:
        return self.launch([self._call()])

    def wait(self) -> None:
        peers.synchronize()

    def plug(self) -> object:
        return _torch_plug() @ _torch_plug()

    def mark(self) -> object:
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds_between(self, start, stop) -> float:
        stop.synchronize()
        return start.elapsed_time(stop) / 1e3


@functools.cache
def _torch_plug():
    torch = sys.modules["torch"]
    return torch.randn(_PLUG, _PLUG, device=peers.torch_device(), dtype=torch.bfloat16)


def providers(config: Config, peer_names: Iterable[str] = (), *, hot: bool = False) -> dict:
    """Providers by name: ours, and the peers in ``peer_names`` that have the op.

    Where mx.fast's gradient is wrong on CUDA (docs/mlx_layer_norm_gradient.md), it is left out: it
    may end in an illegal memory access.
    """
    op = OPS[config.op]
    on_cuda = mx.default_device() == mx.gpu and mx.cuda.is_available()
    wrong = on_cuda and config.backward and "bias" in op.inputs and not config.whole_vectors
    count = sets_needed(config.input_bytes, hot)
    sets = copies(config.inputs(), count)
    cotangents = copies(config.cotangents(), count) if config.backward else None
    found = {"ours": Calls(op.ours, sets, cotangents, config.output_bytes)}
    for name in peer_names:
        if name == "mx.fast":
            if not wrong:
                found[name] = Calls(op.fast, sets, cotangents, config.output_bytes)
        elif function := peers.FUNCTIONS[name]().get(config.op):
            found[name] = torch_calls(config, function, count)
    return found


def functions(config: Config) -> dict[str, Callable[[], object]]:
    """The calls of ours and of mx.fast as a user makes them, with a single set of inputs."""
    op, inputs = OPS[config.op], config.inputs()
    cotangents = config.cotangents() if config.backward else []
    mx.eval(inputs, cotangents)

    def call(function: Callable) -> Callable[[], object]:
        if config.backward:
            return lambda: mx.vjp(function, inputs, cotangents)[1]
        return lambda: function(*inputs)

    return {"ours": call(op.ours), "mx.fast": call(op.fast)}


def memory_needed(config, peer_names: Iterable[str], hot: bool) -> int:
    """Approximate bytes that are alive at once while a config is measured."""
    own = 1 + sum(name in peers.FUNCTIONS for name in peer_names)  # torch has its own sets
    return own * sets_needed(config.input_bytes, hot) * config.set_bytes + config.working_bytes


def torch_calls(config, function: Callable, count: int) -> TorchCalls:
    """A torch function at a config, with ``count`` sets of inputs."""
    shapes = config.shapes()

    def random(shape, gradient=config.backward):
        return peers.random(shape, config.dtype, gradient)

    names = OPS[config.op].inputs if config.op in OPS else shapes
    sets = [[random(shapes[name]) for name in names] for _ in range(count)]
    cotangents = None
    if config.backward:
        x = shapes["x"]
        cotangents = [[random(x, False) for _ in range(1 + config.adds)] for _ in range(count)]
    return TorchCalls(function, sets, cotangents, config.output_bytes)


def able(config, of_config: dict, say: Callable[[str], None]) -> dict:
    """The providers that can run a config, each called once; tells ``say`` about the others."""
    found = {}
    for name, provider in of_config.items():
        try:
            provider.finish(provider.prepare(1))
        except Exception as error:  # torch and Triton may raise anything
            if not isinstance(provider, TorchCalls):
                raise
            say(f"{name} does not do {config}: {error}")
        else:
            found[name] = provider
    return found


def make_room() -> None:
    """Free cached memory: the next config cannot use this one's buffers, nor torch MLX's."""
    if mx.get_cache_memory() > machine.memory_bytes() // 4:
        mx.clear_cache()
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_initialized() and torch.cuda.memory_reserved() > TORCH_CACHE:
        torch.cuda.empty_cache()
