"""Names at namespace scope that Apple's headers have, too, and keywords of MSL's used as names.

After `using namespace metal`, a name of the text's own is ambiguous wherever it is used if Metal
has a type of that name. Functions are overloads of Metal's functions, as long as their parameters
differ. Locals, parameters and members hide Metal's names, as in C++.
"""

from __future__ import annotations

import re
from pathlib import Path

from .outline import KEYWORDS, Violation, after_angles, split

_TABLE = (Path(__file__).with_name("shim") / "names.h").read_text().replace("\\\n", " ")
# Of 8 and 16 elements, which Metal has no vectors of, and what else <metal_types> reserves.
_RESERVED = {
    f"{scalar}{n}"
    for scalar in "bool char uchar short ushort int uint long ulong half float".split()
    for n in (8, 16)
} | set("complex imaginary llong quad ullong".split())
TYPES = {
    name
    for of in re.findall(r"#define MSL_\w+\(X\)(.*)", _TABLE)
    for name in re.findall(r"X\((\w+)\)", of)
} | _RESERVED

# Metal's functions by their parameters, each of one type where they have the same letter:
# F of floats, I of integers, N of both, L of numbers up to 32 bits, B of bool, u a ushort.
_BY_PARAMETERS = {
    "F": """acos acosh asin asinh atan atanh ceil cos cosh cospi exp exp10 exp2 fabs floor fract
        ilogb isfinite isinf isnan isnormal length length_squared log log10 log2 normalize rint
        round rsqrt saturate sign signbit sin sinh sinpi sqrt tan tanh tanpi trunc""",
    "FF": """atan2 copysign cross distance distance_squared divide dot fdim fmax fmin fmod isordered
        isunordered nextafter pow powr reflect step""",
    "FFF": "faceforward fma fmax3 fmedian3 fmin3 mix smoothstep",
    "N": "abs",
    "NN": "max min",
    "NNN": "clamp max3 median3 min3",
    "I": "clz ctz popcount reverse_bits",
    "II": "absdiff addsat hadd mul24 mulhi rhadd rotate subsat",
    "III": "mad24 madhi madsat",
    "L": """quad_and quad_broadcast_first quad_max quad_min quad_or quad_prefix_exclusive_product
        quad_prefix_exclusive_sum quad_prefix_inclusive_product quad_prefix_inclusive_sum
        quad_product quad_sum quad_xor simd_and simd_broadcast_first simd_max simd_min simd_or
        simd_prefix_exclusive_product simd_prefix_exclusive_sum simd_prefix_inclusive_product
        simd_prefix_inclusive_sum simd_product simd_sum simd_xor""",
    "Lu": """quad_broadcast quad_shuffle quad_shuffle_down quad_shuffle_rotate_down
        quad_shuffle_rotate_up quad_shuffle_up quad_shuffle_xor simd_broadcast simd_shuffle
        simd_shuffle_down simd_shuffle_rotate_down simd_shuffle_rotate_up simd_shuffle_up
        simd_shuffle_xor""",
    "B": "all any quad_all quad_any simd_all simd_any",
    # With parameters of several types: an overload has others, and only what is none clashes.
    None: """as_type atomic_compare_exchange_weak_explicit atomic_exchange_explicit
        atomic_fetch_add_explicit atomic_fetch_and_explicit atomic_fetch_max_explicit
        atomic_fetch_min_explicit atomic_fetch_or_explicit atomic_fetch_sub_explicit
        atomic_fetch_xor_explicit atomic_load_explicit atomic_store_explicit atomic_thread_fence
        determinant dfdx dfdy discard_fragment extract_bits frexp fwidth insert_bits ldexp
        make_filled_simdgroup_matrix modf quad_ballot quad_is_first refract select
        simd_active_threads_mask simd_ballot simd_is_first simd_shuffle_and_fill_down
        simd_shuffle_and_fill_up simdgroup_barrier simdgroup_load simdgroup_multiply
        simdgroup_multiply_accumulate simdgroup_store sincos threadgroup_barrier transpose""",
}
FUNCTIONS = {name: of for of, names in _BY_PARAMETERS.items() for name in names.split()}

