"""The libraries of kernels that the extension finds or compiles, on the software Metal device."""

import json
import shutil
import subprocess

import pytest

import join
from hostmetal.build import for_tests

pytestmark = [pytest.mark.instrument, pytest.mark.build]


LOAD = """
import hostmetal, json
import _libraries
loaded = _libraries.load()
hostmetal.start().clear()  # of what the device refused
print(json.dumps(loaded))
"""


@pytest.fixture
def load(tmp_path):
    """Loads the libraries in a process of its own, with the metallibs of a folder."""
    build = for_tests("_libraries")
    shutil.copy(next(build.build.glob("_libraries*.so")), tmp_path)

    def load():
        path = f"{build.site}:{tmp_path}"
        done = build.python("-c", LOAD, variables={"PYTHONPATH": path}, stdout=subprocess.PIPE)
        return json.loads(done.stdout)

    return load


@pytest.fixture(scope="module")
def texts():
    """By library, the name of its metallib and its text: on this device, a metallib is a text."""
    texts = join.texts()
    return {name: (join.file_name(name, text), text) for name, text in texts.items()}


def test_texts_where_there_is_no_metallib(load, texts):
    loaded = load()
    assert sorted(name for name, *_ in loaded) == sorted(texts)
    assert all(usable and not from_metallib for _, usable, from_metallib, _ in loaded)


def test_metallibs_where_they_are_there(load, texts, tmp_path):
    for name in ("norm", "linear"):
        file, text = texts[name]
        (tmp_path / f"{file}.metallib").write_text(text)
    for name, usable, from_metallib, failure in load():
        assert usable and from_metallib == (name in ("norm", "linear")) and not failure


def test_the_text_of_a_metallib_that_does_not_load(load, texts, tmp_path):
    (tmp_path / f"{texts['norm'][0]}.metallib").write_text("#error planted")
    for name, usable, from_metallib, failure in load():
        assert usable and not from_metallib
        assert ("metallib:" in failure) == (name == "norm")


def test_the_metallib_of_another_text_is_not_taken(load, texts, tmp_path):
    """One that an older build left there."""
    (tmp_path / "mlx_norms_norm_0123456789abcdef.metallib").write_text("#error planted")
    assert all(usable and not failure for _, usable, _, failure in load())
