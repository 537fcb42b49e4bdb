"""Ops at sizes 0, 1, 2 and more, under transforms, also in shapeless graphs of other sizes.

Each case runs in processes of its own: MLX corrupts memory where a shapeless graph adds up an axis
of one element. Where a shapeless graph maps a derivative, all of it is MLX's: there, no axis has
one element, and all arrays are mapped, since MLX loses axes of what is broadcast against a mapped
array (tests/fuzz/test_fuzz.py).
"""

import copyreg
from dataclasses import dataclass, replace
from functools import partial

import mlx.core as mx
import numpy as np

from mlx_norms._table import OPS
from support.oracle import numpy32

from .backends import Backend, fuse_compiled
from .derived import CHAINS, PATTERNS, Derived
from .own_process import in_own_process

EPS = 0.1  # keeps rows of one element, whose differences cancel, well conditioned
# The terms of higher derivatives cancel too much for 16 bits.
DTYPES = (mx.float32, mx.float16, mx.bfloat16)
# Beyond any case's: MLX's sums of what is empty may spin.
SECONDS = {"cpu": 3, "metal-sim": 300, "cuda": 60, "metal": 60}
# How a case's process starts: importing MLX with CUDA starts the driver, which no fork can use.
START = {"cuda": "spawn"}
# Of the largest value.
TOLERANCE = {mx.float32: 1e-3, mx.float16: 0.03, mx.bfloat16: 0.2}


def dtype_named(name):
    return getattr(mx, name)


copyreg.pickle(mx.Dtype, lambda d: (dtype_named, (str(d).removeprefix("mlx.core."),)))


@dataclass(frozen=True)
class Case:
    """Calls of a function made of an op.

    Attributes:
        sizes: The sizes of the axes, by letter, for each call; "v" is that over which vmap maps.
        traced: The sizes with which the function is traced, or None if it is not compiled.
    """

    seed: int
    op: str
    dtype: mx.Dtype
    derived: Derived
    traced: dict | None
    sizes: tuple[dict, ...]

    def __str__(self):
        of = OPS[self.op]
        names = [list(of.axes)[i] for i in self.derived.wrt]
        how = " of ".join([*reversed(self.derived.chain), self.op])
        maps = f", maps {self.derived.pattern} {'last' if self.derived.last else 'first'}"
        return (
            f"{how} {str(self.dtype).removeprefix('mlx.core.')} wrt {' '.join(names)}"
            + (maps if "vmap" in self.derived.chain else "")
            + f", axes {' '.join(f'{n}:{a}' for n, a in of.axes.items())}"
            + (f", traced at {shown(self.traced)}" if self.traced else "")
        )


def shown(sizes):
    return " ".join(f"{letter}={n}" for letter, n in sizes.items())


