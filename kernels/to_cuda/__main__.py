"""Writes all kernels' CUDA text as C++, for csrc/gpu/cuda/kernel_text.h.

python -m to_cuda COMPILER OUT
"""

import sys
from pathlib import Path

from msl.tokens import SourceError

from .translate import OPTIONS, Translation, translate

ROOT = Path(__file__).resolve().parents[2]


def literal(text: str) -> str:
    # Compilers accept string literals of at most 64 KB, but join adjacent ones.
    pieces = [text[i : i + 8192] for i in range(0, len(text), 8192)]
    return "\n".join(f'R"CUDA({piece})CUDA"' for piece in pieces)


def array(type: str, name: str, values: list[str]) -> str:
    return f"constexpr std::array<{type}, {len(values)}> {name}{{{{{', '.join(values)}}}}};\n"


def as_cpp(translations: dict[str, Translation]) -> str:
    texts, kernels = "", ""
    for name, t in translations.items():
        texts += f"const char* const {name} = {literal(t.text)};\n"
        declared = sorted(t.constants, key=lambda c: int(c.index))
        constants = [f'{{{c.index}, "{c.name}"}}' for c in declared]
        texts += array("Constant", f"constants_of_{name}", constants)
        for k in t.kernels:
            of = k.parameters
            places = [f"{{{index}, {offset}}}" for index, offset in of.pointers.items()]
            texts += array("Parameters::Place", f"places_of_{k.name}", places)
            parameters = f"{{places_of_{k.name}, {of.words}, {of.layouts}, {of.end}}}"
            kernels += f'      {{"{k.name}", {name}, "{k.expression}", {parameters}, '
            kernels += f"constants_of_{name}}},\n"
    options = ", ".join(f'"{option}"' for option in OPTIONS)
    return (
        '#include "csrc/gpu/cuda/kernel_text.h"\n\n#include <array>\n\n'
        "namespace mlx_norms::cuda {\n\n"
        f"namespace {{\n\n{texts}\n}} // namespace\n\n"
        "const std::vector<KernelText>& kernel_texts() {\n"
        f"  static const std::vector<KernelText> texts = {{\n{kernels}  }};\n"
        "  return texts;\n}\n\n"
        "const std::vector<const char*>& compiler_options() {\n"
        f"  static const std::vector<const char*> options = {{{options}}};\n"
        "  return options;\n}\n\n"
        "} // namespace mlx_norms::cuda\n"
    )


if __name__ == "__main__":
    compiler, out = sys.argv[1:]
    try:
        translations = {
            "_".join(path.relative_to(ROOT).with_suffix("").parts): translate(path, ROOT, compiler)
            for path in sorted(ROOT.glob("kernels/**/*.metal"))
        }
    except SourceError as error:
        sys.exit(str(error))
    Path(out).write_text(as_cpp(translations))
