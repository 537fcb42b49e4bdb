"""Replaces the norm layers inside a model with those of this package, and undoes it."""

from __future__ import annotations

import uuid
import warnings
from collections import Counter
from collections.abc import Iterator

import mlx.nn

from .group_layers import OPTIONS, BatchNorm, GroupNorm, InstanceNorm, has_array_options
from .layers import LayerNorm, RMSNorm

_REPLACEMENTS = {
    mlx.nn.RMSNorm: RMSNorm,
    mlx.nn.LayerNorm: LayerNorm,
    mlx.nn.GroupNorm: GroupNorm,
    mlx.nn.InstanceNorm: InstanceNorm,
    mlx.nn.BatchNorm: BatchNorm,
}
_OURS = tuple(_REPLACEMENTS.values())


_MARK = "_replaced_in"  # the attribute by which a replacement, or a copy of it, is known


class Replaced(dict):
    """The modules that :func:`replace` took out of a model, ``{path: module}``, and its undo.

    Paths are written as by :meth:`mlx.nn.Module.named_modules` (``"layers.0.norm"``). A module that
    the model holds under several paths is listed under each.

    A model can be copied or pickled together with this, as in ``copy.deepcopy((model, replaced))``.
    The copy of this then undoes the copy of the model.

    Attributes:
        left (dict): The norms that were left alone, and why, ``{path: reason}``: subclasses of
            ``mlx.nn``'s, norms with an array as an option, and modules without submodules that are
            norms by their name or a base's (``"RMSNorm"``).
    """

    def __init__(
        self,
        model: mlx.nn.Module,
        mark: str,
        swaps: list[tuple[str, mlx.nn.Module, mlx.nn.Module]],
        left: dict[str, str],
    ):
        super().__init__((path, original) for path, original, _ in swaps)
        self.left = left
        self._model = model
        self._mark = mark
        self._swaps = [(new, original) for _, original, new in swaps]

    def __repr__(self) -> str:
        return f"<Replaced: {self._counts()}>"

    def __str__(self) -> str:
        reasons = Counter(self.left.values())
        return "\n".join([self._counts(), *(f"{n:8}  {reason}" for reason, n in reasons.items())])

    def _counts(self) -> str:
        plural = "s" * (len(self) != 1)
        return f"{len(self)} norm{plural} replaced, {len(self.left)} left as they are"

    def undo(self) -> None:
        """Put the original modules back, wherever the model holds their replacements now.

        Each gets the parameters, frozen parameters, training mode and other attributes of its
        replacement, so nothing learned or loaded since :func:`replace` is lost. Copies of
        replacements that the model holds, too, become norms of ``mlx.nn``.

        A path that holds another module by now is left as it is, with a warning if the model does
        not hold the replacement anywhere else. Calling ``undo`` again changes nothing.
        """
        # By id, as modules are dicts and hence unhashable, which the list keeps alive.
        originals = {id(new): original for new, original in self._swaps}
        for _, container, key, module in list(_modules(self._model)):
            if vars(module).get(_MARK) == self._mark:
                if id(module) not in originals:
                    originals[id(module)] = _new(_stock_type(module))
                original = originals[id(module)]
                _copy_state(module, original)
                vars(original).pop(_MARK)
                container[key] = original
        held = {id(module) for *_, module in _modules(self._model)}
        lost = [path for path, original in self.items() if id(original) not in held]
        if lost:
            warnings.warn(
                f"[undo] not put back, since the model no longer holds what replaced them: "
                f"{', '.join(lost)}.",
                stacklevel=2,
            )


def replace(model: mlx.nn.Module) -> Replaced:
    """Replace the norm layers inside ``model`` with those of this package, in place.

    Every module whose type is exactly ``RMSNorm``, ``LayerNorm``, ``GroupNorm``, ``InstanceNorm``
    or ``BatchNorm`` of :mod:`mlx.nn` is replaced with that of this package, wherever
    :meth:`mlx.nn.Module.children` finds modules: in attributes, and in nested lists and dicts
    (MLX does not look into tuples). Subclasses are left alone, since they may compute something
    else, and so are norms with an array as ``eps`` or another option, which is a parameter then,
    and a model's own classes of norms. The result's ``left`` names them, with the reason. The
    replacement has the same parameters, running statistics, frozen parameters and training mode. A
    module held under several paths is replaced with one shared module.

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

    mark = uuid.uuid4().hex
    new_modules = {}
    swaps = []
    left = {}
    for path, container, key, original in list(_modules(model)):
        if type(original) not in _REPLACEMENTS or has_array_options(original):
            if _is_norm(original) and not isinstance(original, _OURS):
                left[path] = _why_left(original)
            continue
        if id(original) not in new_modules:
            new = _new(_REPLACEMENTS[type(original)])
            _copy_state(original, new)
            setattr(new, _MARK, mark)
            new_modules[id(original)] = new
        new = new_modules[id(original)]
        container[key] = new
        swaps.append((path, original, new))
    return Replaced(model, mark, swaps, left)


def _modules(container, prefix: str = "") -> Iterator[tuple[str, dict | list, object, object]]:
    """Every module under ``container`` as (path, the dict or list that holds it, key, module)."""
    for key, value in container.items() if isinstance(container, dict) else enumerate(container):
        if not isinstance(value, (dict, list)):
            continue
        path = f"{prefix}{key}"
        if isinstance(value, mlx.nn.Module):
            yield path, container, key, value
        yield from _modules(value, f"{path}.")


def _is_norm(module: mlx.nn.Module) -> bool:
    """Whether it is one of ``mlx.nn``'s, or holds no module and is named as a norm."""
    if _stock_type(module):
        return True
    names = [cls.__name__ for cls in type(module).__mro__]
    named = any("Norm" in name or name.lower().endswith("norm") for name in names)
    return named and not [*_modules(module)]


def _why_left(module: mlx.nn.Module) -> str:
    from ..patching.modules import class_before_patch  # patching imports this package

    cls, stock = class_before_patch(module), _stock_type(module)
    name = f"{cls.__module__}.{cls.__qualname__}"
    if stock is None:
        return f"{name} is no subclass of mlx.nn's norms: use patch()"
    if cls.__call__ is not stock.__call__:
        return f"{name} overrides __call__ of mlx.nn.{stock.__name__}: use patch()"
    if cls is not stock:
        return f"{name} is a subclass of mlx.nn.{stock.__name__}: use patch()"
    if has_array_options(module):
        options = ", ".join(sorted(OPTIONS.intersection(module)))
        return f"{name} has an array as {options}, which our kernels take as a number"
    return f"{name} is patched, by patch(model): call unpatch(model) before"


def _new(cls: type) -> mlx.nn.Module:
    """A module without state."""
    return cls.__new__(cls)


def _stock_type(module: mlx.nn.Module) -> type | None:
    return next((stock for stock in _REPLACEMENTS if isinstance(module, stock)), None)


def _copy_state(source: mlx.nn.Module, target: mlx.nn.Module) -> None:
    # dict's update: that of mlx.nn.Module only changes parameters that exist.
    target.clear()
    dict.update(target, source)
    vars(target).clear()
    vars(target).update(vars(source))
    target._no_grad = set(source._no_grad)
