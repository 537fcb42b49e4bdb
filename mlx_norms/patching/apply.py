"""Patching: of a process, of a context, of one model."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import mlx.nn

from .._ext import Fusion
from . import modules, replaced, reporting
from .scope import STOCK, Scope, entered, set_process

_lock = threading.Lock()
_process_patched = False


def patch(
    model: mlx.nn.Module | None = None, *, fuse: bool = True, projections: bool = False
) -> None:
    """Compute the norms of models that call ``mx.fast`` with the kernels of this package.

    ``mx.fast.rms_norm`` and ``mx.fast.layer_norm`` are replaced, which ``mlx.nn`` and mlx_lm call.
    Results keep the dtypes they had. A call goes to ``mx.fast`` as before where no kernel takes
    its arguments; see :func:`mlx_norms.report`.

    A norm of a pending sum, as in ``h = x + r; norm(h)``, computes the sum as well: it takes one
    launch in place of two. ``h`` is then the second output of that node, for all who hold it.
    A weight that is a pending ``1 + w`` is not computed but becomes a ``weight_offset``, whose sum
    is kept in float32 as in Gemma's definition.

    A function that is compiled while patched stays patched, and one compiled before stays as it
    was.

    With fusion or projections, one thread must not build a graph with an array that another thread
    is evaluating: to recognize sums, ``1 + w``, products and what depends on them, pending graphs
    are read, and their nodes are changed, while evaluation takes them apart. With ``fuse=False``
    and without ``projections`` neither happens, and threads may share arrays as they may with stock
    MLX.

    A sum is not fused with a weight or bias that is an argument of ``mx.vmap`` or ``mx.compile``,
    as all parameters of a compiled training step are, unless the sum is seen to depend on that
    argument within a few operations.
    ``mx.export_function`` and ``mx.exporter`` trace what they export with ``mx.fast``.

    Args:
        model (mlx.nn.Module, optional): Patch the calls of this model and of the modules it has
          now, in whatever thread. They get classes of their own until they are unpatched, and what
          is set on those, as by mlx_lm's ``grad_checkpoint``, goes with them. Deep copies and
          pickles are of the classes that they had. Of models that share modules the last to be
          patched or unpatched decides. If ``None`` all of the process is patched. Default:
          ``None``.
        fuse (bool): Whether sums are fused into norms, and ``1 + w`` becomes a ``weight_offset``.
          Default: ``True``.
        projections (bool): Whether norms of up to eight rows, as in decoding, are computed with
          the products that take them, as by :func:`mlx_norms.rms_norm_linear`: q, k and v of an
          attention in one launch with the norm before them, the gate and up of a SwiGLU with
          their product. What is given to ``mx.eval`` and ``mx.async_eval``, in whatever thread, is
          looked at, and what is recognized is replaced in place: dense weights and affine
          quantized ones that are there already, as ``nn.Linear`` and ``nn.QuantizedLinear`` use
          them, on a GPU, where nothing else takes the norm. Results differ by rounding: the
          normalized row is not rounded on the way. Not with a ``model``, whose calls evaluate
          nothing. Default: ``False``.

    Raises:
        TypeError: If ``model`` is not an :class:`mlx.nn.Module`, or has a module whose class
          cannot be subclassed.
        ValueError: If ``projections`` is set with a ``model``.

    Example:
        >>> model, tokenizer = mlx_lm.load("mlx-community/Qwen3-4B-4bit")
        >>> mlx_norms.patch()
        >>> mlx_lm.generate(model, tokenizer, "Once upon a time")
    """
    global _process_patched
    scope = Scope(fusion=_fusion(fuse), projections=projections)
    if model is not None:
        if projections:
            raise ValueError(
                "[patch] projections cannot be set with a model: they are looked for in what "
                "mx.eval is given, which is outside of the model's calls. Use "
                "patch(projections=True) for the process, or patched(projections=True) around "
                "the model and the evaluation."
            )
        modules.patch(model, scope)
    else:
        with _lock:
            if not _process_patched:
                replaced.acquire()
            _process_patched = True
            set_process(scope)
    reporting.reset()


def unpatch(model: mlx.nn.Module | None = None) -> None:
    """Undo :func:`patch`. It does nothing where nothing was patched.

    Args:
        model (mlx.nn.Module, optional): The model that was patched. If ``None``, the process.

    Raises:
        TypeError: If ``model`` is not an :class:`mlx.nn.Module`.
    """
    global _process_patched
    if model is not None:
        modules.unpatch(model)
        return
    with _lock:
        if _process_patched:
            set_process(STOCK)
            replaced.release()
        _process_patched = False


@contextlib.contextmanager
def patched(*, fuse: bool = True, trace: bool = False, projections: bool = False) -> Iterator[None]:
    """What :func:`patch` does, within a ``with`` block.

    It holds in the context of the block: code of other threads and other asyncio tasks is as it
    was, and so is what the block compiled once it is left, which stays patched. Blocks nest, and
    the innermost says what holds.

    Args:
        fuse (bool): Whether sums are fused into norms, and ``1 + w`` becomes a ``weight_offset``.
          Default: ``True``.
        trace (bool): Whether the report says which lines have called, for about a microsecond a
          call. Default: ``False``.
        projections (bool): Whether what is evaluated in the block has its norms computed with the
          products that take them, as :func:`patch` says. Default: ``False``.
    """
    if replaced.acquire():
        reporting.reset()
    try:
        with entered(Scope(fusion=_fusion(fuse), trace=trace, projections=projections)):
            yield
    finally:
        replaced.release()


def _fusion(fuse: bool) -> Fusion:
    return Fusion.NOW if fuse else Fusion.NEVER
