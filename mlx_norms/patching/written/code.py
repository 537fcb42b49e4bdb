"""What the code of a model's layer refers to, read without running it.

A layer whose code is all known to compute, and to do nothing else, can be called on arrays without
values, and need not be called again where its result is known.
"""

from __future__ import annotations

import builtins
import dis
import functools
import itertools
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn

from ..copies import ORIGINAL

# Of MLX, of its arrays and of Python: they have no effect, and depend on their arguments alone.
_STATISTICS = {"mean", "sum", "var", "std", "linalg"}
_ROOTS = {"rsqrt", "sqrt", "power", "reciprocal", "std", "linalg"}
_KNOWN = _STATISTICS | _ROOTS
_KNOWN |= {"norm", "square", "multiply", "divide", "add", "subtract", "maximum", "minimum", "abs"}
_KNOWN |= {"astype", "reshape", "squeeze", "expand_dims", "flatten", "unflatten", "broadcast_to"}
_KNOWN |= {"array", "dtype", "shape", "ndim", "size", "float32", "float16", "bfloat16", "float64"}
_KNOWN |= {"result_type", "issubdtype", "floating", "finfo", "get", "core", "nn", "Module", "eps"}
_KNOWN |= {"clip", "transpose", "swapaxes", "moveaxis"}
_BUILTINS = {"float", "int", "bool", "len", "range", "tuple", "list", "isinstance", "super", "min"}
_BUILTINS |= {"max", "abs", "sum", "pow", "round", "type"}
# What depends on a shape: names, and functions and instructions that take an array apart.
_SHAPES = {"shape", "size"}
_TAKING_APART = {"len", "list", "tuple", "sum", "min", "max"}
_OF_SHAPES = ("UNPACK_", "GET_ITER", "FOR_ITER")
# The methods by which Python itself may call a layer that do not matter to what it computes.
_HARMLESS = {"__init__", "__call__", "__repr__", "__str__", "__init_subclass__", "__annotate__"}
_HARMLESS |= {"__annotate_func__"}

# Instructions that change what others may see, of items or of names; and others that a norm's code
# has no use for. One that catches errors would take that of a stand-in for its own.
_OF_ITEMS = ("STORE_SUBSCR", "STORE_SLICE", "DELETE_SUBSCR")
_OF_NAMES = ("STORE_ATTR", "STORE_GLOBAL", "STORE_NAME", "STORE_DEREF", "DELETE_ATTR")
_OF_NAMES += ("DELETE_GLOBAL", "DELETE_NAME", "DELETE_DEREF")
_OTHERS = ("IMPORT_", "YIELD_", "GET_AWAITABLE", "SETUP_", "PUSH_EXC_INFO", "POP_EXCEPT")
_OTHERS += ("BEFORE_WITH", "WITH_", "LOAD_SPECIAL", "LOAD_BUILD_CLASS")

_OF_OBJECTS = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")

_SIMPLE = (int, float, str, type(None), mx.Dtype)
_MOST_FUNCTIONS = 8
_MODULES = ("mlx.core", "mlx.nn", "mlx.core.linalg", "math", "mlx")


@dataclass(frozen=True)
class Code:
    """Of a layer's call, or of a function, and of the functions that it calls.

    Args:
        problem: Why it may do something else than compute, as the end of a sentence, if so.
        attributes: The names of attributes that are none of the layer's class.
        read: These and those of the class, which a layer may have of its own.
        of_layer: Those that are read of the layer alone, so that one that it has not raises.
        watched: Functions that return a value of the class or of a module, and that value: the code
            is what it was while they return it.
        depends_on_shape: Whether it reads a shape.
    """

    problem: str | None
    attributes: tuple[str, ...]
    read: tuple[str, ...]
    of_layer: frozenset[str]
    watched: tuple[tuple[Callable[[], object], object], ...]
    depends_on_shape: bool

    def unknown(self, module: mlx.nn.Module | None) -> str | None:
        """The problem, or why what it refers to, in this module, may be more than numbers."""
        if self.problem:
            return self.problem
        values = {} if module is None else vars(module)
        for name in self.read:
            if name in values and not is_simple(values[name]):
                return f"its attribute {name} is a {type(values[name]).__name__}"
        for name in self.attributes:
            known = name in values or name in (module or ()) or name in _KNOWN
            raises = name in self.of_layer and not hasattr(mlx.nn.Module, name)
            if not (known or raises):
                return f"it uses {name}, which is no operation of a norm"
        return None


def is_simple(value: object) -> bool:
    """Whether it is a constant that compares by its value."""
    if isinstance(value, tuple):
        return all(map(is_simple, value))
    return type(value) is bool or isinstance(value, _SIMPLE)


