"""Steps that only return arrays."""

import mlx.core as mx

from .program import kind

EPS = (1e-5, 1e-6, 1e-3)


def norm_of(x, parameters, *, layer, has, eps):
    """A norm of mx.fast, with the parameters that ``has`` selects."""
    given = iter(parameters)
    weight, bias = (next(given) if there else None for there in has)
    if layer:
        return mx.fast.layer_norm(x, weight, bias, eps)
    return mx.fast.rms_norm(x, weight, eps)


def choose_norm(draw, x):
    """Numbers of parameters for the rows of x, and the options of `norm_of`."""
    layer = draw.chance(0.5)
    has = draw.chance(0.8), layer and draw.chance(0.7)
    parameters = [draw.row_of(x) for there in has if there]
    return parameters, dict(layer=layer, has=has, eps=draw.one_of(EPS))


@kind(5)
class add:
    def choose(draw):
        a = draw.value()
        return (a, draw.like(a)), {}

    def run(context, a, b):
        return [a + b]


@kind(2)
class broadcast_op:
    def choose(draw):
        a = draw.rows()
        return (a, draw.row_of(a)), dict(op=draw.one_of(["add", "subtract", "multiply"]))

    def run(context, a, b, op):
        return [getattr(mx, op)(a, b)]


@kind(2)
class number:
    def choose(draw):
        op = draw.one_of(["add", "multiply"])
        return (draw.value(),), dict(op=op, by=draw.one_of([1.0, 1.5, 0.25, -1.0]))

    def run(context, a, op, by):
        return [a + by if op == "add" else a * by]


@kind(2)
class one_plus:
    """Gemma's weight, 1 + w."""

    def choose(draw):
        how = draw.one_of(["left", "right", "array"])
        return (draw.value(lambda a: a.ndim == 1),), dict(how=how)

    def run(context, w, how):
        if how == "array":
            return [mx.array(1.0, w.dtype) + w]
        return [1.0 + w if how == "left" else w + 1.0]


@kind(2)
class elementwise:
    def choose(draw):
        return (draw.value(),), dict(op=draw.one_of(["tanh", "sigmoid", "abs", "negative"]))

    def run(context, a, op):
        return [getattr(mx, op)(a)]


@kind(1)
class product:
    def choose(draw):
        a = draw.value()
        return (a, draw.like(a)), {}

    def run(context, a, b):
        return [a * b]


@kind(1)
class cast:
    def choose(draw):
        return (draw.value(),), dict(dtype=draw.dtype())

    def run(context, a, dtype):
        return [a.astype(dtype)]


@kind(5)
class norm:
    def choose(draw):
        x = draw.rows()
        parameters, options = choose_norm(draw, x)
        return (x, *parameters), options

    def run(context, x, *parameters, **options):
        return [norm_of(x, parameters, **options)]


@kind(6)
class residual:
    """A residual add and its norm, as in models; the sum may not be held otherwise."""

    def choose(draw):
        x = draw.rows()
        parameters, options = choose_norm(draw, x)
        return (x, draw.like(x), *parameters), options | dict(held=draw.chance(0.7))

    def run(context, x, r, *parameters, held, **options):
        h = x + r
        n = norm_of(h, parameters, **options)
        return [h, n] if held else [n]


def fits_rows(shape):
    """Whether an array broadcasts to rows of this shape, and has their last axis."""
    return lambda a: a.ndim >= 1 and a.shape[-1] == shape[-1] and broadcasts(a.shape, shape)


def broadcasts(shape, to):
    pairs = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(a in (1, b) for a, b in pairs)


@kind(3)
class prologue:
    """A norm of what else models leave pending before one; the sum may not be held otherwise."""

    def choose(draw):
        x = draw.rows()
        form = draw.one_of(["number", "factor", "factor of sum", "cast", "sum"])
        fits = {
            "factor": fits_rows(draw.values[x].shape),
            "factor of sum": lambda a: a.size == 1 and a.ndim <= draw.values[x].ndim,
            "sum": lambda a: a.shape == draw.values[x].shape,
        }
        more = [draw.value(fits[form])] if form in fits else []
        parameters, options = choose_norm(draw, x)
        options |= dict(form=form, held=draw.chance(0.7), before=draw.chance(0.5))
        return (x, draw.like(x), *more, *parameters), options

    def run(context, x, r, *others, form, held, before, **options):
        if form.startswith("factor"):
            factor, *others = others
        if form == "factor of sum":
            h = (r + x) * factor
        elif form == "sum":
            second, *others = others
            h = (x + r) + second if before else second + (x + r)
        elif form == "cast":
            h = (r + x).astype(mx.float32)
        elif before:
            h = x * (0.22 if form == "number" else factor) + r
        else:
            h = r + (0.22 if form == "number" else factor) * x
        n = norm_of(h, others, **options)
        return [h, n] if held else [n]


