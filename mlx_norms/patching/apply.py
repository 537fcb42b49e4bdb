"""Patching of a process, of a context or of one model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import mlx.nn

from . import modules, replaced, reporting
from .blocks import block
from .scope import STOCK, Scope, current, entered, set_process


def patch(
    model: mlx.nn.Module | None = None, *, fuse: bool = True, projections: bool = False
) -> None:
    """Compute the norms of models with the kernels of this package.

    ``mx.fast.rms_norm`` and ``mx.fast.layer_norm``, which ``mlx.nn`` and mlx_lm call, are replaced,
    and so are the calls of ``mlx.nn``'s ``GroupNorm``, ``InstanceNorm`` and ``BatchNorm``, unless a
    subclass computes their statistics itself or an option, as ``eps``, is an array. Output dtypes
    do not change. A call goes to MLX as before if we do not support its arguments; see
    :func:`mlx_norms.report`.

    Norms are fused with what stands around them where a graph is evaluated or made: in place by
    ``mx.eval``, ``mx.async_eval``, ``array.item`` and ``array.tolist``, and by ``mx.compile``,
    ``mx.grad``, ``mx.value_and_grad``, ``mx.vjp`` and ``mx.checkpoint`` in what their function
    returns, as :func:`mlx_norms.fuse` does. Norms that are written in MLX's operations, as
    ``x * mx.rsqrt(x.square().mean(-1, keepdims=True) + eps)``, in any of many forms, are computed
    by ours. Norms compute residual adds and products before them, and scales, shifts, gates and
    activations after them. What changes no bit leaves an array alone that something besides the
    graph holds; what may change them does not ask. Other ways to read an array, as ``np.array``,
    ``float``, ``if`` and ``print``, have no such pass, nor has what a transform evaluates while it
    traces.

    A norm of a residual add, as in ``h = x + r; norm(h)``, computes the add as well, in one launch
    instead of two. So does it a product that is added (a layer scale, a gate, a number), a sum that
    is added, a sum times an array of one element, and the clipped float16 sum of mlx_lm's gemma3. A
    norm of a cast to float32 reads the 16 bits. A weight ``1 + w`` is not computed but becomes a
    ``weight_offset``, which is added in float32, as in Gemma's definition. ``mx.fast.rope`` of an
    RMS norm of heads, transposed from ``[B, L, H, D]`` to ``[B, H, L, D]``, is computed with it in
    one launch, queries and keys together if neither depends on the other.

    A function that is compiled while patched stays patched, and one compiled before stays as it
    was. ``mx.export_function`` and ``mx.exporter`` trace with ``mx.fast``, patched or not.

    A call changes no array: threads may share arrays as with stock MLX, where no two may evaluate
    the same pending array at once.

    Args:
        model (mlx.nn.Module, optional): Patch the calls of this model, in any thread. Each ends
          with the pass over what it returns. Until it is unpatched, the model has a class of its
          own; its modules keep theirs. Deep copies and pickles have the original class. If
          ``None``, patch the whole process. Default: ``None``.
        fuse (bool): Whether to fuse norms with what stands around them, and to compute the norms
          that models write in operations. Default: ``True``.
        projections (bool): Whether to compute norms of up to eight rows, as in decoding, together
          with the matmuls that read them, as by :func:`mlx_norms.rms_norm_linear`: the norm and q,
          k and v of an attention layer in one launch, and likewise the norm, gate and up
          projections of a SwiGLU and their product. Evaluation recognizes dense and affine
          quantized weights that are already evaluated, as ``nn.Linear`` and ``nn.QuantizedLinear``
          use them, on a GPU, if nothing else reads the norm. Results differ by rounding, since the
          normalized row is not rounded in between. Cannot be combined with ``model``, whose calls
          evaluate nothing. Default: ``False``.

    Raises:
        TypeError: If ``model`` is not an :class:`mlx.nn.Module` that can be called, or its class
          cannot be subclassed.
        ValueError: If both ``projections`` and ``model`` are given.

    Example:
        >>> model, tokenizer = mlx_lm.load("mlx-community/Qwen3-4B-4bit")
        >>> mlx_norms.patch()
        >>> mlx_lm.generate(model, tokenizer, "Once upon a time")
    """
    scope = Scope(fuse=fuse, projections=projections)
    if model is None:
        with replaced.used():
            set_process(scope)
    else:
        modules.check(model)
        if projections:
            raise ValueError(
                "[patch] projections cannot be set with a model: they are looked for in what "
                "mx.eval is given, which is outside of the model's calls. Use "
                "patch(projections=True) for the process, or patched(projections=True) around "
                "the model and the evaluation."
            )
        modules.patch(model, scope)
    reporting.reset()


def unpatch(model: mlx.nn.Module | None = None) -> None:
    """Undo :func:`patch`. Does nothing if nothing is patched.

    Within a block of :func:`patched` the block decides, and this holds after it.

    Args:
        model (mlx.nn.Module, optional): The model that was patched. If ``None``, the process.

    Raises:
        TypeError: If ``model`` is not an :class:`mlx.nn.Module`.
    """
    if model is not None:
        modules.unpatch(model)
    else:
        with replaced.used(is_last=True):
            set_process(STOCK)


def patched(*, fuse: bool = True, projections: bool = False) -> AbstractContextManager[None]:
    """Do what :func:`patch` does with the same arguments, within a ``with`` block.

    It applies to the context of the block only: other threads and asyncio tasks are not affected.
    The block has to contain the evaluation, too: what is evaluated after it is not fused. What was
    compiled in the block stays patched after it. Blocks nest, and the innermost decides.

    Args:
        fuse (bool): Whether to fuse norms with what stands around them, as :func:`patch` says.
          Default: ``True``.
        projections (bool): Whether evaluation in the block computes norms together with the
          matmuls that read them, as :func:`patch` says. Default: ``False``.
    """
    return _patched(Scope(fuse=fuse, projections=projections))


def is_patched(model: mlx.nn.Module | None = None) -> bool:
    """Whether code that runs here and now is patched, or whether a model is.

    Args:
        model (mlx.nn.Module, optional): Whether :func:`patch` patches the calls of this model or of
          a module of it. If ``None``, whether code of this context is patched: by the process, a
          block of :func:`patched`, or the model whose call this is. Default: ``None``.

    Returns:
        bool: True if so. It does not tell whether norms are computed by this package: see
        :func:`mlx_norms.report`.

    Raises:
        TypeError: If ``model`` is not an :class:`mlx.nn.Module`.
    """
    return current().acts if model is None else modules.is_patched(model)


@block
def _patched(scope: Scope) -> Iterator[None]:
    with replaced.used() as is_first:
        if is_first:
            reporting.reset()
        with entered(scope):
            yield
