"""For writers of Metal kernels: holds the text to what MLX's kernels use, which Macs compile.

    python tools metal_dialect     prints features that MLX does not use; exits with 1 if any

`metal_features` extracts the features of the language and of Metal's library that a text uses. Each
feature of ours is used in MLX's kernels too, or is in SAFE with the reason why it compiles anyway.

MLX's kernels are the headers in `mlx/include/mlx/backend/metal/kernels` of its wheels, the same for
macOS and Linux: steel (matmul, attention, convolution), quantized, sort, scan, reduce, fft,
indexing, softmax, the element-wise ops. No wheel contains its .metal files, and so layer_norm,
rms_norm, rope and random are missing. Headers with `nax` in their names, which are for Metal 4, are
left out, as are the parts of the others for Metal 3.2 and later: MLX compiles the rest for
macOS 14, which has 3.1.
"""

import importlib.util
import sys
from pathlib import Path

from metal_features import Source, directives

import join  # isort: skip  # of kernels/, where metal_features looks, too

_SCALARS = "a scalar's constructor; the type is MLX's too"
_VECTORS = "vectors of 2 to 4 of each scalar type and their constructors, MSL 2.2 and 2.2.2"
_SWIZZLES = "two components of a vector, read, MSL 2.2.1"
_PACKED = "aligned as its elements are, and converted to and from the vector, MSL 2.2.3"
_MATRICES = "origin and transposition, which MLX gives, have defaults, MSL table 6.9"
_CPP = "C++98"
SAFE = {
    "call float2 of 1": _VECTORS,
    "call half of 1": _SCALARS,
    "call half4 of 1": _VECTORS,
    "call packed_float4 of 1": _PACKED,
    "call packed_half4 of 1": _PACKED,
    "call precise::exp2 of 1": "of <metal_math>, as precise::exp, MSL 6.5",
    "call rsqrt of 1": "of <metal_math>, of which MLX takes precise::rsqrt; in a ladder alone",
    "call simdgroup_load of 3": _MATRICES,
    "call simdgroup_store of 3": _MATRICES,
    "call uint2 of 2": _VECTORS,
    "call uint4 of 2": _VECTORS,
    "call uint4 of 4": _VECTORS,
    "call ulong of 1": _SCALARS,
    "directive #": _CPP,
    "keyword continue": _CPP,
    "keyword enum": _CPP,
    "keywords inline device": "a function of MLX's is `constexpr device`, for what it returns, too",
    "macro MLX_NORMS_NATIVE_BFLOAT": "is asked for, and defined where a user asks",
    "macro __CUDACC__": "is asked for, and defined for NVIDIA's compiler alone",
    "macro __HAVE_BFLOAT__": "is asked for, and Metal's own, as of 3.1",
    "name half2": _VECTORS,
    "name half4": _VECTORS,
    "name packed_float4": _PACKED,
    "name packed_half4": _PACKED,
    "name uchar": "another name of uint8_t, which MLX has, MSL 2.1",
    "name uint4": _VECTORS,
    "number 0u": "unsigned, MSL 2.1",
    "number 0x0u": "unsigned, MSL 2.1",
    "swizzle xy": _SWIZZLES,
    "swizzle zw": _SWIZZLES,
}


def ours() -> dict[str, str]:
    """The text of each library of the extension, by name."""
    return join.texts()


def features(texts: dict[str, str]) -> set[str]:
    """The features that any of the texts uses."""
    found = set()
    for name, text in texts.items():
        found |= Source(text, name).features() | directives(text)
    return found


def features_of_mlx() -> set[str]:
    (folder,) = importlib.util.find_spec("mlx").submodule_search_locations
    include = Path(folder) / "include"
    files = sorted(include.glob("mlx/backend/metal/kernels/**/*.h"))
    files = [file for file in files if "nax" not in file.name]
    text = "".join(f"#include <{file.relative_to(include)}>\n" for file in files)
    found = Source(text, "mlx", [include]).features()
    return found.union(*(directives(file.read_text()) for file in files))


def main() -> int:
    used, known = features(ours()), features_of_mlx()
    foreign, needless = used - known - SAFE.keys(), SAFE.keys() - (used - known)
    for feature in sorted(foreign):
        print(f"{feature}: MLX's kernels do without")
    for feature in sorted(needless):
        print(f"{feature}: stands in SAFE, where it is not needed")
    return 1 if foreign or needless else 0


if __name__ == "__main__":
    sys.exit(main())