@kind(2)
class norm_then_add_norm:
    """A norm of a branch, and one of the sum to which the branch is added."""

    def choose(draw):
        x = draw.rows()
        r = draw.like(x)
        parameters, options = choose_norm(draw, r)
        return (x, r, *parameters), options

    def run(context, x, r, *parameters, **options):
        h = x + norm_of(mx.tanh(r), parameters, **options)
        return [h, norm_of(h, parameters, **options)]


@kind(4)
class roped:
    """Norms of queries and keys, then a rope; the norms may be held."""

    def choose(draw):
        q = draw.value(lambda a: a.ndim >= 1 and a.size > 0 and a.shape[-1] % 2 == 0)
        k = draw.like(q)
        weights = [draw.row_of(x) for x in (q, k)] if draw.chance(0.8) else []
        rows = draw.values[q].size // draw.values[q].shape[-1]
        heads = draw.one_of([n for n in (1, 2, 3, 4) if rows % n == 0])
        return (q, k, *weights), dict(
            has=[bool(weights)] * 2,
            eps=draw.one_of(EPS),
            heads=heads,
            held=draw.chance(0.2),
            before=draw.chance(0.3),
            same=draw.chance(0.8),
            traditional=draw.chance(0.3),
            offset=draw.integer(0, 40),  # MLX's rope is wrong on CUDA before the first position
        )

    def run(context, q, k, *weights, has, eps, heads, held, before, same, traditional, offset):
        norms = []
        for x, weight in zip((q, k), weights or (None, None), strict=True):
            x = x.reshape(1, -1, heads, x.shape[-1])
            x = x.transpose(0, 2, 1, 3) if before else x
            x = mx.fast.rms_norm(x, weight, eps)
            norms.append(x if before else x.transpose(0, 2, 1, 3))
        ropes = [
            mx.fast.rope(
                norms[i] if held else norms.pop(0),
                q.shape[-1],
                traditional=traditional,
                base=10000.0,
                scale=1.0,
                offset=offset if same else offset + i,
            )
            for i in range(2)
        ]
        return ropes + norms


@kind(2)
class two_norms:
    """Two norms of one sum: the second finds the add already fused."""

    def choose(draw):
        x = draw.rows()
        parameters, options = choose_norm(draw, x)
        return (x, draw.like(x), *parameters), options

    def run(context, x, r, *parameters, **options):
        h = x + r
        first = norm_of(h, parameters, **options)
        options["layer"], options["has"] = False, (False, False)
        return [first, norm_of(h, [], **options)]


@kind(3)
class part:
    """A slice: some rows, or a part of each row."""

    def choose(draw):
        a = draw.rows()
        shape = draw.values[a].shape
        axis = draw.integer(0, len(shape) - 1)
        step = draw.one_of([1, 1, 2, -1])
        first = draw.integer(0, shape[axis] - 1)
        stop = draw.integer(first + 1, shape[axis])
        if step < 0:
            first, stop = stop - 1, (first - 1 if first else None)
        return (a,), dict(axis=axis, part=(first, stop, step))

    def run(context, a, axis, part):
        return [a[(slice(None),) * axis + (slice(*part),)]]


@kind(1)
class element:
    """One row, or one element of the first axis."""

    def choose(draw):
        a = draw.value(lambda a: a.ndim >= 2 and a.size > 0)
        return (a,), dict(index=draw.integer(0, draw.values[a].shape[0] - 1))

    def run(context, a, index):
        return [a[index]]


@kind(1)
class layout:
    """The same elements in another shape or order."""

    def choose(draw):
        a = draw.rows()
        how = draw.one_of(["swapaxes", "flatten", "expand", "repeat", "transpose twice"])
        return (a,), dict(how=how)

    def run(context, a, how):
        if how == "swapaxes":
            return [mx.swapaxes(a, 0, -1)]
        if how == "flatten":
            return [a.reshape(-1, a.shape[-1])]
        if how == "expand":
            return [a[None]]
        if how == "repeat":
            return [mx.broadcast_to(a, (2, *a.shape))]
        return [mx.contiguous(mx.swapaxes(a, 0, -1)).swapaxes(0, -1)]


@kind(1)
class join:
    def choose(draw):
        a = draw.rows()
        return (a, draw.like(a)), dict(axis=draw.integer(0, draw.values[a].ndim - 1))

    def run(context, a, b, axis):
        return [mx.concatenate([a, b], axis)]


@kind(1)
class reduce:
    def choose(draw):
        axis = draw.one_of([0, -1])
        return (draw.rows(),), dict(axis=axis, keepdims=draw.chance(0.6))

    def run(context, a, axis, keepdims):
        return [mx.sum(a, axis, keepdims=keepdims)]


@kind(1)
class stop_gradient:
    def choose(draw):
        return (draw.value(),), {}

    def run(context, a):
        return [mx.stop_gradient(a)]