def writes_norm(cls: type) -> bool:
    """Whether the ``__call__`` of this class of layers may compute a norm in MLX's operations.

    It has one input, besides options, or the class a norm's name.
    """
    call = vars(cls).get("__call__")
    return (
        type(call) is types.FunctionType  # what mx.compile returns claims to be one
        and ("norm" in cls.__name__.lower() or _has_one_input(call))
        and calls_norm(call, cls)
    )


def calls_norm(function: types.FunctionType, cls: type) -> bool:
    """Whether a function takes a mean or a sum, and a root, itself or in few that it calls.

    Those of MLX's layers do not count: their calls are replaced by themselves.
    """
    names: set[str] = set()
    functions = [function]
    classes = [c for c in _own_classes(cls) if not c.__module__.startswith("mlx.nn.")]
    for each in functions:  # which grows
        for code in _codes(each.__code__):
            names.update(code.co_names)
            for value in _values(code.co_names, each, classes):
                if isinstance(value, types.FunctionType) and value not in functions:
                    functions.append(value)
        if len(functions) > _MOST_FUNCTIONS:
            return False
    return bool(_STATISTICS & names) and (bool(_ROOTS & names) or any(map(_has_power, functions)))


def ignores_self(method: types.FunctionType) -> bool:
    """Whether a method does not use what it is called on: a function of its other arguments."""
    code = method.__code__
    if not code.co_argcount or "__class__" in code.co_freevars:  # which super() has
        return False
    name = code.co_varnames[0]
    return name not in code.co_cellvars and not any(
        "_FAST" in each.opname and name in _names(each) for each in dis.get_instructions(code)
    )


def code_of(function: types.FunctionType, cls: type) -> Code:
    """The code of ``function``, a method of ``cls``."""
    reader = _Reader(cls)
    reader.read(function)
    names = reader.names
    return Code(
        problem=reader.problem,
        attributes=tuple(sorted(names - reader.own)),
        read=tuple(sorted(names)),
        of_layer=frozenset(reader.of_layer - reader.of_others),
        watched=tuple(reader.watched),
        depends_on_shape=reader.by_shape
        or bool(_SHAPES & names or _TAKING_APART & reader.builtins),
    )


class _Reader:
    """Reads functions, and those that they refer to."""

    def __init__(self, cls: type):
        self.classes = _own_classes(cls)
        self.functions: set[types.FunctionType] = set()
        self.names: set[str] = set()  # of attributes
        self.own: set[str] = set()  # those that are a class's
        self.of_layer: set[str] = set()  # those of what a method is called on
        self.of_others: set[str] = set()
        self.builtins: set[str] = set()
        self.watched: list[tuple[Callable[[], object], object]] = []
        self.problem: str | None = None
        self.by_shape = False
        self.methods: set[object] = set()
        for name, value in itertools.chain(*(vars(c).items() for c in self.classes)):
            if name.startswith("__") and callable(value) and name not in _HARMLESS:
                self.refuse(f"its class has a {name} of its own")
            if isinstance(value, types.FunctionType):
                self.methods.add(_original(value))

    def refuse(self, why: str) -> None:
        self.problem = self.problem or why

    def read(self, function: types.FunctionType) -> None:
        function = _original(function)
        if function in self.functions:
            return
        self.functions.add(function)
        if len(self.functions) > _MOST_FUNCTIONS:
            return self.refuse("it calls many functions")
        for name in ("__defaults__", "__kwdefaults__"):
            defaults = getattr(function, name)
            self.watched.append((functools.partial(getattr, function, name), defaults))
            values = defaults.values() if isinstance(defaults, dict) else defaults or ()
            if not all(map(is_simple, values)):
                self.refuse("an argument's default is more than a number")
        scope = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        layer = _layer_of(function.__code__) if function in self.methods else None
        for code in _codes(function.__code__):
            above = None
            for instruction in dis.get_instructions(code):
                is_of_layer = layer and code is function.__code__ and _loads(above, layer)
                found = self.of_layer if is_of_layer else self.of_others
                if instruction.opname in _OF_OBJECTS:
                    found.add(instruction.argval)
                self.instruction(function, scope, instruction)
                above = instruction

    def instruction(self, function, cells, instruction) -> None:
        name, value = instruction.opname, instruction.argval
        if name in ("LOAD_GLOBAL", "LOAD_NAME"):
            self.global_name(function.__globals__, value)
        elif name in _OF_OBJECTS:
            self.attribute(value)
        elif name in ("LOAD_DEREF", "LOAD_CLASSDEREF") and value in cells:
            self.cell(value, cells[value])
        elif name.startswith(_OF_SHAPES):
            self.by_shape = True
        elif name.startswith(_OF_ITEMS):
            self.refuse("it sets items of an array or a list")
        elif name.startswith(_OF_NAMES):
            self.refuse(f"it sets {value}, which is no variable of its own")
        elif name.startswith(_OTHERS) and not (name == "IMPORT_NAME" and value == "math"):
            self.refuse(
                "it does more than compute: it imports, yields, catches errors, or the like"
            )

    def cell(self, name: str, cell: types.CellType) -> None:
        get = functools.partial(getattr, cell, "cell_contents")
        try:
            self.value(name, get(), get)
        except ValueError:
            self.refuse(f"it uses {name}, which has no value yet")

    def global_name(self, names: dict, name: str) -> None:
        if name in names:
            self.value(name, names[name], functools.partial(_named, names, name))
        elif name in _BUILTINS:
            self.builtins.add(name)
        elif not _is_error(vars(builtins).get(name)):
            self.refuse(f"it uses {name}, which is no operation of a norm")

    def attribute(self, name: str) -> None:
        self.names.add(name)
        if name == "training":  # a property of mlx.nn's
            self.names.add("_training")
            self.own.add(name)
        for cls in self.classes:
            if name in vars(cls):
                self.own.add(name)
                self.value(name, vars(cls)[name], functools.partial(_member, [cls], name))
        if name in self.own:
            which = functools.partial(_member, self.classes, name)
            self.watched.append((which, which()))

    def value(self, name: str, value: object, get: Callable[[], object]) -> None:
        """Of a module, a class or a function around the code."""
        value = _function_of(value)
        if isinstance(value, types.ModuleType) and value.__name__ in _MODULES:
            return
        if isinstance(value, types.FunctionType):
            self.watched.append((get, get()))
            self.read(value)
        elif isinstance(value, type) and issubclass(value, mlx.nn.Module):
            if not _is_base(value) and value not in self.classes:
                self.refuse(f"it uses {name}, which is another layer's class")
        elif is_simple(value):
            self.watched.append((get, value))
        elif _is_of_mlx(value):
            self.names.add(value.__name__)
        else:
            self.watched.append((get, get()))
            self.refuse(f"it uses {name}, which is no operation of a norm")


