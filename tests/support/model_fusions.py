"""Runs the tiny models of mlx_lm and counts the residual adds that are fused into a norm, and the
norms of heads that are computed with the rope after them.

    python tools support.model_fusions            prints how many there are in each model
    python tools support.model_fusions --write    writes that to model_fusions.json, and to
                                                  model_ropes.json how many ropes and pairs of them

The counts are those of a prefill of 8 tokens and one decode step, with the model's own cache.
"""

import importlib.metadata
import importlib.util
import json
import sys
from pathlib import Path

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache

import mlx_norms
from mlx_norms.commands import _tiny_models

FILE = Path(__file__).with_suffix(".json")
ROPES = Path(__file__).with_name("model_ropes.json")
PREFILL = 8
# Of the largest logit. What norms round differently makes 1.1e-5 of it at most (in gemma4_text); an
# element of the last norm's weight that is 5 % off makes 4.8e-4 at least.
TOLERANCE = 1e-4

# The models are those of one mlx_lm; an older one, which goes with an older MLX, lacks some.
DESCRIBED = f"mlx-lm=={importlib.metadata.version('mlx-lm')}" == _tiny_models._MLX_LM
OTHERWISE_BEFORE = {"nemotron_h", "phi3small"}  # other arguments, a crash of MLX 0.31.2 itself


def is_there(name: str) -> bool:
    """Whether the mlx_lm that is installed has this model."""
    module = _tiny_models._configurations()[name]["module"]
    found = importlib.util.find_spec(f"mlx_lm.models.{module}")
    return DESCRIBED or (found is not None and name not in OTHERWISE_BEFORE)


def stored() -> dict[str, int]:
    """The stored counts, by model name."""
    return json.loads(FILE.read_text())


def stored_ropes() -> dict[str, tuple[int, int]]:
    """Those of ropes, and of pairs of them, of the models that have any."""
    return {name: tuple(counts) for name, counts in json.loads(ROPES.read_text()).items()}


def tokens(name: str, count: int = PREFILL + 1, seed: int = 0) -> mx.array:
    """Random tokens of the model's vocabulary."""
    return mx.random.randint(0, _tiny_models.vocabulary(name), (count,), key=mx.random.key(seed))


def generated_tokens(model, prompt: mx.array, count: int) -> list[int]:
    """By mlx_lm on the default device, which may have been another when mlx_lm was imported."""
    stream = mx.default_stream(mx.default_device())
    return [token for token, _ in generate_step(prompt, model, stream, max_tokens=count)]


def logits(model, tokens: mx.array) -> mx.array:
    """The logits after each token: a prefill of all but the last one, then a decode step."""
    cache = make_prompt_cache(model)
    steps = []
    for part in (tokens[None, :-1], tokens[None, -1:]):
        mx.eval(part)  # as from a tokenizer: a graph ends there
        output = model(part, cache=cache)
        steps.append(output[0] if isinstance(output, tuple) else output)
        mx.eval(steps[-1])
    return mx.concatenate(steps, axis=1)


def agree(logits: mx.array, stock: mx.array, tolerance: float = TOLERANCE) -> bool:
    """Whether logits are the stock ones but for rounding. Those masked by -inf have to be equal."""
    finite = mx.isfinite(stock)
    masked = mx.array_equal(mx.where(finite, 0, logits), mx.where(finite, 0, stock))
    difference = mx.abs(mx.where(finite, logits - stock, 0))
    largest = mx.max(mx.abs(mx.where(finite, stock, 0)))
    return masked.item() and mx.all(difference <= tolerance * largest).item()


def count(name: str) -> mlx_norms.Report:
    """The counts of this model."""
    model = _tiny_models.build(name)
    with mlx_norms.patched():
        logits(model, tokens(name))
    return mlx_norms.report()


def fusions(report: mlx_norms.Report) -> int:
    """The residual adds that were computed with the norm after them, or before and after."""
    return report.fused + report.around.get("a norm before the addition", 0)


def main(arguments: list[str]) -> int:
    mx.set_default_device(mx.cpu)
    reports = {name: count(name) for name in _tiny_models.names()}
    fused = {name: fusions(report) for name, report in reports.items()}
    ropes = {name: [of.ropes, of.rope_pairs] for name, of in reports.items() if of.ropes}
    for file, counts in ((FILE, fused), (ROPES, ropes)):
        lines = (f"  {json.dumps(name)}: {json.dumps(count)}" for name, count in counts.items())
        text = "{\n" + ",\n".join(lines) + "\n}\n"
        if arguments == ["--write"]:
            file.write_text(text)
        else:
            print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
