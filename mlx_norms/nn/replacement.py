"""Replaces the norm layers inside a model with those of this package, and undoes it."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.nn

from .group_layers import BatchNorm, GroupNorm, InstanceNorm, has_array_options
from .layers import LayerNorm, RMSNorm

_REPLACEMENTS = {
    mlx.nn.RMSNorm: RMSNorm,
    mlx.nn.LayerNorm: LayerNorm,
    mlx.nn.GroupNorm: GroupNorm,
    mlx.nn.InstanceNorm: InstanceNorm,
    mlx.nn.BatchNorm: BatchNorm,
}
_OURS = tuple(_REPLACEMENTS.values())


class Replaced(dict):
    """The modules that :func:`replace` took out of a model, ``{path: module}``, and its undo.

    Paths are written as by :meth:`mlx.nn.Module.named_modules` (``"layers.0.norm"``). A module that
    the model holds under several paths is listed under each.

    Attributes:
        left (dict): The norms that were left alone, ``{path: module}``: subclasses of ``mlx.nn``'s,
            and norms with an array as an option.
    """

    def __init__(
        self,
        model: mlx.nn.Module,
        swaps: list[tuple[str, mlx.nn.Module, mlx.nn.Module]],
        left: dict[str, mlx.nn.Module],
    ):
        super().__init__((path, original) for path, original, _ in swaps)
        self.left = left
        self._model = model
        # Keyed by id: modules are dicts, hence unhashable. Keeping the modules keeps ids valid.
        self._originals = {id(new): (new, original) for _, original, new in swaps}

    def undo(self) -> None:
        """Put the original modules back, wherever the model holds their replacements now.

        Each gets the parameters, frozen parameters, training mode and other attributes of its
        replacement, so nothing learned or loaded since :func:`replace` is lost.

        A path that holds another module by now is left as it is. Calling ``undo`` again does
        nothing.
        """
        for _, container, key, module in list(_modules(self._model)):
            if id(module) in self._originals:
                new, original = self._originals[id(module)]
                _copy_state(new, original)
                container[key] = original


def replace(model: mlx.nn.Module) -> Replaced:
    """Replace the norm layers inside ``model`` with those of this package, in place.

    Every module whose type is exactly ``RMSNorm``, ``LayerNorm``, ``GroupNorm``, ``InstanceNorm``
    or ``BatchNorm`` of :mod:`mlx.nn` is replaced with that of this package, wherever
    :meth:`mlx.nn.Module.children` finds modules: in attributes, and in nested lists and dicts
    (MLX does not look into tuples). Subclasses are left alone, since they may compute something
    else, and so are norms with an array as ``eps`` or another option, which is a parameter then;
    both are named in the result's ``left``. The replacement has the same parameters, running
    statistics, frozen parameters and training mode. A module held under several paths is replaced
    with one shared module.

    Functions compiled before keep the norms they were traced with. A model whose norms were
    replaced cannot be exported with :func:`mx.export_function`: undo the replacement first.

    Args:
        model (mlx.nn.Module): The model to change.

    Returns:
        Replaced: The modules that were taken out, by path; its :meth:`~Replaced.undo` puts them
        back. It is empty if no module was replaced.

    Raises:
        TypeError: If ``model`` is not an :class:`mlx.nn.Module`.
        ValueError: If ``model`` itself is such a norm, since nothing holds it.

    Example:
        >>> model = mlx.nn.TransformerEncoder(num_layers=2, dims=64, num_heads=4)
        >>> replaced = mlx_norms.nn.replace(model)
        >>> sorted(replaced)
        ['layers.0.ln1', 'layers.0.ln2', 'layers.1.ln1', 'layers.1.ln2', 'ln']
        >>> replaced.undo()
    """
    if not isinstance(model, mlx.nn.Module):
        raise TypeError(f"[replace] model must be an mlx.nn.Module, got {type(model).__name__}.")
    if type(model) in _REPLACEMENTS:
        name = type(model).__name__
        raise ValueError(
            f"[replace] model is itself an mlx.nn.{name}, so there is nothing to swap it in: make "
            f"an mlx_norms.nn.{name} and give it the weights with update(model.parameters()), or "
            "pass the module that holds this one."
        )

    new_modules = {}
    swaps = []
    left = {}
    for path, container, key, original in list(_modules(model)):
        if type(original) not in _REPLACEMENTS or has_array_options(original):
            if isinstance(original, tuple(_REPLACEMENTS)) and not isinstance(original, _OURS):
                left[path] = original
            continue
        if id(original) not in new_modules:
            new_modules[id(original)] = _like(original)
        new = new_modules[id(original)]
        container[key] = new
        swaps.append((path, original, new))
    return Replaced(model, swaps, left)


def _modules(container, prefix: str = "") -> Iterator[tuple[str, dict | list, object, object]]:
    """Every module under ``container`` as (path, the dict or list that holds it, key, module)."""
    for key, value in container.items() if isinstance(container, dict) else enumerate(container):
        if not isinstance(value, (dict, list)):
            continue
        path = f"{prefix}{key}"
        if isinstance(value, mlx.nn.Module):
            yield path, container, key, value
        yield from _modules(value, f"{path}.")


def _like(original: mlx.nn.Module) -> mlx.nn.Module:
    cls = _REPLACEMENTS[type(original)]
    new = cls.__new__(cls)
    _copy_state(original, new)
    return new


def _copy_state(source: mlx.nn.Module, target: mlx.nn.Module) -> None:
    # dict's update: that of mlx.nn.Module only changes parameters that exist.
    target.clear()
    dict.update(target, source)
    vars(target).clear()
    vars(target).update(vars(source))
    target._no_grad = set(source._no_grad)
