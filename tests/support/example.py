"""Runs an example of a page, as a user's own script.

python -m support.example FILE        as it is
python -m support.example FILE network    with a tiny model, whatever mlx_lm.load is asked for
"""

import runpy
import sys

import mlx.core as mx


def stand_in():
    """Has mlx_lm.load give a tiny model, since weights cannot be downloaded here."""
    import mlx_lm
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from mlx_norms.commands import _tiny_models

    words = ["<unk>", "<eos>", "Once", "upon", "a", "time"]
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<eos>")
    model = _tiny_models.build("llama")
    mlx_lm.load = lambda name: (model, fast)


def main(file, need=""):
    if need == "network":
        stand_in()
    stock = mx.fast.rms_norm
    runpy.run_path(file, run_name="__main__")
    assert mx.fast.rms_norm is stock, "what an example patches it unpatches"
    if need == "network":
        import mlx_norms

        assert mlx_norms.report().fused > 0, "the model was patched"


if __name__ == "__main__":
    main(*sys.argv[1:])
