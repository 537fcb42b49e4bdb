"""For readers of the pages: launches of a layer at decode, stock, patched and with projections.

    python tools counts.launches [--csv FILE]

Nodes of a decoding step's graph are counted, as MLX is about to run them: those that launch
something, not those that look at memory in another way. Of two graphs, one of which has a layer
less, the difference is a layer's. The models are mlx_lm's, tiny but for heads of 128 elements: MLX
composes an attention of heads of other sizes of several operations.

A GPU then has one node for a rope and one for an attention. On the CPU MLX composes both of many
operations, and ours of norm and projections of several: --device cpu tries the script.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

import mlx.core as mx
import mlx.nn
from mlx_lm.models.cache import make_prompt_cache
from rich.console import Console
from rich.table import Table

import mlx_norms
from harness import conditions
from harness.graph_nodes import nodes
from harness.results import CsvFile
from mlx_norms import _ext
from mlx_norms.commands import _tiny_models

HEAD_DIM = {"head_dim": 128}
LATENTS = {"qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "v_head_dim": 128}
# The bits of the weights, the fields of the configuration, and the layers of a period.
MODELS = {
    "llama": (None, HEAD_DIM, 1),
    "qwen3": (None, HEAD_DIM, 1),
    "gemma2": (None, HEAD_DIM, 1),
    "olmo2": (None, HEAD_DIM, 1),
    "deepseek_v2": (None, LATENTS, 1),
    "jamba": (None, {"hidden_size": 512}, 2),  # one of Mamba, one of attention with experts
    "gemma3n": (None, {}, 1),
    "llama, 4-bit": (4, HEAD_DIM, 1),
}
SIDES = {"stock": None, "patched": {}, "projections": {"projections": True}}
PROMPT = 4
COLUMNS = ["model", "side", "launches", "by_name"]


def build(name: str, bits: int | None, fields: dict, dtype: mx.Dtype) -> mlx.nn.Module:
    model = _tiny_models.build(name.split(",")[0], **fields)
    model.set_dtype(dtype)
    if bits:
        mlx.nn.quantize(model, group_size=32, bits=bits)
    mx.eval(model.parameters())
    return model


def of_a_step(model: mlx.nn.Module, options: dict | None) -> Counter:
    """The launches of a decoding step by what is launched."""
    cache = make_prompt_cache(model)
    tokens = mx.arange(1, PROMPT + 2)
    mx.eval(model(tokens[None, :PROMPT], cache=cache), [c.state for c in cache])
    if options is None:
        return nodes(model(tokens[None, PROMPT:], cache=cache))
    with mlx_norms.patched(**options):
        logits = model(tokens[None, PROMPT:], cache=cache)
        _ext.fuse_at_eval([logits], True, options.get("projections", False))
        return nodes(logits)


def of_layers(model: mlx.nn.Module, period: int, options: dict | None) -> Counter:
    """Those of the last layers."""
    holder = getattr(model.model, "language_model", model.model)
    layers = holder.layers
    whole = of_a_step(model, options)
    holder.layers = layers[:-period]
    rest = of_a_step(model, options)
    holder.layers = layers
    return whole - rest


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--csv", metavar="FILE", help="write the counts with device and versions")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    args = parser.parse_args()

    on_cpu = args.device == "cpu"
    mx.set_default_device(mx.cpu if on_cpu else mx.gpu)
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    table = Table(title="launches of a layer at decode", title_justify="left")
    for heading in ("", *SIDES):
        table.add_column(heading, justify="right" if heading else "left")
    lines = []
    for name, (bits, fields, period) in MODELS.items():
        model = build(name, bits, fields, mx.float32 if on_cpu else mx.bfloat16)
        counts = {side: of_layers(model, period, options) for side, options in SIDES.items()}
        table.add_row(name, *(str(count.total()) for count in counts.values()))
        for side, count in counts.items():
            by_name = ", ".join(f"{n} {kind}" for kind, n in sorted(count.items()))
            lines.append([name, side, count.total(), by_name])
            console.print(f"{name}, {side}: {by_name}", highlight=False)
    console.print(table)
    if args.csv:
        with open(args.csv, "w", newline="") as file:
            writer = CsvFile(file, COLUMNS, conditions.facts())
            for line in lines:
                writer.write(dict(zip(COLUMNS, line, strict=True)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
