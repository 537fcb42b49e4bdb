"""Arrays in nested lists, tuples and dicts, including modules and containers that hold themselves.

Containers are read and changed without the methods of their classes, as MLX reads dicts.
"""

from __future__ import annotations

from collections.abc import Iterable

from .._ext import tree_arrays as arrays

__all__ = ["arrays", "exchange"]


def exchange(tree: object, by_id: dict[int, object]) -> object:
    """``tree`` with the arrays of these ids replaced.

    Lists and dicts are changed in place, and tuples are made anew, except that a tuple that holds
    itself still refers to the old one inside.
    """
    root = [tree]
    by_id = dict(by_id)
    for node in _containers(root):
        old = list(_items(node))
        new = [by_id.get(id(item), item) for item in old]
        if all(a is b for a, b in zip(old, new, strict=True)):
            continue
        if _is(node, tuple):
            by_id[id(node)] = _tuple_like(node, new)
        elif _is(node, list):
            list.__setitem__(node, slice(None), new)
        else:
            dict.update(node, zip(dict.keys(node), new, strict=True))
    return root[0]


def _containers(root: list) -> list:
    """``root`` and all containers in it, each once and after those it holds."""
    order, seen, stack = [], set(), [(root, False)]
    while stack:
        node, items_done = stack.pop()
        if items_done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            inner = [(item, False) for item in _items(node) if _is(item, (list, tuple, dict))]
            stack += reversed(inner)
    return order


def _is(node: object, kind: type | tuple[type, ...]) -> bool:
    """As C sees the type; ``isinstance`` would return what a proxy claims to be."""
    return issubclass(type(node), kind)


def _items(container: list | tuple | dict) -> Iterable:
    if _is(container, dict):
        return dict.values(container)
    return (list if _is(container, list) else tuple).__iter__(container)


def _tuple_like(original: tuple, items: list) -> tuple:
    new = tuple.__new__(type(original), items)
    if hasattr(original, "__dict__"):
        new.__dict__.update(original.__dict__)
    return new