def generate(seed, backend=None):
    """The first seeds are each op's gradient, traced with a few samples and with one."""
    if seed < 2 * len(OPS):
        return swept(seed, list(OPS.values())[seed // 2], samples=3 - 2 * (seed % 2))
    rng = np.random.default_rng([seed, 80])
    op = OPS[str(rng.choice(list(OPS)))]
    count = len(op.axes)
    wrt = [i for i in range(count) if rng.random() < 0.6] or [int(rng.integers(count))]
    chain = CHAINS[rng.choice(len(CHAINS), p=odds())]
    derived = Derived(chain, tuple(wrt), str(rng.choice(PATTERNS)), bool(rng.random() < 0.2))
    empty = 0.12 / max(len(chain), 1)  # fewer where much of MLX's is in it
    shapeless = rng.random() < 0.7
    least = 0
    if shapeless and derived.maps_derivative:
        derived, least = replace(derived, pattern="all"), 2
    traced = draw_sizes(rng, op, empty, least=least) if shapeless else None
    calls = [draw_sizes(rng, op, empty, traced, least) for _ in range(3)]
    if traced:
        calls.insert(0, traced)
    dtype = DTYPES[rng.integers(3)] if len(chain) < 2 else mx.float32
    return Case(seed, op.name, dtype, derived, traced, tuple(calls))


def swept(seed, op, samples):
    """The gradient of all arguments, with each axis once of one element and once of none."""
    plain = {c: 3 * op.multiple.get(c, 1) for c in op.letters} | op.fixed
    free = [c for c in op.letters if c not in op.fixed]
    each = [plain | {c: op.multiple.get(c, 1)} for c in free]
    each += [plain | {c: 0} for c in free if c not in op.kept]
    first = next(iter(op.axes.values()))[0]
    traced = plain | {first: samples * op.multiple.get(first, 1)}
    derived = Derived(("vjp",), tuple(range(len(op.axes))), "all", False)
    calls = (traced, *each) if samples > 1 else (traced, plain)
    return Case(seed, op.name, mx.float32, derived, traced, calls)


def odds():
    weights = np.array([1.0 / (1 + len(chain)) for chain in CHAINS])
    return weights / weights.sum()


def draw_sizes(rng, op, empty, traced=None, least=0):
    """Sizes of the op's axes, and of a mapped one; ``empty`` is how often one may be 0."""
    sizes = {}
    for letter in (*op.letters, "v"):
        n = int(rng.choice([0, 1, 2, rng.integers(3, 12)], p=[empty, 0.4, 0.2, 0.4 - empty]))
        if letter == "D" and rng.random() < 0.1:
            n = 70
        sizes[letter] = max(n, least) * op.multiple.get(letter, 1)
    sizes |= op.fixed
    if traced:
        sizes |= {c: traced[c] for c in op.kept}
    return sizes


def function(case, ours, sizes):
    """The case's function of ours or of MLX's, and zeros for its arguments."""
    op = OPS[case.op]
    f = op.ours(eps=EPS) if ours else op.stock(eps=EPS)
    like = [mx.zeros(op.shape(name, sizes), case.dtype) for name in op.axes]
    return case.derived.of(f, like, sizes.get("v"))


def values(case, call, like):
    rng = np.random.default_rng([case.seed, 81, call])
    return [mx.array(rng.standard_normal(a.shape, dtype=np.float32)).astype(a.dtype) for a in like]


def evaluated(f, arrays):
    out = f(*arrays)
    mx.eval(out)
    return out


def run(case, backend_name, ours, tell):
    """Runs the calls in a process of its own; tells each step before it, and what is wrong."""
    backend = Backend(backend_name)
    tell("begins", 0)
    fuse_compiled(False)
    compiled = None
    if case.traced:
        f, like = function(case, ours, case.traced)
        compiled = mx.compile(f, shapeless=True)
        tell("traces", 0)
        evaluated(compiled, values(case, 0, like))
    for call, sizes in enumerate(case.sizes):
        tell("eager", call)
        wrong = eager = None
        try:
            f, like = function(case, ours, sizes)
            arrays = values(case, call, like)
            eager = evaluated(f, arrays)
        except (ValueError, RuntimeError) as error:
            wrong = f"raises {error}"
        if compiled and eager:
            tell("compiled", call)
            try:
                wrong = difference(evaluated(compiled, arrays), eager)
            except (ValueError, RuntimeError) as error:
                wrong = f"raises {error}"
        elif ours and eager:
            f, _ = function(case, False, sizes)
            tell("stock", call)
            expected = evaluated(f, arrays)
            wrong = difference(eager, expected, empty=any(a.size == 0 for a in arrays))
        for text in filter(None, (wrong, *backend.faults())):
            tell("wrong", call, text)


def difference(got, expected, empty=False):
    """What is wrong; of empty arrays zeros are right, where MLX's sums may be anything."""
    if [a.shape for a in got] != [a.shape for a in expected]:
        return f"shapes {[a.shape for a in got]}, not {[a.shape for a in expected]}"
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        if not a.size:
            continue
        tolerance = max(TOLERANCE[a.dtype], TOLERANCE[b.dtype])
        a, b = numpy32(a), numpy32(b)
        most = np.abs(b[np.isfinite(b)]).max(initial=1.0)
        with np.errstate(invalid="ignore"):
            right = (np.abs(a - b) <= tolerance * most) | (a == b) | (np.isnan(a) & np.isnan(b))
        right |= empty & (a == 0)
        if not right.all():
            at = tuple(int(n[0]) for n in np.nonzero(~right))
            return f"result {i} at {at}: {a[at]:.4g}, not {b[at]:.4g}"
    return None


def findings(case, backend_name, ours=True):
    """What is wrong with calls, by number."""
    calls = partial(run, case, backend_name, ours)
    told, end = in_own_process(calls, SECONDS[backend_name], START.get(backend_name, "fork"))
    found = {call: text[0] for what, call, *text in told if what == "wrong"}
    if end:
        if not told:
            raise RuntimeError(f"{case} does not begin: {end}")
        step, call = told[-1][:2]
        if step != "stock":
            found[call] = f"{step}: {end}"
    return found


def check(case, backend_name):
    """Failures as sentences, or None if MLX's own function fails at all of them, or is called."""
    where = OPS[case.op].backends
    if where and backend_name not in where:
        return None
    found = findings(case, backend_name)
    failures = []
    for call, text in found.items():
        alone = replace(case, sizes=(case.sizes[call],))
        if not findings(alone, backend_name, ours=False):
            failures.append(f"{case}; at {shown(case.sizes[call])}: {text}")
    return failures if failures or not found else None
