"""Vector types: CUDA has types of some of these names, which are different."""

from __future__ import annotations

import re

from msl.tokens import SourceError, Tokens

_VECTOR = re.compile(r"(?:bool|u?char|u?short|u?int|u?long|half|b?float)[234]")
_KNOWN = frozenset(
    {"float2", "float4", "half4", "uint2", "uint3", "uint4", "ulong2"}
)  # to the prelude
_SWIZZLE = re.compile(r"[xyzw]{2,4}|[rgba]{2,4}")
_SWIZZLES = frozenset({"xy", "zw"})
_ASSIGNMENT = re.compile(r"(?:[-+*/%&|^]|<<|>>)?=|\+\+|--")


def cuda_name(type: str, where: str) -> str:
    """The name of a type that may be a vector's.

    Raises:
        SourceError: If the prelude has no such vector.
    """
    if not _VECTOR.fullmatch(type):
        return type
    if type not in _KNOWN:
        raise SourceError(f"{where}: the prelude has no {type}")
    return f"metal::{type}"


def rewrite_vectors(tokens: Tokens):
    """Renames vector types, and turns swizzles into calls.

    Raises:
        SourceError: If one has no translation.
    """
    for i in range(len(tokens)):
        if tokens.kind(i) != "word":
            continue
        word, before = tokens[i], tokens.before(i)
        sign = tokens[before] if before >= 0 else ""
        if sign in (".", "->") and _SWIZZLE.fullmatch(word):
            if word not in _SWIZZLES or _ASSIGNMENT.match(tokens[tokens.after(i)]):
                raise SourceError(f"{tokens.where(i)}: swizzle '{word}' has no translation here")
            tokens[i] = f"{word}()"
        elif sign == "::" and tokens[tokens.before(before)] == "metal":
            tokens[i] = cuda_name(word, tokens.where(i)).removeprefix("metal::")
        else:
            tokens[i] = cuda_name(word, tokens.where(i))
