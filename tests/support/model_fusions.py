"""Runs the tiny models of mlx_lm and counts the residual adds that are fused into a norm.

    python tools support.model_fusions            prints how many there are in each model
    python tools support.model_fusions --write    writes that to model_fusions.json

The counts are those of a prefill of 8 tokens and one decode step, with the model's own cache.
"""

import json
import sys
from pathlib import Path

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

import mlx_norms
from mlx_norms.commands import _tiny_models

FILE = Path(__file__).with_suffix(".json")
PREFILL = 8


def stored() -> dict[str, int]:
    """The stored counts, by model name."""
    return json.loads(FILE.read_text())


def tokens(name: str, count: int = PREFILL + 1, seed: int = 0) -> mx.array:
    """Random tokens of the model's vocabulary."""
    return mx.random.randint(0, _tiny_models.vocabulary(name), (count,), key=mx.random.key(seed))


def logits(model, tokens: mx.array) -> mx.array:
    """The logits after each token: a prefill of all but the last one, then a decode step."""
    cache = make_prompt_cache(model)
    steps = []
    for part in (tokens[:-1], tokens[-1:]):
        output = model(part[None], cache=cache)
        steps.append(output[0] if isinstance(output, tuple) else output)
        mx.eval(steps[-1])
    return mx.concatenate(steps, axis=1)


def count(name: str) -> int:
    """The number of residual adds that are fused into a norm in this model."""
    model = _tiny_models.build(name)
    with mlx_norms.patched():
        logits(model, tokens(name))
    return mlx_norms.report().fused


def main(arguments: list[str]) -> int:
    mx.set_default_device(mx.cpu)
    text = json.dumps({name: count(name) for name in _tiny_models.names()}, indent=2) + "\n"
    if arguments == ["--write"]:
        FILE.write_text(text)
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
