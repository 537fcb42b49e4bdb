"""How far decode logits are from those of the same model in float32: stock, and with projections.

The models are llamas with random weights in the shapes of Llama 3.2 1B, a new one per seed. After a
prompt they decode random tokens, the same ones on each side. Then their weights are widened to
float32 (those of 4 bits are dequantized), and MLX's own ops compute in float32 what both sides
round. So the distance measures rounding to 16 bits, not quantization to 4.

relative rms: the root mean square of the differences over that of the float32 logits, over all
    logits of all tokens. It reflects every rounding, including small ones.
top-1 agreement: the share of tokens after which the largest logit is float32's, as it matters for
    greedy decoding. Random models are a hard case: their largest logits are close together.

A ratio is taken per seed. On the CPU there are no projections; --device cpu tries the script on a
simulated Metal device with tiny models.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map

import mlx_norms
from harness import conditions, llama
from harness.results import write_csv
from mlx_norms._measure.models import logits as logits_of
from mlx_norms._measure.tables import table
from mlx_norms._measure.timing import Samples
from mlx_norms.commands import _output
from mlx_norms.commands._sides import CONTEXTS

SHAPES = llama.Shapes(16, 2048, 8192, 32, 8, 128256)
SIDES = ("stock", "projections")
PROMPT, TOKENS = 16, 32

COLUMNS = ["format", "measure", "side", "median", "lower", "upper", "over_stock"]
COLUMNS += ["ratio_lower", "ratio_upper", "seeds", "projections", "model", "layers", "hidden"]
COLUMNS += ["prompt", "tokens"]


def relative_rms(logits: mx.array, exact: mx.array) -> float:
    difference = logits.astype(mx.float32) - exact
    return mx.sqrt(mx.square(difference).mean() / mx.square(exact).mean()).item()


def agreement(logits: mx.array, exact: mx.array) -> float:
    return (mx.argmax(logits, axis=-1) == mx.argmax(exact, axis=-1)).mean().item()


MEASURES = {"relative rms": relative_rms, "top-1 agreement": agreement}


def widen(model: nn.Module) -> None:
    """Convert a model's weights to float32, and dequantize quantized ones."""

    def dense(layer: nn.Module) -> nn.Module:
        if isinstance(layer, nn.QuantizedEmbedding):
            wide = nn.Embedding(1, 1)
        elif isinstance(layer, nn.QuantizedLinear):
            wide = nn.Linear(1, 1, bias=False)
            if "bias" in layer:
                wide.bias = layer.bias
        else:
            return layer
        stored = (layer.weight, layer.scales, layer.biases, layer.group_size, layer.bits)
        wide.weight = mx.dequantize(*stored)
        return wide

    model.set_dtype(mx.float32)
    layers = tree_map(dense, model.leaf_modules(), is_leaf=nn.Module.is_module)
    model.update_modules(layers)
    mx.eval(model.parameters())


def distances(
    shapes: llama.Shapes, bits: int | None, seed: int
) -> tuple[dict[tuple[str, str], float], float, str]:
    """Distances by (measure, side), projections per step, and where the model's code is from."""
    mx.random.seed(seed)
    model, source = llama.build(shapes, bits)
    prompt, tokens = (mx.random.randint(0, shapes.vocab_size, (n,)) for n in (PROMPT, TOKENS))
    mx.eval(prompt)
    tokens, of_side = tokens.tolist(), {}
    for side in SIDES:
        with CONTEXTS[side]():
            _, of_side[side] = logits_of(model, prompt, tokens)
    projections = mlx_norms.report().projections / TOKENS
    widen(model)
    _, exact = logits_of(model, prompt, tokens)
    grid = itertools.product(MEASURES.items(), of_side.items())
    found = {(of, side): distance(its, exact) for (of, distance), (side, its) in grid}
    return found, projections, source


def main() -> int:
    parser = argparse.ArgumentParser(prog="python bench projection_exactness", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="models of each format")
    parser.add_argument("--csv", metavar="FILE", help="write all figures, with device and versions")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    args = parser.parse_args(sys.argv[2:])
    if args.seeds < 1:
        parser.error(f"--seeds must be at least 1, got {args.seeds}")
    # MLX's float32 matmuls use TF32 on CUDA unless this is set before the first one.
    os.environ["MLX_ENABLE_TF32"] = "0"
    mx.set_default_device(getattr(mx, args.device))
    shapes = llama.TINY if args.device == "cpu" else SHAPES
    shown = table(f"median (interval) of {args.seeds} models", ("", "side"), MEASURES)
    lines = []
    for name, bits in llama.FORMATS.items():
        runs = []
        for seed in range(args.seeds):
            runs.append(distances(shapes, bits, seed))
            mx.clear_cache()
        _, projections, source = runs[0]
        if not projections:
            parser.error("no norm was computed with its products here: it takes a GPU")
        samples = {key: Samples(tuple(run[0][key] for run in runs)) for key in runs[0][0]}
        ratios = {key: its.over(samples[key[0], "stock"]) for key, its in samples.items()}
        for side in SIDES:
            shown.add_row(name, side, *(samples[of, side].spread(".4f") for of in MEASURES))
        over = (ratios[measure, "projections"].spread(".4f") for measure in MEASURES)
        shown.add_row(name, "projections / stock", *over)
        about = (args.seeds, projections, source, shapes.num_hidden_layers, shapes.hidden_size)
        for key, its in samples.items():
            values = (name, *key, *its.figures(), *ratios[key].figures(), *about, PROMPT, TOKENS)
            lines.append(dict(zip(COLUMNS, values, strict=True)))
    _output.console().print(shown)
    if args.csv:
        write_csv(args.csv, COLUMNS, lines, conditions.facts())
    return 0
