"""Patched models are copied and pickled as those that are not: by what their classes say."""

import copy
import copyreg
import functools
import pickle
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

import mlx_norms
from support.inputs import normal
from support.patched_runs import DIMS, ROWS, operations

pytestmark = pytest.mark.usefixtures("backend")


class Plain(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.dims = dims
        self.note = {"kept": [1, 2]}
        self.norm = nn.RMSNorm(dims)
        self.norm.weight = normal((dims,), mx.float32, seed="weight")

    def __call__(self, x):
        return self.norm(x + x)


class Nested(Plain):
    def __init__(self, dims):
        super().__init__(dims)
        self.blocks = [Plain(dims), Reduced(dims)]
        self.by_name = {"slots": Slots(dims)}

    def __call__(self, x):
        for block in [*self.blocks, self.by_name["slots"]]:
            x = x + block(x)
        return super().__call__(x)


class Reduced(Plain):
    """Made by its constructor, of its own class."""

    def __reduce__(self):
        return type(self), (self.dims,), None, None, iter(self.items())


class ReducedToItsClass(Plain):
    def __reduce__(self):
        return ReducedToItsClass, (self.dims,)


class ReducedToFunction(Plain):
    def __reduce__(self):
        return make, (type(self), self.dims)


class ReducedToMethod(Plain):
    @classmethod
    def of(cls, dims):
        return cls(dims)

    def __reduce__(self):
        return self.__class__.of, (self.dims,)


class ReducedToPartial(Plain):
    def __reduce__(self):
        return functools.partial(type(self), dims=self.dims), ()


class ReducedByProtocol(Plain):
    def __reduce_ex__(self, protocol):
        constructor, arguments, state, *rest = super().__reduce_ex__(protocol)
        return constructor, arguments, state | {"protocol": protocol}, *rest


class NewArguments(Plain):
    def __new__(cls, dims):
        module = super().__new__(cls)
        assert dims == DIMS
        return module

    def __getnewargs__(self):
        return (self.dims,)


class NewKeywords(Plain):
    def __new__(cls, dims=None, *, kept=None):
        module = super().__new__(cls)
        if kept is not None:
            object.__setattr__(module, "kept", kept)
        return module

    def __getnewargs_ex__(self):
        return (), {"kept": self.note["kept"]}


class Slots(Plain):
    __slots__ = ("_fast", "__own")

    def __init__(self, dims):
        super().__init__(dims)
        self._fast = "in a slot"
        self.__own = "in one of this class alone"

    @property
    def own(self):
        return self.__own


class State(Plain):
    def __getstate__(self):
        return {"dims of": self.dims}

    def __setstate__(self, state):
        object.__setattr__(self, "dims", state["dims of"])
        object.__setattr__(self, "was_set", True)


@dataclass
class Data(nn.Module):
    dims: int
    eps: float = 1e-3

    def __post_init__(self):
        nn.Module.__init__(self)
        self.norm = nn.RMSNorm(self.dims, self.eps)

    def __call__(self, x):
        return self.norm(x + x)


class Registered(Plain):
    pass


class Copied(Plain):
    """By the usual way to write these methods."""

    def __copy__(self):
        twin = type(self).__new__(type(self))
        dict.update(twin, self)
        twin.__dict__.update(self.__dict__, copied="shallow")
        return twin

    def __deepcopy__(self, memo):
        twin = type(self)(self.dims)
        memo[id(self)] = twin
        twin.__dict__["copied"] = "deep"
        return twin


class Itself(Plain):
    """One for all."""

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return "ITSELF"


def make(cls, dims):
    return cls(dims)


copyreg.pickle(Registered, lambda module: (make, (Registered, module.dims)))
ITSELF = Itself(DIMS)

CLASSES = [
    Plain,
    Nested,
    Reduced,
    ReducedToItsClass,
    ReducedToFunction,
    ReducedToMethod,
    ReducedToPartial,
    ReducedByProtocol,
    NewArguments,
    NewKeywords,
    Slots,
    State,
    Data,
    Registered,
    Copied,
    nn.RMSNorm,
]

ROUND_TRIPS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{f"pickle {p}": lambda m, p=p: pickle.loads(pickle.dumps(m, p)) for p in range(2, 6)},
    **{f"Python's {p}": lambda m, p=p: pickle._loads(pickle._dumps(m, p)) for p in range(2, 6)},
}


