"""The ops that selftest checks, on arrays of the sizes at which a kernel does something else."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from .._table import OPS, Op

_HEADS, _KV_HEADS, _TOKENS = 4, 2, 7


@dataclass(frozen=True)
class Checked:
    """An op of the table on rows, as a function of its arrays.

    ``strided`` says whether x is part of a larger array, ``mixed`` whether parameters have another
    dtype than x.
    """

    name: str
    strided: bool = False
    mixed: bool = False
    late: bool = False

    # A row length for each path of a kernel: rows that share a SIMD-group, of a part of a vector,
    # of fewer vectors than their lanes have, and of as many; one SIMD-group with 2 to 6 vectors per
    # thread, several SIMD-groups with 1 to 4, and rows that do not fit into registers.
    sizes = (33, 100, 128, 256, 512, 768, 2048, 4096, 4097, 8192, 20000)

    @property
    def op(self) -> Op:
        return OPS[self.name]

    @property
    def label(self) -> str:
        parts = [self.name, "strided x" * self.strided, "late" * self.late]
        parts += ["parameters of another dtype" * self.mixed]
        return ", ".join(part for part in parts if part)

    def where(self, size) -> str:
        return f"rows of {size}"

    def options(self, size) -> dict:
        """Those that depend on the size."""
        return {}

    def shape(self, name: str, size) -> tuple[int, ...]:
        # Enough short rows that the parameters' gradients are sums of several partial ones.
        others = dict.fromkeys("NHKL", _HEADS)
        return self.op.shape(name, {"B": 40 if size <= 512 else 3, "D": size} | others)

    def ours(self, size):
        return self.op.ours(**self.options(size), **self.rounding)

    def exact(self, size):
        return self.op.exact(**self.options(size), **self.rounding)

    def values(self, size):
        return self.op.values(**self.options(size))

    @property
    def rounding(self) -> dict:
        return {"rounding": "late"} if self.late else {}

    def arrays(self, dtype: mx.Dtype, size) -> list[mx.array]:
        """Random ones for the inputs."""
        return [self._array(name, dtype, size, i) for i, name in enumerate(self.op.inputs)]

    def _array(self, name: str, dtype: mx.Dtype, size, seed: int) -> mx.array:
        x = name in ("x", "residual", "gate", "q", "k", "v")
        if self.mixed and not x:
            dtype = mx.float16 if dtype == mx.float32 else mx.float32
        *axes, last = self.shape(name, size)
        strided = int(self.strided and name == "x")
        values = mx.random.normal((*axes, last + strided), key=mx.random.key(seed))
        values = ((mx.abs(values) if name == "var" else values) + 0.5).astype(dtype)
        mx.eval(values)
        return values[..., strided:]


class CheckedHeads(Checked):
    """Head_dims, and how much of them is rotated: elements of a pair are in one vector, in two of a
    thread, in two threads, or read one by one."""

    sizes = ((64, 64), (128, 128), (96, 96), (80, 32), (34, 34), (33, 18), (256, 256))

    def where(self, size) -> str:
        return f"heads of {size[0]}, {size[1]} rotated"

    def options(self, size) -> dict:
        return {"dims": size[1]}

    def shape(self, name: str, size) -> tuple[int, ...]:
        sizes = {"B": 2, "L": _TOKENS, "H": _HEADS, "K": _KV_HEADS}
        return self.op.shape(name, sizes | {"D": size[0]})


class CheckedImages(Checked):
    """Whole vectors and parts of them, one and several chunks of positions, channels of one and of
    several threadgroups, groups for one and more SIMD-groups."""

    sizes = ((2, 5, 7, 12), (1, 9, 640), (3, 130, 96), (2, 41, 50, 64), (2, 3, 3, 50))

    def where(self, size) -> str:
        return f"images of {'x'.join(map(str, size))}"

    def options(self, size) -> dict:
        groups = next(groups for groups in (32, 4, 5, 1) if size[-1] % groups == 0)
        return {"num_groups": groups} if self.name.startswith("group_norm") else {}

    def shape(self, name: str, size) -> tuple[int, ...]:
        return size if name == "x" else size[-1:]


ROWS = (
    *map(Checked, ("rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm")),
    Checked("rms_norm weight_offset"),
    Checked("rms_norm", mixed=True),
    Checked("layer_norm", strided=True),
    *map(Checked, ("rms_norm heads HD", "layer_norm heads HD", "rms_norms heads HD and D")),
    *map(Checked, ("layer_norm bare scale B1D", "rms_norm scale B1D")),
    *map(Checked, ("add_layer_norm bare factor B1D scale B1D", "add_rms_norm factor B1D")),
    *map(Checked, ("norm_add_norm", "norm_add_norm weight_offset", "norm_add_norm factor BND")),
    Checked("rms_norms"),
    *map(Checked, ("rms_norm gate silu", "rms_norm gate sigmoid first", "rms_norm gelu")),
    *map(Checked, ("rms_norm gate relu2 first", "rms_norm axis 1", "layer_norm axis 1")),
    *map(Checked, ("l2_norm", "l2_norm bounded")),
)
IMAGES = (
    *map(CheckedImages, ("group_norm", "group_norm pytorch_compatible silu")),
    CheckedImages("group_norm pytorch_compatible gelu", mixed=True),
    *map(CheckedImages, ("instance_norm bare", "batch_norm BNC running")),
    CheckedImages("batch_norm BNC running training"),
)
HEADS = (
    *map(CheckedHeads, ("norm_rope", "norm_rope traditional", "norm_rope first", "qk_norm_rope")),
    CheckedHeads("qk_norm_rope traditional", late=True),
)
