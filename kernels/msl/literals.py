"""Numbers. MSL has no double."""

from __future__ import annotations

import re

_FLOATING = re.compile(
    r"((?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?|0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*[pP][-+]?\d+)"
    r"([fFhH]|bf|BF|)"
)


def cpp_literal(number: str) -> str:
    """The literal in C++. One without a suffix is a float in MSL; h is half, bf bfloat."""
    match = _FLOATING.fullmatch(number)
    if not match:
        return number
    digits, suffix = match[1], match[2].lower()
    if suffix in ("h", "bf"):
        digits += "" if re.search(r"[.eEpP]", digits) else ".0"
        return f"{'half' if suffix == 'h' else 'bfloat'}({digits}f)"
    return number if digits.isdigit() or suffix else f"{digits}f"
