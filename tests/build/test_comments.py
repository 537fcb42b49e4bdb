"""The texts that are embedded and compiled by users have no comments, and mean the same."""

import os
import re

import pytest

import join
from msl.comments import without_comments
from msl.preprocess import preprocess
from support.cuda_text import translation
from to_cuda.translate import PRELUDE

COMPILER = os.environ.get("CXX", "c++")


@pytest.mark.parametrize(
    "text, kept",
    [
        ("int a;  // one\n// two\nint b;\n", "int a;\n\nint b;\n"),
        ("a /* one */ + b/**/c;", "a   + b c;"),
        ("a; /* one\ntwo // three\n*/ b;\n// */\n", "a; \n\n b;\n\n"),
        ('f("//", "/* \\" // */");  // "\n', 'f("//", "/* \\" // */");\n'),
        ("c = '\"'; // '\"'\nd = '\\''; // '\n", "c = '\"';\nd = '\\'';\n"),
        ("#define F(a) a \\\n  + 1  // its sum\n", "#define F(a) a \\\n  + 1\n"),
        ("a / b; // a quotient's", "a / b;"),
    ],
)
def test_what_is_left(text, kept):
    assert without_comments(text) == kept
    assert without_comments(text).count("\n") == text.count("\n")


def read(texts, folder):
    """Their tokens, as a compiler finds them."""
    found = {}
    for name, text in texts.items():
        (folder / "text.metal").write_text(text)
        read = preprocess(folder / "text.metal", folder, COMPILER, ["__METAL__"])
        found[name] = re.sub(r"^#line.*$", "", read, flags=re.M).split()
    return found


def test_a_librarys_text_means_the_same(tmp_path, monkeypatch):
    texts = join.texts(cuda=True)
    for text in texts.values():
        assert "//" not in text and "/*" not in text
        assert all(line.strip() for line in text.splitlines())
    monkeypatch.setattr(join, "without_comments", lambda text: text)
    commented = join.texts(cuda=True)
    assert all("//" in text for text in commented.values())
    assert read(texts, tmp_path) == read(commented, tmp_path)


def test_a_text_for_cuda_keeps_its_lines():
    text = translation("norm/norm").text
    assert "//" not in text and "/*" not in text
    marker, *lines = text.splitlines()
    assert marker.startswith("#line 1 ")
    for line, written in zip(lines, PRELUDE.read_text().splitlines(), strict=False):
        assert line == without_comments(written)
