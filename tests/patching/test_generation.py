"""mlx_lm's ways to generate, with tiny models: the same tokens stock and patched, norms fused."""

import mlx.core as mx
import mlx.nn
import pytest
from mlx.utils import tree_map_with_path
from mlx_lm import generate, stream_generate
from mlx_lm.generate import BatchGenerator, generate_step
from mlx_lm.models.cache import (
    load_prompt_cache,
    make_prompt_cache,
    save_prompt_cache,
    trim_prompt_cache,
)
from mlx_lm.tuner.utils import linear_to_lora_layers
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import mlx_norms
from mlx_norms.commands import _tiny_models
from support import model_fusions
from support.model_fusions import tokens
from support.releases import EXPERTS

MAX_TOKENS = 16
# One with RMS norms, one with Gemma's 1 + w and norms on both sides of a block, one with layer
# norms.
FEW = ["llama", "gemma2", "gpt2"]
# With norms of queries and keys: before a transpose, after it, of other layers than all, with a
# norm of values, in an attention without a norm before it, and before a rope of half of each head.
ROPED = ["qwen3", "gemma3_text", "lfm2", "gemma3n", "exaone4", "glm4_moe"]


def prompt(name, count=8, seed=0):
    return tokens(name, count, seed)


def without_used(used, logits):
    """A logits processor: tiny models would else say one token again and again."""
    logits[:, used] = -mx.inf
    return logits


DECODING = dict(max_tokens=MAX_TOKENS, logits_processors=[without_used])


def generated(model, prompt, **options):
    """The tokens that greedy decoding appends to a prompt, none of them twice."""
    steps = generate_step(prompt, model, **DECODING, **options)
    return [token for token, _ in steps]


def patched(function):
    """What a function returns, called patched; it has to fuse norms."""
    with mlx_norms.patched():
        result = function()
    assert model_fusions.fusions(mlx_norms.report()) > 0
    return result


@pytest.mark.parametrize(
    "name",
    [
        *("llama", "qwen3", "gemma2", "gemma3", "gemma3_text", "olmo2", "mixtral", "deepseek_v3"),
        *("phi3", "gpt2", "cohere"),
    ],
)
def test_generate_step(name):
    model = _tiny_models.build(name)

    def run():
        greedy = [token for token, _ in generate_step(prompt(name), model, max_tokens=MAX_TOKENS)]
        return greedy, generated(model, prompt(name))

    stock = run()
    assert len(set(stock[1])) == MAX_TOKENS
    assert patched(run) == stock


@pytest.fixture(scope="module")
def tokenizer():
    """A tokenizer with a word for each token of the tiny llama."""
    words = {f"w{i}": i for i in range(_tiny_models.vocabulary("llama"))}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="w1")


class TestText:
    def test_generate(self, tokenizer):
        model = _tiny_models.build("llama")
        text = tokenizer.decode(prompt("llama").tolist())

        def run():
            return generate(model, tokenizer, text, **DECODING)

        stock = run()
        assert len(stock.split()) == MAX_TOKENS
        assert patched(run) == stock

    def test_stream_generate(self, tokenizer):
        """What is asked for while patched is computed patched, of a stream begun before too."""
        model = _tiny_models.build("llama")

        def stream():
            responses = stream_generate(model, tokenizer, prompt("llama"), **DECODING)
            return (response.text for response in responses)

        stock = list(stream())
        assert patched(lambda: list(stream())) == stock
        begun = stream()
        first = [next(begun) for _ in range(4)]
        assert first + patched(lambda: list(begun)) == stock