def contents(module):
    """All that a module holds, but for the identity of objects."""
    slots = {name: getattr(module, name, None) for name in ("_fast", "own")}
    return {
        "classes": [(path, type(inner)) for path, inner in module.named_modules()],
        "attributes": module.__dict__ | slots,
        "items": [
            (path, item.tolist() if isinstance(item, mx.array) else item)
            for path, item in tree_flatten(dict(module))
        ],
    }


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("trip", ROUND_TRIPS)
def test_as_of_stock(cls, trip):
    x = normal((ROWS, DIMS), mx.float32, seed="x")
    module = cls(DIMS)
    stock = ROUND_TRIPS[trip](module)
    mlx_norms.patch(module)
    twin = ROUND_TRIPS[trip](module)
    mlx_norms.unpatch(module)  # whose parts a shallow copy shares
    assert contents(twin) == contents(stock)
    assert operations(twin(x)) == operations(stock(x))
    assert mx.array_equal(twin(x), stock(x))


def outcome(trip, module):
    """What the copy holds, or what is raised."""
    try:
        return contents(trip(module))
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("protocol", [0, 1])
@pytest.mark.parametrize("cls", [Plain, ReducedToItsClass])
def test_old_protocols(cls, protocol):
    """MLX's arrays have none, so that it depends on the class."""
    module = cls(DIMS)
    stock = outcome(lambda m: pickle.loads(pickle.dumps(m, protocol)), module)
    assert isinstance(stock, dict) == (cls is ReducedToItsClass)
    mlx_norms.patch(module)
    assert outcome(lambda m: pickle.loads(pickle.dumps(m, protocol)), module) == stock
    mlx_norms.unpatch(module)


class Unusual(Plain):
    def __reduce__(self):
        return self.__dict__["reduced"]


UNUSUAL = {
    "a number": 3,
    "nothing": (),
    "no arguments": (Unusual,),
    "arguments in a list": (Unusual, [DIMS]),
    "a list": [Unusual, (DIMS,)],
    "another class": (copyreg.__newobj__, (Plain,)),
}


@pytest.mark.parametrize("trip", [copy.copy, pickle.dumps], ids=lambda trip: trip.__name__)
@pytest.mark.parametrize("reduced", UNUSUAL)
def test_what_is_unusual(reduced, trip):
    module = Unusual(DIMS)
    module.__dict__["reduced"] = UNUSUAL[reduced]
    stock = outcome(trip, module)
    mlx_norms.patch(module)
    assert outcome(trip, module) == stock
    mlx_norms.unpatch(module)


@pytest.mark.parametrize("trip", ROUND_TRIPS)
def test_of_one_object_for_all(trip):
    """What is reduced to a name, or copied to itself, stays as it is: here, patched."""
    mlx_norms.patch(ITSELF)
    scoped = type(ITSELF)
    assert scoped is not Itself
    assert ROUND_TRIPS[trip](ITSELF) is ITSELF
    assert type(ITSELF) is scoped
    mlx_norms.unpatch(ITSELF)


def test_parts_of_a_shallow_copy_are_shared():
    module = Nested(DIMS)
    mlx_norms.patch(module)
    twin = copy.copy(module)
    assert type(twin) is Nested
    assert twin.norm is module.norm and twin.blocks is module.blocks
    mlx_norms.unpatch(module)


def test_new_arguments_are_copied_deeply():
    module = NewKeywords(DIMS)
    mlx_norms.patch(module)
    twin = copy.deepcopy(module)
    mlx_norms.unpatch(module)
    assert twin.kept == module.note["kept"]
    assert twin.kept is twin.note["kept"]


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_pickle_needs_no_mlx_norms(protocol):
    module = nn.Sequential(nn.Linear(DIMS, DIMS), nn.RMSNorm(DIMS))
    mlx_norms.patch(module)
    assert b"mlx_norms" not in pickle.dumps(module, protocol)
    mlx_norms.unpatch(module)
