"""Texts without their comments, which users would compile and keep for nothing."""

from __future__ import annotations

import re

_COMMENT = re.compile(
    r"""(?P<string>"(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*') | [ \t]*//[^\n]* | /\*.*?\*/""",
    re.VERBOSE | re.DOTALL,
)


def without_comments(text: str) -> str:
    """A text in which a comment is a space or nothing; its lines keep their numbers."""

    def kept(match: re.Match) -> str:
        if match["string"]:
            return match["string"]
        return "\n" * match[0].count("\n") or " " * match[0].startswith("/*")

    return _COMMENT.sub(kept, text)
