"""Steps that call MLX's transforms on functions made of other steps."""

import mlx.core as mx

from support.patched_runs import arrays_of

from .draw import NoChoice
from .norms import Stock
from .program import kind


class Broken(Exception):
    """A function's own error, raised when all of its steps have been traced."""


def wave(a):
    """Values of a's shape and dtype, all different."""
    steps = mx.arange(a.size, dtype=mx.float32) * 0.7 + 1.0
    return mx.sin(steps).reshape(a.shape).astype(a.dtype)


def breaking(f, breaks):
    def broken(*arrays):
        f(*arrays)
        raise Broken

    return broken if breaks else f


def call(f, *arguments, breaks):
    """f's results, or none if it breaks."""
    try:
        return f(*arguments)
    except Broken:
        if not breaks:
            raise
        return None


def arguments_of(draw):
    """The numbers of one to three values, often with one that may be a weight."""
    numbers = {draw.value(): None for _ in range(draw.integer(1, 3))}
    if draw.chance(0.3):
        numbers[draw.value(lambda a: a.ndim == 1 and a.size > 0)] = None
    return tuple(numbers)


def dummies(draw, numbers):
    return [mx.zeros(draw.values[n].shape, draw.values[n].dtype) for n in numbers]


def choose_function(draw, numbers, arrays=None):
    body = draw.body(dummies(draw, numbers) if arrays is None else arrays, draw.integer(1, 5))
    return dict(body=body, breaks=draw.chance(0.06))


@kind(3, transforms=True)
class derivative:
    """Gradients or Jacobian products, mostly together with the values."""

    def choose(draw):
        numbers = arguments_of(draw)
        how = draw.one_of(["grad", "value_and_grad", "vjp", "jvp"])
        return numbers, choose_function(draw, numbers) | dict(how=how)

    def run(context, *arrays, body, breaks, how):
        f = breaking(body.function(context), breaks)

        def loss(*arrays):
            return sum((a.astype(mx.float32) * wave(a)).sum() for a in f(*arrays))

        if how == "vjp":
            if breaks:
                call(mx.vjp, f, list(arrays), [], breaks=True)
                return []
            shapes = f(*arrays)
            values, gradients = mx.vjp(f, list(arrays), [wave(a) for a in shapes])
            return [*values, *gradients]
        if how == "jvp":
            out = call(mx.jvp, f, list(arrays), [wave(a) for a in arrays], breaks=breaks)
        elif how == "grad":
            of_list = mx.grad(lambda arrays: loss(*arrays))
            out = [call(of_list, list(arrays), breaks=breaks)]
        else:
            of_list = mx.value_and_grad(lambda arrays: loss(*arrays))
            out = call(of_list, list(arrays), breaks=breaks)
        return [] if breaks else arrays_of(out)


@kind(2, transforms=True)
class batched:
    """mx.vmap over an axis of one or more arguments."""

    def choose(draw):
        first = draw.value(lambda a: a.ndim >= 1 and a.size > 0)
        shape = draw.values[first].shape
        axis = draw.one_of([0, 0, len(shape) - 1])
        size = shape[axis]
        numbers, axes = [first], [axis]
        for number in arguments_of(draw):
            if number != first:
                a = draw.values[number]
                there = [i for i, n in enumerate(a.shape) if n == size]
                numbers.append(number)
                axes.append(draw.one_of(there) if there and draw.chance(0.6) else None)
        arrays = []
        for number, axis in zip(numbers, axes, strict=True):
            a = draw.values[number]
            shape = [n for i, n in enumerate(a.shape) if i != axis]
            arrays.append(mx.zeros(shape, a.dtype))
        options = choose_function(draw, numbers, arrays)
        made = {n for step in options["body"].steps for n in step.outputs}
        # MLX maps a checkpointed function anew, but not the arrays that it captures. Both outputs
        # of one of our ops depend on all of its arguments, while those of stock's two ops do not.
        if any(step.kind == "checkpointed" and step.taken & made for step in options["body"].steps):
            raise NoChoice
        return tuple(numbers), options | dict(axes=tuple(axes))

    def run(context, *arrays, body, breaks, axes):
        f = breaking(body.function(context), breaks)
        out = list(call(mx.vmap(f, in_axes=axes), *arrays, breaks=breaks) or [])
        # MLX's vmap of slices sometimes puts the axis elsewhere.
        if context.norms is Stock and any(
            a.shape[1:] != shape for a, shape in zip(out, body.shapes, strict=bool(out))
        ):
            raise NoChoice
        return out


# What MLX computes correctly at other shapes than it was traced with. Slices keep their old sizes,
# and concatenation and matmuls with a bias read the wrong memory.
SHAPELESS = (
    *("add", "number", "elementwise", "product", "cast", "stop_gradient", "norm", "residual"),
    *("norm_then_add_norm", "two_norms"),
)
SHAPELESS_OPS = ("rms_norm weight_offset", "add_rms_norm", "add_layer_norm")


def may_be_shapeless(body):
    return all(
        may_be_shapeless(step.body)
        if step.body
        else step.kind in SHAPELESS or step.options.get("op") in SHAPELESS_OPS
        for step in body.steps
    )


@kind(3, transforms=True)
class compiled:
    """Called once, or again with other values or more rows."""

    def choose(draw):
        numbers = arguments_of(draw)
        options = choose_function(draw, numbers)
        shapeless = draw.chance(0.6) and may_be_shapeless(options["body"])
        shapeless &= all(draw.values[n].shape[-1:] != (1,) for n in numbers)
        again = draw.one_of([None, "values", "rows" if shapeless else "values"])
        return numbers, options | dict(shapeless=shapeless, again=again)

    def run(context, *arrays, body, breaks, shapeless, again):
        f = mx.compile(breaking(body.function(context), breaks), shapeless=shapeless)
        # New arrays, since MLX raises if the graph reaches the arguments of the call.
        arrays = [mx.stop_gradient(a) for a in arrays]
        out = call(f, *arrays, breaks=breaks) or []
        if again == "rows" and any(a.ndim < 2 for a in arrays):
            raise NoChoice
        if again and not breaks:
            more = [mx.concatenate([a, a]) if again == "rows" else a * 0.5 for a in arrays]
            out = [*out, *f(*more)]
        return list(out)


@kind(1, transforms=True)
class checkpointed:
    """Its steps run again in the backward pass of whatever contains it."""

    def choose(draw):
        numbers = arguments_of(draw)
        return numbers, choose_function(draw, numbers)

    def run(context, *arrays, body, breaks):
        f = breaking(body.function(context), breaks)
        return list(call(mx.checkpoint(f), *arrays, breaks=breaks) or [])
