"""Runs the tiny models of mlx_lm and counts the residual adds that are fused into a norm, and the
norms of heads that are computed with the rope after them.

    python tools support.model_fusions            prints how many there are in each model
    python tools support.model_fusions --write    writes that to model_fusions.json, and to
                                                  model_ropes.json how many ropes and pairs of them

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
ROPES = Path(__file__).with_name("model_ropes.json")
PREFILL = 8


def stored() -> dict[str, int]:
    """The stored counts, by model name."""
    return json.loads(FILE.read_text())


def stored_ropes() -> dict[str, tuple[int, int]]:
    """Those of ropes, and of pairs of them, of the models that have any."""
    return {name: tuple(counts) for name, counts in json.loads(ROPES.read_text()).items()}


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


def count(name: str) -> mlx_norms.Report:
    """The counts of this model."""
    model = _tiny_models.build(name)
    with mlx_norms.patched():
        logits(model, tokens(name))
    return mlx_norms.report()


def main(arguments: list[str]) -> int:
    mx.set_default_device(mx.cpu)
    reports = {name: count(name) for name in _tiny_models.names()}
    fused = {name: report.fused for name, report in reports.items()}
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