_TYPE = re.compile(r"(u?)(char|short|int|long|half|float|bool)(?:(8|16|32|64)_t)?[234]?")
_KEYWORDS = set(
    "bfloat fragment half kernel object_data ray_data threadgroup_imageblock vertex".split()
)
_QUALIFIERS = set("const constant constexpr device inline static thread threadgroup using".split())
_CLASSES = {"struct", "class", "union", "enum"}


def check(outline):
    """Violations by names at namespace scope, and by keywords."""
    code = outline.code
    text = " ".join(t.text for t in code)
    if "using namespace metal ;" in text:
        for start, stop in outline.declarations:
            for token, parameters in _declared(outline, start, stop):
                if message := _clash(token.text, parameters):
                    yield Violation(token.line, "name of Metal's", message)
    for i in range(1, len(code) - 1):
        if code[i].text in _KEYWORDS and _names(code[i - 1], code[i + 1].text):
            message = f"{code[i].text} is a keyword in MSL"
            yield Violation(code[i].line, "keyword", message)


def _names(before, after):
    """Whether what stands between these declares something."""
    if before.text in ("*", "&"):
        return after in ("=", ";", ",", ")", "[")
    if before.text == ",":
        return after in ("=", ";", "[")
    typed = before.kind == "name" and before.text not in KEYWORDS | _QUALIFIERS | {"typename"}
    return typed and after in ("=", ";", ",", ")", "[", "(", "{", ":")


def _clash(name, parameters):
    if name in TYPES:
        return f"Metal has a type {name}, so that its use is ambiguous"
    if name not in FUNCTIONS:
        return None
    if parameters is None:
        return f"Metal has a function {name}, so that its use is ambiguous"
    if _fits(FUNCTIONS[name], [_type(p) for p in parameters]):
        return f"Metal has a function {name} of these parameters, so that its call is ambiguous"
    return None


def _type(parameter):
    """The name of a parameter's type if it is a number or a vector, passed by value."""
    words = [t.text for t in parameter if t.text not in ("const", "thread")]
    return words[0] if len(words) < 3 and _TYPE.fullmatch(words[0]) else None


def _fits(wanted, types):
    if wanted is None or len(types) != len(wanted) or None in types:
        return False
    if wanted.endswith("u") and types.pop().removeprefix("u") not in ("short", "int16_t"):
        return False
    _, scalar, bits = _TYPE.fullmatch(types[0]).groups()
    kinds = {"half": "FNL", "float": "FNL", "bool": "B"}.get(scalar, "INL")
    if scalar == "long" or bits == "64":
        kinds = "IN"
    return len(set(types)) == 1 and wanted[0] in kinds


def _declared(outline, start, stop):
    """The names of a declaration, with the parameters of a function and None for what is none."""
    code = outline.code
    while start < stop and code[start].text == "template":
        after = after_angles(code, start + 1)
        if after == start + 1:
            return  # an instantiation
        start = after
    at = []  # outside of brackets
    i = start
    while i < stop:
        at.append(i)
        i = max(outline.partner.get(i, i) + 1, after_angles(code, i))
    words = [code[i].text for i in at]
    if not words or words[0] in ("namespace", "static_assert", "friend"):
        return
    if words[0] == "using":
        if words[1] != "namespace":
            yield code[at[1] if "=" in words else at[-1]], None
        return
    if words[0] == "typedef":
        yield next(code[i] for i in reversed(at) if code[i].kind == "name"), None
        return
    if words[0] in _CLASSES:
        names = [i for i in at[1:3] if code[i].kind == "name" and code[i].text not in _CLASSES]
        if names:
            yield code[names[0]], None
        if words[0] == "enum" and words[1] not in _CLASSES and "{" in words:
            opening = at[words.index("{")]
            for part in split(code[opening + 1 : outline.partner[opening]]):
                yield part[0], None
        return
    for n, i in enumerate(at):
        named = n > 0 and code[at[n - 1]].kind == "name"
        if words[n] == "(" and named and words[n - 1] not in ("decltype", "alignas"):
            if words[n - 2] != "::":  # a member's definition
                yield code[at[n - 1]], split(code[i + 1 : outline.partner[i]])
            return
        if words[n] in ("=", "[", "{", ",") and named:
            yield code[at[n - 1]], None
            if words[n] != ",":
                return
    if code[at[-1]].kind == "name":
        yield code[at[-1]], None
