"""scale and shift of rms_norm and layer_norm: the result times 1 + scale, plus shift."""

import itertools

import mlx.core as mx
import pytest

import mlx_norms
from support import inputs
from support.bits import assert_same_bits
from support.checks import check_with_gradients
from support.inputs import arguments, cotangents, normal
from support.norm_case import DTYPES, Norm

pytestmark = pytest.mark.usefixtures("backend")

OPS = ("rms_norm", "layer_norm")
OF_OP = pytest.mark.parametrize("op", OPS)
# Of x's axes [B, F, L], those that scale and shift have: of all rows, a sample, a token, a frame, a
# place, a channel of frames, and what has no groups of rows.
FORMS = {
    "all": (),
    "ones": (1, 1, 1),
    "sample": ("B", 1, 1),
    "frame": ("B", "F", 1),
    "token": ("B", "F", "L"),
    "place": ("L",),
    "places": (1, "F", "L"),
    "middle": (1, "F", 1),
    "between": ("B", 1, "L"),
}
SIZES = {"B": 2, "F": 3, "L": 5}


def shape_of(form, length, sizes=SIZES):
    return (*(sizes.get(axis, 1) for axis in FORMS[form]), length)


def arrays_of(norm, form, length, dtype, *, shift=None, plain=True, others=None, sizes=SIZES):
    """x of [B, F, L, length], scale and shift; without weight and bias if plain."""
    shape = (*sizes.values(), length)
    without = ("weight", "bias") if plain else ()
    arrays = arguments(norm, shape, dtype, without=without)
    for i, (name, of) in enumerate((("scale", form), ("shift", shift or form))):
        if of != "none":
            to = (others or {}).get(name, dtype)
            arrays[name] = normal(shape_of(of, length, sizes), to, seed=(i, of), std=0.5)
    return arrays


@pytest.mark.parametrize("form", FORMS)
@OF_OP
def test_forms(op, form):
    lengths = (7, 64) if inputs.SLOW else (1, 7, 33, 64, 130, 1000)
    for length, dtype in itertools.product(lengths, DTYPES):
        for plain in (True, False):
            check_with_gradients(Norm(op), arrays_of(Norm(op), form, length, dtype, plain=plain))


@OF_OP
def test_either_and_of_two_forms(op):
    pairs = [("sample", "none"), ("none", "sample"), ("none", "token"), ("token", "none")]
    pairs += [("sample", "all"), ("all", "frame"), ("token", "sample"), ("place", "sample")]
    for (scale, shift), plain in itertools.product(pairs, (True, False)):
        dtype = DTYPES[(len(scale) + len(shift)) % 3]
        arrays = arrays_of(Norm(op), scale, 40, dtype, shift=shift, plain=plain)
        check_with_gradients(Norm(op), arrays, note=f"{scale}, {shift}")


@pytest.mark.parametrize("form", ["all", "sample", "frame", "token", "places"])
def test_many_rows(form):
    """Whose sums threads share, or the groups of which they do."""
    sizes = {"B": 3, "F": 2, "L": 300} if not inputs.SLOW else {"B": 2, "F": 2, "L": 40}
    for op, length in itertools.product(OPS, (64, 1000)):
        arrays = arrays_of(Norm(op), form, length, mx.float32, plain=False, sizes=sizes)
        check_with_gradients(Norm(op), arrays)


def chain(norm, arrays, dtype=None):
    """Our norm, and what MLX's ops make of it."""
    plain = {n: a for n, a in arrays.items() if n not in ("scale", "shift")}
    (y,) = norm(plain)
    if "scale" in arrays:
        y = y * (1 + arrays["scale"])
    if "shift" in arrays:
        y = y + arrays["shift"]
    return y.astype(norm.out_dtype(arrays))


@OF_OP
def test_early_is_the_chain_of_ops(op):
    """Bit by bit, in every mix of dtypes."""
    for x, scale, shift in itertools.product(DTYPES, repeat=3):
        for form, plain, length in (("sample", True, 130), ("token", False, 7), ("all", False, 33)):
            others = dict(scale=scale, shift=shift)
            arrays = arrays_of(Norm(op), form, length, x, plain=plain, others=others)
            for left_out, dtype in (("", None), ("scale", None), ("shift", None), ("", mx.float16)):
                given = {n: a for n, a in arrays.items() if n != left_out}
                norm = Norm(op, dtype=dtype, rounding="early")
                note = f"{op}, {x}, {scale}, {shift}, {form}, without {left_out}"
                assert_same_bits(norm(given)[0], chain(norm, given), note)


@OF_OP
def test_zeros_keep_their_sign(op):
    x = mx.concatenate([mx.zeros((1, 16)), -mx.zeros((1, 16))])
    for names in (("scale",), ("shift",), ("scale", "shift")):
        for value in (0.0, -0.0, -2.0):
            arrays = {"x": x} | {n: mx.full((16,), value) for n in names}
            assert_same_bits(Norm(op)(arrays)[0], chain(Norm(op), arrays), f"{names}, {value}")


@OF_OP
def test_parts_of_a_projection(op):
    """Models split one array into scale, shift and others."""
    for dtype, length in itertools.product(DTYPES, (33, 64)):
        emb = normal((2, 6 * length), dtype, seed=4)
        x = normal((2, 9, length), dtype, seed=5)
        parts = mx.split(emb[:, None], 6, axis=-1)
        arrays = {"x": x, "shift": parts[0], "scale": parts[1]}
        check_with_gradients(Norm(op), arrays)
        transposed = mx.swapaxes(normal((length, 9, 2), dtype, seed=6), 0, 2)
        check_with_gradients(Norm(op), {"x": x, "scale": transposed, "shift": transposed[:, :1]})


@OF_OP
def test_one_launch_and_no_copy(op, launches):
    """Forward one launch; backward one, with another for sums of several loops."""
    for form in ("all", "sample", "frame", "token"):
        arrays = arrays_of(Norm(op), form, 64, mx.float32)
        mx.eval(list(arrays.values()))
        assert len(launches(*Norm(op)(arrays))) == 1, form
        cots = cotangents(Norm(op), arrays)
        mx.eval(cots)
        _, gradients = Norm(op).vjp(arrays, cots)
        assert len(launches(*gradients)) == (2 if form == "all" else 1), form


@OF_OP
def test_what_does_not_broadcast(op):
    f = getattr(mlx_norms, op)
    x = mx.ones((2, 3, 4))
    for name in ("scale", "shift"):
        for shape in [(), (1,), (3,), (3, 1, 4), (2, 2, 4), (2, 3, 1), (1, 2, 3, 4), (2, 4)]:
            with pytest.raises(ValueError, match=rf"^\[{op}\] {name}\b.*\(2,3,4\)"):
                f(x, **{name: mx.ones(shape)})
        with pytest.raises(ValueError, match=rf"^\[{op}\] {name}\b.*float32, float16 or bfloat16"):
            f(x, **{name: mx.ones((4,), mx.int32)})
        with pytest.raises(TypeError):
            f(x, **{name: "1"})


def test_group_with_a_scale():
    group = mx.distributed.init()
    for name in ("scale", "shift"):
        with pytest.raises(ValueError, match=rf"^\[rms_norm\] group\b.*{name}"):
            mlx_norms.rms_norm(mx.ones((2, 4)), group=group, **{name: mx.ones(4)})
