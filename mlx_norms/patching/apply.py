"""Patching of a process, of a context or of one model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import mlx.nn

from .._ext import Fusion
from . import modules, replaced, reporting
from .blocks import block
from .scope import STOCK, Scope, current, entered, set_process


def patch(
    model: mlx.nn.Module | None = None,
    *,
    fuse: bool = True,
    trace: bool = False,
    projections: bool = False,
    written: bool = True,
) -> None:
    """Compute the norms of models with the kernels of this package.

    ``mx.fast.rms_norm`` and ``mx.fast.layer_norm``, which ``mlx.nn`` and mlx_lm call, are replaced.
    So are the calls of ``mlx.nn``'s ``GroupNorm``, ``InstanceNorm`` and ``BatchNorm``, unless a
    subclass computes their statistics itself or an option, as ``eps``, is an array.
    So are the calls of a model's own layers that write an rms, layer or l2 norm in MLX's
    operations, as ``x * mx.rsqrt(x.square().mean(-1, keepdims=True) + eps)``, in any of many forms,
    and functions with ``norm`` in their name that do.
    Such code is recognized from the graph of one call, once for each kind of input, and again when
    what it reads has changed. It is left as it is if it may do anything else.
    Output dtypes do not change. A call goes to MLX as before if we do not support its arguments;
    see :func:`mlx_norms.report`.

    A norm of a pending residual add, as in ``h = x + r; norm(h)``, computes the add as well, in one
    launch instead of two. ``h`` becomes the second output of that node, for everyone who holds it.
    So does a product that is added (a layer scale, a gate, a number), a sum that is added, a sum
    times an array of one element, and the clipped float16 sum of mlx_lm's gemma3. A norm of a
    pending cast to float32 reads the 16 bits.
    A weight that is a pending ``1 + w`` is not computed but becomes a ``weight_offset``, which is
    added in float32, as in Gemma's definition.

    ``mx.fast.rope`` of a pending RMS norm of heads, transposed from ``[B, L, H, D]`` to
    ``[B, H, L, D]``, is computed with it in one launch, and so are the next such keys with these
    queries, if neither depends on the other.

    A function that is compiled while patched stays patched, and one compiled before stays as it
    was.

    ``mx.compile``, ``mx.grad``, ``mx.value_and_grad``, ``mx.vjp`` and ``mx.checkpoint`` look at the
    graph of what their function returns, as :func:`mlx_norms.fuse` does: norms written amid other
    code are computed by ours, and norms compute scales, shifts, gates and activations around them.

    With fusion or projections, one thread must not build a graph with an array that another thread
    is evaluating. Recognizing adds, ``1 + w``, matmuls and what depends on them means reading the
    pending graph and changing its nodes, while evaluation takes it apart. With ``fuse=False`` and
    without ``projections`` neither happens, and threads may share arrays as with stock MLX.

    An add is not fused into a norm whose weight or bias is an argument of ``mx.vmap``, unless the
    add is seen to depend on that argument within a few operations.
    ``mx.export_function`` and ``mx.exporter`` trace with ``mx.fast``, patched or not.

    Args:
        model (mlx.nn.Module, optional): Patch the calls of this model and of the modules it has
          now, in any thread. Until they are unpatched, the modules have classes of their own;
          attributes set on those classes, as by mlx_lm's ``grad_checkpoint``, are lost then. Deep
          copies and pickles have the original classes. If models share modules, the last call that
          patches or unpatches one of them decides. If ``None``, patch the whole process. Default:
          ``None``.
        fuse (bool): Whether to fuse residual adds and ropes into norms and turn ``1 + w`` into a
          ``weight_offset``. Default: ``True``.
        trace (bool): Whether the report names the calling lines, at about a microsecond per call.
          Default: ``False``.
        projections (bool): Whether to compute norms of up to eight rows, as in decoding, together
          with the matmuls that read them, as by :func:`mlx_norms.rms_norm_linear`: the norm and q,
          k and v of an attention layer in one launch, and likewise the norm, gate and up
          projections of a SwiGLU and their product. Each ``mx.eval`` and ``mx.async_eval``, in any
          thread, looks for such norms in its arguments' graphs and replaces them in place. It
          recognizes dense and affine quantized weights that are already evaluated, as
          ``nn.Linear`` and ``nn.QuantizedLinear`` use them, on a GPU, if nothing else reads the
          norm. Results differ by rounding, since the normalized row is not rounded in between.
          The same pass, of any number of rows and on any device, makes scales, shifts, gates and
          activations around a norm part of it where code is not compiled, as :func:`mlx_norms.fuse`
          does, with ``fuse``, and takes norms amid other code, with ``written``. An array that
          something besides the graph holds becomes part of none.
          Cannot be combined with ``model``, whose calls evaluate nothing. Default: ``False``.
        written (bool): Whether to compute the norms that models write in MLX's
          operations. What their code computes in float32 is as accurate as before, and rounded
          where it is there. Norms written in 16 bits throughout come out closer to the exact
          result. :func:`mlx_norms.report` names those taken and those left. Default: ``True``.

    Raises:
        TypeError: If ``model`` is not an :class:`mlx.nn.Module`, or has a module whose class
          cannot be subclassed.
        ValueError: If both ``projections`` and ``model`` are given.

    Example:
        >>> model, tokenizer = mlx_lm.load("mlx-community/Qwen3-4B-4bit")
        >>> mlx_norms.patch()
        >>> mlx_lm.generate(model, tokenizer, "Once upon a time")
    """
    scope = _scope("patch", model, fuse, trace, projections, written)
    if model is not None:
        modules.patch(model, scope)
    else:
        with replaced.used(written):
            set_process(scope)
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
        with replaced.used():
            set_process(STOCK)


def patched(
    model: mlx.nn.Module | None = None,
    *,
    fuse: bool = True,
    trace: bool = False,
    projections: bool = False,
    written: bool = True,
) -> AbstractContextManager[None]:
    """Do what :func:`patch` does with the same arguments, within a ``with`` block.

    Without a model it applies to the context of the block only: other threads and asyncio tasks are
    not affected. With one, it applies to the model's calls, in any thread, and the modules that it
    had as the block began are afterwards what they were before, patched or not. What was compiled
    in the block stays patched after it. Blocks nest, and the innermost decides, also over what
    :func:`patch` and :func:`unpatch` of the same do meanwhile, which holds after it.

    Args:
        model (mlx.nn.Module, optional): Patch the calls of this model and of the modules it has as
          the block begins. If ``None``, patch the code of the block. Default: ``None``.
        fuse (bool): Whether to fuse residual adds and ropes into norms and turn ``1 + w`` into a
          ``weight_offset``. Default: ``True``.
        trace (bool): Whether the report names the calling lines, at about a microsecond per call.
          Default: ``False``.
        projections (bool): Whether evaluation in the block computes norms together with the
          matmuls that read them, and what stands around norms, as :func:`patch` says. Cannot be
          combined with ``model``. Default: ``False``.
        written (bool): Whether to compute the norms that models write in MLX's
          operations, as :func:`patch` says. Default: ``True``.

    Raises:
        TypeError: If ``model`` is not an :class:`mlx.nn.Module`, or, as the block begins, has a
          module whose class cannot be subclassed.
        ValueError: If both ``projections`` and ``model`` are given.
    """
    return _patched(model, _scope("patched", model, fuse, trace, projections, written))


def is_patched(model: mlx.nn.Module | None = None) -> bool:
    """Whether code that runs here and now is patched, or whether a model is.

    Args:
        model (mlx.nn.Module, optional): Whether :func:`patch` or :func:`patched` of this model, or
          of one that shares modules with it, patches the calls of any of its modules. If ``None``,
          whether code of this context is patched: by the process, a block of :func:`patched`, or
          the model whose call this is. Default: ``None``.

    Returns:
        bool: True if so. It does not tell whether norms are computed by this package: see
        :func:`mlx_norms.report`.

    Raises:
        TypeError: If ``model`` is not an :class:`mlx.nn.Module`.
    """
    return current().acts if model is None else modules.is_patched(model)


@block
def _patched(model: mlx.nn.Module | None, scope: Scope) -> Iterator[None]:
    with replaced.used(scope.written) as is_first:
        if is_first:
            reporting.reset()
        with entered(scope) if model is None else modules.patched(model, scope):
            yield


def _scope(
    caller: str,
    model: mlx.nn.Module | None,
    fuse: bool,
    trace: bool,
    projections: bool,
    written: bool,
) -> Scope:
    """The scope that the arguments of ``caller`` ask for."""
    if model is not None:
        modules.check(model)
        if projections:
            raise ValueError(
                f"[{caller}] projections cannot be set with a model: they are looked for in what "
                "mx.eval is given, which is outside of the model's calls. Use "
                "patch(projections=True) for the process, or patched(projections=True) around "
                "the model and the evaluation."
            )
    fusion = Fusion.NOW if fuse else Fusion.NEVER
    return Scope(fusion=fusion, trace=trace, projections=projections, written=written)
