"""Counts the launches of a transformer's layer at decode: stock, patched, with projections.

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
from mlx_norms import _ext
from mlx_norms._bench import machine
from mlx_norms._bench.graph_nodes import nodes
from mlx_norms._bench.results import CsvFile
from mlx_norms.commands import _tiny_models

MODELS = {"llama": None, "qwen3": None, "gemma2": None, "olmo2": None, "llama, 4-bit": 4}
HEAD_DIM = 128
SIDES = {"stock": None, "patched": {}, "projections": {"projections": True}}
PROMPT = 4
COLUMNS = ["model", "side", "launches", "by_name"]


def build(name: str, bits: int | None, dtype: mx.Dtype) -> mlx.nn.Module:
    model = _tiny_models.build(name.split(",")[0], head_dim=HEAD_DIM)
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
        if options.get("projections"):
            _ext.fuse_at_eval([logits], True, True)
        return nodes(logits)


def of_a_layer(model: mlx.nn.Module, options: dict | None) -> Counter:
    layers = model.model.layers
    whole = of_a_step(model, options)
    model.model.layers = layers[:-1]
    rest = of_a_step(model, options)
    model.model.layers = layers
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
    for name, bits in MODELS.items():
        model = build(name, bits, mx.float32 if on_cpu else mx.bfloat16)
        counts = {side: of_a_layer(model, options) for side, options in SIDES.items()}
        table.add_row(name, *(str(count.total()) for count in counts.values()))
        for side, count in counts.items():
            by_name = ", ".join(f"{n} {kind}" for kind, n in sorted(count.items()))
            lines.append([name, side, count.total(), by_name])
            console.print(f"{name}, {side}: {by_name}", highlight=False)
    console.print(table)
    if args.csv:
        with open(args.csv, "w", newline="") as file:
            writer = CsvFile(file, COLUMNS, machine.facts())
            for line in lines:
                writer.write(dict(zip(COLUMNS, line, strict=True)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
