"""README and docs: their examples run, their links lead somewhere, and the front page is short."""

import re
import shlex
import subprocess
import sys

import pytest

from support.variant import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
COMMANDS = ("python -m mlx_norms", "python tools/fuzz")  # that run here, without an installation
LONG = ("mlx_norms selftest", "norms.csv")  # test_selftest.py and test_bench.py have these
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)|(?:src|srcset)=\"([^\"]*)\"")
# Needs an NVIDIA GPU; test_cuda.py has its example.
ON_CUDA = "mlx_layer_norm_gradient.md"
for_pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def blocks(page, language):
    return [text for found, text in BLOCK.findall(page.read_text()) if found == language]


@pytest.fixture
def tiny_model(monkeypatch):
    """What mlx_lm.load gives, whatever it is asked for: weights cannot be downloaded here."""
    mlx_lm = pytest.importorskip("mlx_lm")
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from mlx_norms.commands import _tiny_models

    words = ["<unk>", "<eos>", "Once", "upon", "a", "time"]
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<eos>")
    model = _tiny_models.build("llama")
    monkeypatch.setattr(mlx_lm, "load", lambda name: (model, fast))
    return model


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if blocks(page, "python") and page.name != ON_CUDA],
    ids=lambda page: page.name,
)
def test_examples(page, tiny_model, capsys):
    """Those of a page run one after another, as they are read."""
    import mlx.core as mx

    import mlx_norms

    names = {}
    stock = mx.fast.rms_norm
    try:
        for text in blocks(page, "python"):
            exec(compile(text, page.name, "exec"), names)
        assert mx.fast.rms_norm is stock, "what a page patches it unpatches"
    finally:
        mlx_norms.unpatch()
    if "report()" in page.read_text() and "mlx_lm.generate" in page.read_text():
        shown = r"[1-9]\d* by mlx_norms, 0 left to MLX\n[1-9]\d* fused"
        assert re.search(shown, capsys.readouterr().out)


def commands(page):
    lines = "".join(blocks(page, "sh")).splitlines()
    return [line for line in lines if line.startswith(COMMANDS) and not line.endswith(LONG)]


@pytest.mark.parametrize("command", sorted({c for page in PAGES for c in commands(page)}))
def test_commands(command, tmp_path):
    """A file that a command names relative to the checkout is there."""
    arguments = shlex.split(command)[1:]
    if arguments[0].endswith(".py"):
        arguments[0] = str(ROOT / arguments[0])
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@for_pages
def test_links(page):
    for path, anchor, source in LINK.findall(page.read_text()):
        if (path or source).startswith("https://"):
            continue
        target = page.parent / (path or source) if path or source else page
        assert target.exists(), f"{page.name} links to {path or source}"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {path}#{anchor}"


@for_pages
def test_every_page_is_reached_from_the_front(page):
    front = (ROOT / "README.md").read_text()
    assert page.name == "README.md" or page.name in front


def test_front_page_is_short():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 130
    assert len(text.encode()) <= 7168