def _named(names: dict, name: str) -> object:
    return _original(names.get(name))


def _member(classes: list[type], name: str) -> object:
    """That of the first class that has it, or what a replacement of ours stands for."""
    return _original(next((vars(cls)[name] for cls in classes if name in vars(cls)), None))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _own_classes(cls: type) -> list[type]:
    """The class and its bases that are a model's."""
    return [c for c in cls.__mro__ if not _is_base(c) and ORIGINAL not in vars(c)]


def _layer_of(method: types.CodeType) -> str | None:
    """The name by which a method has the layer that it is called on, if it has no other value."""
    name = method.co_varnames[0] if method.co_argcount else None
    instructions = dis.get_instructions(method)
    changes = any(
        i.opname.startswith(("STORE_FAST", "DELETE_FAST")) and name in _names(i)
        for i in instructions
    )
    return None if changes else name


def _loads(instruction: dis.Instruction | None, name: str) -> bool:
    """Whether it leaves this variable's value on the top."""
    is_load = instruction is not None and instruction.opname.startswith("LOAD_FAST")
    return is_load and _names(instruction)[-1] == name


def _names(instruction: dis.Instruction) -> tuple:
    """Of variables: some instructions have two."""
    value = instruction.argval
    return value if isinstance(value, tuple) else (value,)


def _has_one_input(call: types.FunctionType) -> bool:
    given = call.__code__.co_argcount - len(call.__defaults__ or ())
    return given <= 2 <= call.__code__.co_argcount  # self and x


def _values(names: tuple[str, ...], function: Callable, classes: list[type]) -> Iterator[object]:
    """What names stand for in a function of these classes."""
    for scope in (function.__globals__, *map(vars, classes)):
        for name in names:
            if name in scope:
                yield _original(_function_of(scope[name]))


def _function_of(value: object) -> object:
    """That of a static method, a class method or a property."""
    value = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
    return value.fget if isinstance(value, property) else value


def _original(value: object) -> object:
    from .. import replaced  # which imports this package

    return replaced.original_of(value)


def _has_power(function: types.FunctionType) -> bool:
    return any(
        each.opname == "BINARY_POWER" or (each.opname == "BINARY_OP" and each.argrepr == "**")
        for code in _codes(function.__code__)
        for each in dis.get_instructions(code)
    )


def _is_base(cls: type) -> bool:
    return cls in mlx.nn.Module.__mro__


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def _is_of_mlx(value: object) -> bool:
    """Whether it is one of the functions of MLX that have no effect."""
    path = getattr(value, "__module__", None)
    return path in ("mlx.core", "mlx.core.linalg") and getattr(value, "__name__", "") in _KNOWN
