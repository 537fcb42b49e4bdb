"""How far a patched model's logits are from stock's, and both from float32's, by family.

The models are mlx_lm's, as wide as a published one and, without --layers, as deep. Their weights
are random, in bfloat16, other ones per seed. After a prompt they decode random tokens, the same on
each side. Then the weights are widened to float32, and MLX's own ops compute what both sides round.

from float32: the root mean square of the differences over that of the float32 logits.
largest: the largest difference from stock's logits, over the largest of these.
other token: the share of positions where the largest logit is not stock's. Random models are a hard
    case: their largest logits are close together.

--sides takes "unfused", which is patched(fuse=False), and on a GPU "projections".
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.metadata
import os
import sys

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map_with_path

import mlx_norms
from harness import conditions
from harness.results import write_csv
from mlx_norms._measure.models import logits as logits_of
from mlx_norms._measure.tables import table
from mlx_norms._measure.timing import Samples
from mlx_norms.commands import _output, _sides
from projection_exactness import agreement, relative_rms, widen

CONTEXTS = _sides.CONTEXTS | {"unfused": functools.partial(mlx_norms.patched, fuse=False)}
SIDES = ("stock", "patched", "unfused")
PROMPT, TOKENS = 32, 16
MEASURES = ("from float32", "largest", "other token")
COLUMNS = ["family", "as", "side", "measure", "median", "lower", "upper", "seeds", "layers"]
COLUMNS += ["hidden", "vocabulary", "prompt", "tokens", "source"]


def sizes(
    hidden: int, layers: int, inner: int, heads: tuple[int, int, int], vocabulary: int, **more
) -> dict[str, object]:
    """Fields of mlx_lm's ``ModelArgs``; heads are of queries, of keys, and of a size."""
    queries, keys, size = heads
    return dict(
        hidden_size=hidden,
        num_hidden_layers=layers,
        intermediate_size=inner,
        num_attention_heads=queries,
        num_key_value_heads=keys,
        head_dim=size,
        vocab_size=vocabulary,
        max_position_embeddings=8192,
        **dict(rms_norm_eps=1e-6, rope_theta=1e6, tie_word_embeddings=True) | more,
    )


# By the name of mlx_lm's module: the model that is as large, and its sizes.
FAMILIES = {
    "llama": (
        "Llama 3.2 1B",
        sizes(2048, 16, 8192, (32, 8, 64), 128256, rms_norm_eps=1e-5, rope_theta=5e5),
    ),
    "qwen3": ("Qwen3 0.6B", sizes(1024, 28, 3072, (16, 8, 128), 151936)),
    "gemma3_text": ("Gemma 3 1B", sizes(1152, 26, 6912, (4, 1, 256), 262144)),
    "olmo2": (
        "OLMo 2 1B",
        sizes(2048, 16, 8192, (16, 16, 128), 100352, rope_theta=5e5, tie_word_embeddings=False),
    ),
}
TINY = sizes(128, 6, 256, (4, 2, 32), 512)


def random_weight(path: str, like: mx.array) -> mx.array:
    """A norm's weights are around what mlx_lm gives them, others around 0."""
    noise = 0.02 * mx.random.normal(like.shape, mx.bfloat16)
    return like.astype(mx.bfloat16) + noise if "norm" in path else noise


def build(family: str, fields: dict[str, object]) -> nn.Module:
    module = importlib.import_module(f"mlx_lm.models.{family}")
    model = module.Model(module.ModelArgs.from_dict({"model_type": family} | fields))
    model.update(tree_map_with_path(random_weight, model.parameters()))
    mx.eval(model.parameters())
    return model


def differences(
    family: str, fields: dict[str, object], sides: tuple[str, ...], seed: int
) -> dict[tuple[str, str], float]:
    """The measures by side and name."""
    mx.random.seed(seed)
    model = build(family, fields)
    prompt, tokens = (mx.random.randint(0, fields["vocab_size"], (n,)) for n in (PROMPT, TOKENS))
    mx.eval(prompt)
    tokens = tokens.tolist()
    found = {
        side: mx.concatenate(logits_of(model, prompt, tokens, CONTEXTS[side]), axis=1)
        for side in sides
    }
    widen(model)
    exact = mx.concatenate(logits_of(model, prompt, tokens), axis=1)
    stock = found["stock"]
    return {
        (side, name): value
        for side, logits in found.items()
        for name, value in zip(
            MEASURES,
            (
                relative_rms(logits, exact),
                _sides.relative_difference(stock, logits),
                1 - agreement(logits, stock),
            ),
            strict=True,
        )
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python bench logits",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("families", nargs="*", metavar="FAMILY", help=f"of {', '.join(FAMILIES)}")
    add("--seeds", type=int, default=5, help="models of each family (%(default)s)")
    add("--sides", default=",".join(SIDES), help=f"of {', '.join(CONTEXTS)} (%(default)s)")
    add("--device", choices=("gpu", "cpu"), default=mx.default_device().type.name)
    add("--layers", type=int, help="of each, if not as many as the published model has")
    add("--tiny", action="store_true", help="small models, which only try it")
    add("--csv", metavar="FILE", help="write all figures, with device and versions")
    args = parser.parse_args(sys.argv[2:])
    sides = tuple(args.sides.split(","))
    if unknown := (set(args.families) - FAMILIES.keys()) | (set(sides) - CONTEXTS.keys()):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    if sides[0] != "stock" or args.seeds < 1:
        parser.error("--sides begins with stock, and there is a seed or more")
    # MLX's float32 matmuls use TF32 on CUDA unless this is set before the first one.
    os.environ["MLX_ENABLE_TF32"] = "0"
    mx.set_default_device(getattr(mx, args.device))
    shown = table(f"medians (intervals) of {args.seeds} models", ("family", "side"), MEASURES)
    source = f"mlx_lm {importlib.metadata.version('mlx_lm')}"
    lines = []
    for family in args.families or FAMILIES:
        like, fields = FAMILIES[family]
        fields = TINY if args.tiny else fields
        fields = fields | {"num_hidden_layers": args.layers or fields["num_hidden_layers"]}
        runs = []
        for seed in range(args.seeds):
            runs.append(differences(family, fields, sides, seed))
            mx.clear_cache()
        about = (args.seeds, fields["num_hidden_layers"], fields["hidden_size"])
        about += (fields["vocab_size"], PROMPT, TOKENS, source)
        for side in sides:
            samples = {name: Samples(tuple(run[side, name] for run in runs)) for name in MEASURES}
            shown.add_row(family, side, *(its.spread(".4f") for its in samples.values()))
            for name, its in samples.items():
                values = (family, like, side, name, *its.figures(), *about)
                lines.append(dict(zip(COLUMNS, values, strict=True)))
    _output.console().print(shown)
    if args.csv:
        write_csv(args.csv, COLUMNS, lines, conditions.facts())
    return 0
