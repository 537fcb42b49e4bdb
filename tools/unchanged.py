"""Prints digests of what a refactoring must not change, to be compared by diff.

    python tools unchanged [cpu|metal-sim ...] > FILE

These are the texts of the kernels' libraries for Metal, and of each file for CUDA, without file
names; then, for each backend, the bits of every op on a fixed sample, forward and backward.
"""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

LENGTHS = (1, 7, 64, 768, 1028, 4097)
# File names, and comments, which may contain them.
NAMES = re.compile(r'^#.*"[^"]*"$|"[^"]*\.(?:h|metal)"|//.*$', re.MULTILINE)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def digest_of_text(text: str) -> str:
    return digest(" ".join(NAMES.sub("", text).split()).encode())


def print_texts():
    import join
    from to_cuda import translate

    for name, text in join.texts(cuda=True).items():
        print("metal", name, digest_of_text(text))
    for path in sorted(ROOT.glob("kernels/**/*.metal"), key=lambda path: path.name):
        text = translate(path, ROOT, "c++").text
        print("cuda", path.name, digest_of_text(text))


def print_bits(backend: str):
    from fuzz.backends import Backend

    Backend(backend)
    import mlx.core as mx

    import mlx_norms
    from support.bits import bits

    def show(name, *arrays):
        mx.eval(*arrays)
        print(backend, name, *(digest(bits(a).tobytes()) for a in arrays), flush=True)

    def sample(*shape, seed=0, dtype=mx.float32):
        return mx.random.normal(shape, key=mx.random.key(seed)).astype(dtype)

    def both(name, f, *arguments):
        """Prints f's outputs, and the gradients of all arguments."""
        outputs, gradients = mx.vjp(
            f,
            list(arguments),
            [mx.cos(a.astype(mx.float32)).astype(a.dtype) for a in f(*arguments)],
        )
        show(name, *outputs, *gradients)

    def modulated(x, w, b, s, f):
        norms = mlx_norms.rms_norm(x, w, scale=s), mlx_norms.layer_norm(x, w, b, scale=s, shift=f)
        return list(norms)

    def factored(x, r, w, b, s, f):
        return [
            *mlx_norms.add_rms_norm(x, r, w, factor=f, clamp=True),
            *mlx_norms.add_layer_norm(x, r, w, b, factor=f[0], scale=s, shift=f),
        ]

    def over_channels(x, w, b):
        return [mlx_norms.rms_norm(x, w, axis=1), mlx_norms.layer_norm(x, w, b, axis=1)]

    for dtype in (mx.float32, mx.float16, mx.bfloat16):
        for n in LENGTHS:
            x, r = sample(5, n, dtype=dtype), sample(5, n, seed=1, dtype=dtype)
            w, b = sample(n, seed=2, dtype=dtype), sample(n, seed=3, dtype=dtype)
            at = f"{str(dtype).split('.')[-1]} {n}"
            both(f"rms {at}", lambda x, w: [mlx_norms.rms_norm(x, w)], x, w)
            both(f"layer {at}", lambda x, w, b: [mlx_norms.layer_norm(x, w, b)], x, w, b)
            both(f"add_rms {at}", lambda x, r, w: mlx_norms.add_rms_norm(x, r, w), x, r, w)
            both(
                f"add_layer {at}",
                lambda x, r, w, b: mlx_norms.add_layer_norm(
                    x, r, w, b, weight_offset=1.0, clamp=True
                ),
                *(x, r, w, b),
            )
            s, f = sample(5, n, seed=4, dtype=dtype), sample(5, n, seed=5, dtype=dtype)
            both(f"scale {at}", modulated, *(x, w, b, s, f))
            both(f"factor {at}", factored, *(x, r, w, b, s, f))
            for activation in (None, "silu", "sigmoid", "gelu", "relu2"):
                for before in (True, False):
                    both(
                        f"gate {activation} {before} {at}",
                        lambda x, w, z, a=activation, b=before: [
                            mlx_norms.rms_norm(x, w, gate=z, activation=a, norm_before_gate=b)
                        ],
                        *(x, w, s),
                    )
            both(f"silu {at}", lambda x, w: [mlx_norms.rms_norm(x, w, activation="silu")], x, w)
            both(f"l2 {at}", lambda x: [mlx_norms.l2_norm(x), mlx_norms.l2_norm(x, 0.5)], x)
            both(f"norm_add_norm {at}", mlx_norms.norm_add_norm, *(x, r, w, b))
            x = sample(2, 33, n, dtype=dtype)
            w, b = sample(33, seed=2, dtype=dtype), sample(33, seed=3, dtype=dtype)
            both(f"axis {at}", over_channels, x, w, b)
        q, k = sample(3, 4, 128, dtype=dtype), sample(3, 2, 128, seed=1, dtype=dtype)
        w = sample(4, 128, seed=2, dtype=dtype)
        both(f"qk {dtype}", lambda q, k, w: mlx_norms.qk_norm(q, k, w, w[:2], 1e-6), q, k, w)
        x, w = sample(2, 256, dtype=dtype), sample(256, seed=1, dtype=dtype)
        one, two = (sample(40, 256, seed=i, dtype=dtype) for i in (2, 3))
        both(
            f"rms_linear {dtype}",
            lambda x, w, a, b: mlx_norms.rms_norm_linear(x, w, [a, b]),
            *(x, w, one, two),
        )
        for bits_of in (4, 8):
            packed = mx.quantize(one, 64, bits_of)
            show(f"quantized {bits_of} {dtype}", mlx_norms.layer_norm_linear(x, w, w, packed))
        for m, k, n in ((1, 300, 70), (4, 512, 64), (70, 35, 67)):
            a, b = sample(m, k, dtype=dtype), sample(k, n, seed=1, dtype=dtype)
            both(f"matmul {m} {dtype}", lambda a, b: [mlx_norms.matmul(a, b)], a, b)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--bits"]:
        print_bits(sys.argv[2])
        sys.exit()
    print_texts()
    sys.stdout.flush()
    from fuzz.__main__ import environment_for
    from fuzz.workers import environment_of

    for backend in sys.argv[1:]:
        command = [sys.executable, __file__, "--bits", backend]
        subprocess.run(command, env=environment_of(environment_for(backend)), check=True)
