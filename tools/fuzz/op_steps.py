"""A step that calls an op of the table; its arrays may have any number of axes before the last."""

from mlx_norms._table import OPS

from .draw import NoChoice
from .program import kind
from .steps import EPS, fits_rows

ROWS = ("rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm", "norm_add_norm", "l2_norm")
IMAGES = ("group_norm", "instance_norm", "batch_norm")
# The fewest axes of the first array.
LEAST = dict.fromkeys((*ROWS, "rms_norms", "l2_norms"), 1)
LEAST |= dict(group_norm=2, batch_norm=2, instance_norm=3)


def drawn():
    """The table's ops by their functions, without those that MLX's chain is not in every case."""
    found = {}
    for op in OPS.values():
        name = op.name.split()[0]
        if name in LEAST and "clamp" not in op.options and "mean" not in op.inputs:
            found.setdefault(name, []).append(op.name)
    return found


OF_FUNCTION = drawn()


def sizes_of(axes, shape, options):
    """The sizes of an array's last axes by letter, or of the one over which it is normalized."""
    if "axis" in options:
        return {"D": shape[options["axis"]]}
    return dict(zip(reversed(axes), reversed(shape)))


def fitting(op, name, sizes, x):
    """Whether a value may be one of an op's arrays beside the first one, x."""
    axes = op.axes[name]
    if axes == op.axes[op.inputs[0]]:
        return lambda a: a.shape == x.shape
    if name == "z":  # rows of any length
        return lambda a: a.ndim >= 1 and a.size > 0
    if name == "k":
        return lambda a: a.ndim >= 2 and a.shape[-1] == x.shape[-1] and a.dtype == x.dtype
    if not {"B", "N", "1"} & set(axes):
        return lambda a: a.shape == tuple(sizes[letter] for letter in axes)
    return fits_rows(x.shape)


def divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]


@kind(13)
class our_op:
    def choose(draw):
        function = draw.one_of(OF_FUNCTION)
        op = OPS[draw.one_of(OF_FUNCTION[function])]
        options = dict(eps=draw.one_of(EPS))
        has_two = "axis" in op.options or "H" in op.axes[op.inputs[0]]
        least = max(LEAST[function], 2 if has_two else 1)
        numbers = [draw.value(lambda a: a.ndim >= least and a.size > 0)]
        x = draw.values[numbers[0]]
        shape = x.shape
        if "axis" in op.options:
            options["axis"] = draw.integer(0, len(shape) - 2)
        if function == "group_norm":
            options["num_groups"] = draw.one_of(divisors(shape[-1]))
        if function not in ("rms_norms", "l2_norms", *IMAGES) and draw.chance(0.5):
            options["widens"] = True
        if function == "batch_norm" and x.size == shape[-1]:
            raise NoChoice  # it takes more than one value per channel
        sizes = sizes_of(op.axes[op.inputs[0]], shape, options)
        for name in op.inputs[1:]:
            numbers.append(draw.value(fitting(op, name, sizes, x)))
            if name == "k":
                sizes |= sizes_of(op.axes[name], draw.values[numbers[-1]].shape, {})
        return tuple(numbers), dict(op=op.name) | options

    def run(context, *arrays, op, **options):
        return context.norms.call(OPS[op], arrays, **options)
