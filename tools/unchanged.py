"""For who refactors: digests of texts and results, to compare; found bits that had changed.

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
    from mlx_norms._table import OPS
    from support.bits import bits

    mx.random.seed(0)

    def show(name, *arrays):
        mx.eval(*arrays)
        print(backend, name, *(digest(bits(a).tobytes()) for a in arrays), flush=True)

    def both(op, dtype, n, seed=0):
        """Prints the results, and the gradients of all arguments."""
        sizes = dict(B=2, N=5, L=5, H=4, K=2, P=2, M=6, D=n, C=2 * n) | op.fixed
        keys = mx.random.split(mx.random.key(seed), len(op.inputs))
        arrays = [
            mx.random.normal(op.shape(name, sizes), key=key).astype(dtype)
            for name, key in zip(op.inputs, keys, strict=True)
        ]
        outputs = op.ours()(*arrays)
        cotangents = [mx.cos(a.astype(mx.float32)).astype(a.dtype) for a in outputs]
        outputs, gradients = mx.vjp(op.ours(), arrays, cotangents)
        show(f"{op} {str(dtype).split('.')[-1]} {n}", *outputs, *gradients)

    for dtype in (mx.float32, mx.float16, mx.bfloat16):
        for op in OPS.values():
            for n in LENGTHS:
                if n % op.multiple.get("D", 1) == 0 and not (op.fixed and n > 1):
                    both(op, dtype, n)
        for m, k, n in ((1, 300, 70), (4, 512, 64), (70, 35, 67)):
            a, b = (mx.random.normal(shape).astype(dtype) for shape in ((m, k), (k, n)))
            show(f"matmul {m} {dtype}", mlx_norms.matmul(a, b))
        x, w, of_rows = (
            mx.random.normal(shape).astype(dtype) for shape in ((2, 256), (256,), (40, 256))
        )
        for bits_of in (4, 8):
            packed = mx.quantize(of_rows, 64, bits_of)
            show(f"quantized {bits_of} {dtype}", mlx_norms.layer_norm_linear(x, w, w, packed))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--bits"]:
        print_bits(sys.argv[2])
        sys.exit()
    print_texts()
    sys.stdout.flush()
    from fuzz.__main__ import environment_for

    for backend in sys.argv[1:]:
        command = [sys.executable, __file__, "--bits", backend]
        subprocess.run(command, env=environment_for(backend), check=True)