@pytest.mark.parametrize("name", FEW)
class TestPromptCache:
    """A prompt whose cache is kept, and a second one that goes on from it."""

    def filled(self, model, name):
        cache = make_prompt_cache(model)
        generated(model, prompt(name), prompt_cache=cache)
        return cache

    def continued(self, model, name, cache):
        return generated(model, prompt(name, 5, seed=1), prompt_cache=cache)

    def test_used_again(self, name):
        """The cache may be made stock and used patched, and the other way round."""
        model = _tiny_models.build(name)
        stock = self.continued(model, name, self.filled(model, name))
        assert stock != generated(model, prompt(name, 5, seed=1))
        cache = self.filled(model, name)
        assert patched(lambda: self.continued(model, name, cache)) == stock
        cache = patched(lambda: self.filled(model, name))
        assert self.continued(model, name, cache) == stock
        cache = patched(lambda: self.filled(model, name))
        assert patched(lambda: self.continued(model, name, cache)) == stock

    def test_trimmed(self, name):
        model = _tiny_models.build(name)

        def run():
            cache = self.filled(model, name)
            assert trim_prompt_cache(cache, 10) == 10
            return self.continued(model, name, cache)

        stock = run()
        assert stock != self.continued(model, name, self.filled(model, name))
        assert patched(run) == stock

    def test_saved(self, name, tmp_path):
        model = _tiny_models.build(name)
        file = str(tmp_path / "cache.safetensors")

        def run():
            save_prompt_cache(file, self.filled(model, name))
            return self.continued(model, name, load_prompt_cache(file))

        stock = run()
        assert stock == self.continued(model, name, self.filled(model, name))
        assert patched(run) == stock


@pytest.mark.parametrize("name", [*FEW, *ROPED, "mixtral"])
def test_batches(backend, name):
    """Prompts of several lengths together, the last of which joins when another is done."""
    model = _tiny_models.build(name)
    prompts = [prompt(name, count, seed=count).tolist() for count in (3, 8, 5, 6)]

    def run():
        generator = BatchGenerator(
            model,
            completion_batch_size=3,
            prefill_batch_size=3,
            logits_processors=[without_used],
        )
        uids = generator.insert(prompts, max_tokens=[4, MAX_TOKENS, 9, 7])
        batch = {uid: [] for uid in uids}
        while responses := generator.next_generated():
            for response in responses:
                batch[response.uid].append(response.token)
        generator.close()
        return [batch[uid] for uid in uids]

    stock = run()
    assert [len(tokens) for tokens in stock] == [4, MAX_TOKENS, 9, 7]
    assert patched(run) == stock
    assert (mlx_norms.report().rope_pairs > 0) == (name in ROPED)


@pytest.mark.parametrize(
    "name, group_size", [("llama", 64), ("gemma2", 32), pytest.param("mixtral", 32, marks=EXPERTS)]
)
def test_quantized_models(name, group_size):
    model = _tiny_models.build(name)
    mlx.nn.quantize(model, group_size=group_size, bits=4)
    stock = generated(model, prompt(name))
    assert patched(lambda: generated(model, prompt(name))) == stock


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2"])
@pytest.mark.parametrize("quantized", [False, True])
def test_lora_layers(name, quantized):
    model = _tiny_models.build(name)
    if quantized:
        mlx.nn.quantize(model, group_size=32, bits=4)
    base = generated(model, prompt(name))
    linear_to_lora_layers(model, 2, {"rank": 4, "scale": 20.0, "dropout": 0.0})

    def trained(path, parameter):  # they are zeros before any training
        noise = 0.1 * mx.random.normal(parameter.shape)
        return parameter + noise if path.endswith("lora_b") else parameter

    model.update(tree_map_with_path(trained, model.parameters()))
    stock = generated(model, prompt(name))
    assert stock != base
    assert patched(lambda: generated(model, prompt(name))) == stock


class TestPatchedModel:
    """mlx_norms.patch(model)"""

    def test_calls_of_other_models_stay(self):
        model, other = (_tiny_models.build("llama", seed) for seed in (0, 1))
        stock = [generated(each, prompt("llama")) for each in (model, other)]
        assert stock[0] != stock[1]
        mlx_norms.patch(model)
        try:
            assert generated(other, prompt("llama")) == stock[1]
            assert mlx_norms.report().calls == 0
            assert generated(model, prompt("llama")) == stock[0]
            assert mlx_norms.report().fused > 0
        finally:
            mlx_norms.unpatch(model)

    def test_unpatched_it_is_stock(self):
        model = _tiny_models.build("llama")
        mlx_norms.patch(model)
        mlx_norms.unpatch(model)
        before = mlx_norms.report().calls
        generated(model, prompt("llama"))
        assert mlx_norms.report().calls == before
