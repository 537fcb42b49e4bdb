"""Models by `compare`: a tiny one, and the smallest that Hugging Face's cache has, if any."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from . import items

_TINY = ("tiny:llama", "tiny:qwen3")
_LENGTHS = ("--prompt", "64", "--tokens", "32")
_TINY_LENGTHS = ("--prompt", "2", "--tokens", "2")
_LEAST, _MOST = 50 << 20, 6 << 30  # bytes of weights
_SHARE = 0.4  # of memory


def cache() -> Path:
    """Hugging Face's, as its library finds it."""
    if folder := os.environ.get("HF_HUB_CACHE"):
        return Path(folder)
    home = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    return Path(home) / "hub"


def memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def cached(folder: Path, most: float, types: set[str]) -> tuple[str, int] | None:
    """The smallest whole model there of a type that mlx_lm has, by its name, and its bytes."""
    found = []
    for config in folder.glob("models--*/snapshots/*/config.json"):
        weights = [*config.parent.glob("*.safetensors")]
        try:
            size = sum(path.stat().st_size for path in weights)  # a link to nothing raises
            about = json.loads(config.read_text())
        except (OSError, ValueError):
            continue
        index = config.parent / "model.safetensors.index.json"
        if index.exists():
            try:
                wanted = set(json.loads(index.read_text())["weight_map"].values())
            except (OSError, ValueError, KeyError):
                continue
            if not wanted <= {path.name for path in weights}:
                continue
        tokenizer = any(config.parent.glob("tokenizer*"))
        if tokenizer and about.get("model_type") in types and _LEAST <= size <= min(most, _MOST):
            name = config.parents[2].name.removeprefix("models--").replace("--", "/")
            found.append((size, name))
    return min(found)[::-1] if found else None


def types() -> set[str]:
    spec = importlib.util.find_spec("mlx_lm")
    if spec is None:
        raise items.NotRun("there is no mlx_lm", "pip install '.[test]'")
    return {path.stem for path in Path(spec.origin).parent.glob("models/*.py")}


def compare(model: str) -> dict:
    """What `compare` says of a model, with its figures."""
    lengths = _TINY_LENGTHS if items.is_tiny() else _LENGTHS
    command = [sys.executable, "-m", "mlx_norms", "compare", model, *lengths, "--json"]
    command += [] if items.is_tiny() else ["--projections"]
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode == 2 and "needs packages" in done.stderr:
        raise items.NotRun(items.private(done.stderr.strip()), "pip install '.[test]'")
    try:
        found = json.loads(done.stdout)
    except ValueError:
        raise RuntimeError(done.stderr.strip()[-1500:] or f"status {done.returncode}") from None
    verdict = found["verdict"]
    result = {"verdict": verdict["text"], "figures": found}
    if not verdict["agrees"]:
        result |= {"status": items.FAILED, "reason": "logits differ by more than rounding explains"}
    return result


def from_cache() -> dict:
    model = cached(cache(), _SHARE * memory(), types())
    if model is None:
        raise items.NotRun(
            f"no model of mlx_lm that fits is in {items.private(str(cache()))}",
            "hf download mlx-community/Qwen3-0.6B-4bit",
        )
    name, size = model
    return {"model": name, "bytes": size} | compare(name)


def listed() -> Iterator[items.Item]:
    first, *others = _TINY[: 1 if items.is_tiny() else None]
    yield first, lambda: compare(first)
    yield "from the cache", from_cache
    for name in others:
        yield name, lambda name=name: compare(name)
