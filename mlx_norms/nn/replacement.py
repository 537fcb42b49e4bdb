"""Swaps the norm layers inside a model for those of this package, and back."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.nn

from .layers import LayerNorm, RMSNorm

_REPLACEMENTS = {mlx.nn.RMSNorm: RMSNorm, mlx.nn.LayerNorm: LayerNorm}


class Replaced(dict):
    """What :func:`replace` took out of a model: ``{path: module}``, with a way back.

    A path is written as :meth:`mlx.nn.Module.named_modules` writes it (``"layers.0.norm"``). A
    module that the model holds in several places is listed at each of them.
    """

    def __init__(self, model: mlx.nn.Module, swaps: list[tuple[str, mlx.nn.Module, mlx.nn.Module]]):
        super().__init__((path, original) for path, original, _ in swaps)
        self._model = model
        # Keyed by id: modules are dicts, hence unhashable. The pair keeps the id alive.
        self._originals = {id(new): (new, original) for _, original, new in swaps}

    def undo(self) -> None:
        """Put the very same modules back, wherever the model holds their replacements now.

        Each takes over the parameters, frozen parameters, training mode and other attributes that
        its replacement has, so nothing learned or loaded since :func:`replace` is lost.

        A place that holds something else by now is left as it is, and so is all of a model that
        was undone before: calling ``undo`` again does nothing.
        """
        for _, container, key, module in list(_modules(self._model)):
            if id(module) in self._originals:
                new, original = self._originals[id(module)]
                _copy_state(new, original)
                container[key] = original


def replace(model: mlx.nn.Module) -> Replaced:
    """Replace the norm layers inside ``model`` by those of this package, in place.

    Every module whose type is exactly :class:`mlx.nn.RMSNorm` or :class:`mlx.nn.LayerNorm` is
    swapped for :class:`RMSNorm` or :class:`LayerNorm` of this package, wherever
    :meth:`mlx.nn.Module.children` finds modules: attributes, and lists and dicts in any nesting
    (MLX does not look into tuples). Subclasses are left alone, since they may compute something
    else. The replacement has the same parameters, frozen parameters and training mode; a module
    held in several places is replaced by one shared module.

    Functions compiled before keep the norms they were traced with. A model whose norms were
    replaced cannot be exported with :func:`mx.export_function`: undo the replacement first.

    Args:
        model (mlx.nn.Module): The model to change.

    Returns:
        Replaced: The modules that were taken out by path; its :meth:`~Replaced.undo` puts them
        back. It is empty if nothing was found.

    Raises:
        TypeError: If ``model`` is not an :class:`mlx.nn.Module`.
        ValueError: If ``model`` itself is such a norm: nothing holds it that could be changed.

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

    found = [item for item in _modules(model) if type(item[-1]) in _REPLACEMENTS]
    new_modules = {}
    swaps = []
    for path, container, key, original in found:
        if id(original) not in new_modules:
            new_modules[id(original)] = _like(original)
        new = new_modules[id(original)]
        container[key] = new
        swaps.append((path, original, new))
    return Replaced(model, swaps)


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
    # dict.update: mlx.nn.Module overrides update, and only changes parameters that exist.
    target.clear()
    dict.update(target, source)
    vars(target).clear()
    vars(target).update(vars(source))
    target._no_grad = set(source._no_grad)
