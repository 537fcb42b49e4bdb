"""Arrays in lists, tuples and dicts, modules among them, however deep, and in themselves, too.

Containers are read and changed past the methods of their classes, as MLX reads dicts.
"""

from __future__ import annotations

from collections.abc import Iterable

import mlx.core as mx


def arrays(tree: object) -> list[mx.array]:
    """The arrays of ``tree``, as ``mx.eval`` finds them."""
    items = (item for node in _containers([tree]) for item in _items(node))
    return [item for item in items if _is(item, mx.array)]


def exchange(tree: object, by_id: dict[int, object]) -> object:
    """``tree`` with others in place of the arrays that have these ids.

    Lists and dicts are changed, and tuples made anew; one that holds itself keeps its old self.
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
    """``root`` and those that it leads to, each once and after those it holds."""
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
    """As C sees it; ``isinstance`` would ask a proxy what it stands for."""
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
