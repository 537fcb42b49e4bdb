"""Metal source to C++: tokens are replaced in place, so lines keep their numbers."""

from __future__ import annotations

import re

from .msl import ADDRESS_SPACES, Declarations, read_attributes
from .overloads import fold_overloads
from .tokens import SourceError, Tokens

_SWIZZLE = re.compile(r"[xyzw]{2,4}|[rgba]{2,4}")
_ASSIGNMENTS = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<="})


def rewrite(tokens: Tokens, declared: Declarations, members_specialise: bool) -> tuple[str, str]:
    """Macros to be defined before the shim, and the source as C++ after it; `tokens` is used up.

    The names of the variables in threadgroup memory are noted in `declared`.

    Args:
        tokens: of the preprocessed source.
        declared: what it declares.
        members_specialise: whether the compiler takes explicit specialisations of member
            functions in their class; else they become overloads.
    """
    derived = _derived_constants(tokens, declared)
    for start, stop in declared.instantiations:
        tokens.erase(start, stop)
    for kernel in declared.kernels.values():
        _rewrite_kernel(tokens, kernel)
    _rewrite_constants(tokens, declared, derived)
    _rewrite_threadgroup_variables(tokens, declared)
    macros = _rewrite_swizzles(tokens)
    _make_unions_copyable(tokens)
    for i in range(len(tokens)):
        if tokens.kind(i) == "number":
            tokens[i] = _literal(tokens[i])
        elif tokens.is_word(i, "kernel"):
            tokens[i] = ""
    _erase_attributes(tokens)
    if not members_specialise:
        _overload_member_specialisations(tokens)
    qualified = _erase_address_spaces(tokens)
    fold_overloads(tokens, qualified)
    return macros, tokens.text()


def _rewrite_kernel(tokens, kernel):
    """References become pointers, which the compiler may not read ahead of their use."""
    names = ""
    for p in kernel.parameters:
        if p.position is None:
            words = tokens.significant(p.start, p.stop)
            reference = next((i for i in words if tokens[i] == "&"), None)
            if reference is not None and "[" not in p.text:
                name = next(i for i in words if tokens[i] == p.name and i > reference)
                tokens[reference] = "*"
                tokens[name] = f"msl_{p.name}"
                names += f" auto& {p.name} = *msl_{p.name};"
    end = tokens.close(kernel.body)
    tokens[kernel.body] = "{" + names
    tokens[end] = "msl::end_of_kernel(); }"


def _derived_constants(tokens, declared):
    """Spans of the constants at namespace scope whose values depend on function constants."""
    known = {c.name for c in declared.constants}
    found, i = [], 0
    if not known:
        return found
    while i < len(tokens):
        if tokens[i] == "{" and not tokens.is_word(_word_of_namespace(tokens, i), "namespace"):
            i = tokens.close(i)
        elif tokens.is_word(i, "constant"):
            stop = i
            while tokens[stop] not in (";", "{", ")"):
                stop = tokens.skip_brackets(stop) + 1
            words = tokens.significant(i, stop)
            equals = next((k for k in words if tokens[k] == "="), None)
            if tokens[stop] == ";" and equals and known & {tokens[k] for k in words if k > equals}:
                known.add(tokens[tokens.before(equals)])
                found.append((i, equals, stop))
            i = stop
        i += 1
    return found


def _word_of_namespace(tokens, brace):
    """The word before the name of a namespace, or before its brace where it has no name."""
    i = tokens.before(brace)
    while i > 0 and (tokens.is_word(i) or tokens[i] == "::") and tokens[i] != "namespace":
        i = tokens.before(i)
    return max(i, 0)


def _rewrite_constants(tokens, declared, derived):
    for i in range(len(tokens)):
        if tokens.is_word(i, "is_function_constant_defined"):
            opening = tokens.after(i)
            name = tokens[tokens.before(tokens.close(opening))]
            tokens.erase(i, tokens.close(opening) + 1)
            tokens[i] = f"msl_constant_{name}.defined"
    for c in declared.constants:
        tokens.erase(c.start, c.stop)
        tokens[c.start] = (
            f"static {c.type} {c.name}; static msl::FunctionConstant<{c.type}>"
            f' msl_constant_{c.name}("{c.name}", {c.index}, {c.name});'
        )
    for start, equals, stop in derived:
        name = tokens[tokens.before(equals)]
        kept = [k for k in tokens.significant(start, equals) if tokens[k] not in _QUALIFIERS]
        head = " ".join(tokens[k] for k in kept)
        tokens.erase(start, equals + 1)
        tokens[start] = f"static {head}; static msl::Derived msl_derived_{name}([] {{ {name} ="
        tokens[stop] = "; });"


_QUALIFIERS = frozenset({"constant", "const", "static", "constexpr"})


def _rewrite_threadgroup_variables(tokens, declared):
    for i in range(len(tokens)):
        if not tokens.is_word(i, "threadgroup"):
            continue
        before = tokens.before(i)
        if before < 0 or tokens[before][-1:] not in (";", "{", "}", ":"):
            continue
        found = _declarators(tokens, i + 1)
        if found is None:
            continue
        type_text, variables, stop = found
        text = ""
        for n, (name, dimensions) in enumerate(variables):
            declared.threadgroup_variables.add(name)
            unique = f"{i}_{n}"
            text += (
                f"typedef {type_text} msl_type_{unique}{dimensions}; msl_type_{unique}& {name} ="
                f" msl::threadgroup_variable<msl_type_{unique}, struct msl_tag_{unique}>"
                f'("{name}"); '
            )
        tokens.erase(i, stop)
        tokens[i] = text.rstrip("; ")


def _declarators(tokens, start):
    """Type, (name, dimensions) of the variables declared from start, and the semicolon.

    None for a pointer or a reference. Initialisers are dropped: MSL lets this memory begin
    undefined.

    Raises:
        SourceError: the declaration is of another form.
    """
    groups, i = [[]], tokens.after(start - 1)
    while tokens[i] != ";":
        end = i
        if tokens[i] in ("*", "&"):
            return None
        if tokens[i] == ",":
            groups.append([])
        elif tokens[i] == "=":
            end = _initialiser_end(tokens, i)
        elif tokens[i] == "alignas":
            end = tokens.close(tokens.after(i))
        elif tokens.is_word(i) or tokens[i] in ("::", "<", "["):
            if tokens[i] == "<":
                end = tokens.angle_close(i)
            end = tokens.skip_brackets(end)
            words = tokens.significant(i, end + 1)
            groups[-1].append(" ".join(tokens[k] for k in words))
        else:
            raise SourceError(
                f"{tokens.where(i)}: the declaration in threadgroup memory is not understood"
            )
        i = tokens.after(end)
    type_words, variables = [], []
    for group in groups:
        size = next((n for n, text in enumerate(group) if text[0] == "["), len(group))
        variables.append((group[size - 1], "".join(group[size:])))
        type_words = type_words or group[: size - 1]
    return " ".join(type_words), variables, i


def _initialiser_end(tokens, i) -> int:
    """The last token of the initialiser whose `=` is at i."""
    while tokens[tokens.after(i)] not in (",", ";"):
        i = tokens.skip_brackets(tokens.after(i))
    return i


def _rewrite_swizzles(tokens) -> str:
    """Swizzles become calls; returns macros for those that are fields of the source's classes."""
    fields = _fields(tokens)
    for i in range(len(tokens)):
        if tokens.kind(i) != "word" or not _SWIZZLE.fullmatch(tokens[i]) or tokens[i] in fields:
            continue
        following = tokens[tokens.after(i)]
        if tokens[tokens.before(i)] not in (".", "->") or following == "(":
            continue
        method = "lanes" if following in _ASSIGNMENTS else "swizzle"
        tokens[i] = f"template {method}<{_components(tokens[i])}>()"
    macros = ""
    for size in (2, 3, 4) if fields else ():
        fitting = [f for f in sorted(fields) if set(f) <= set("xyzw"[:size] + "rgba"[:size])]
        members = " ".join(f"msl::Lanes<T, {_components(f)}> {f};" for f in fitting)
        macros += f"#define MSL_SWIZZLES_{size} {members}\n"
    return macros


def _components(swizzle: str) -> str:
    order = "xyzw" if swizzle[0] in "xyzw" else "rgba"
    return ", ".join(str(order.index(c)) for c in swizzle)


def _fields(tokens) -> set[str]:
    """Words that look like swizzles but are declared in a class of the source."""
    members = _in_classes(tokens)
    return {tokens[k] for k in members if tokens.kind(k) == "word" and _SWIZZLE.fullmatch(tokens[k])}


def _in_classes(tokens):
    """Indices of the tokens in the bodies of classes, outside of all brackets there."""
    for i in range(len(tokens)):
        if not tokens.is_word(i, "struct", "class", "union"):
            continue
        k = i
        while k < len(tokens) and tokens[k] not in ("{", ";", ",", ">", "("):
            k += 1
        if k < len(tokens) and tokens[k] == "{":
            stop = tokens.close(k)
            k += 1
            while k < stop:
                yield k
                k = tokens.skip_brackets(k) + 1


def _overload_member_specialisations(tokens):
    for i in list(_in_classes(tokens)):
        opening = tokens.after(i)
        if tokens.is_word(i, "template") and tokens[opening] == "<":
            closing = tokens.after(opening)
            if tokens[closing] == ">":
                tokens.erase(i, closing + 1)


def _make_unions_copyable(tokens):
    """The shim's vectors have written-out copies, which a union with one lacks."""
    for i in range(len(tokens)):
        if not tokens.is_word(i, "union"):
            continue
        opening = tokens.after(i)
        name = tokens[opening] if tokens.is_word(opening) else ""
        opening = tokens.after(opening) if name else opening
        if tokens[opening] != "{":
            continue
        closing = tokens.close(opening)
        words = {tokens[k] for k in range(opening, closing) if tokens.is_word(k)}
        if name in words or not any(_VECTOR.fullmatch(word) for word in words):
            continue
        if not name:
            if not tokens.is_word(tokens.after(closing)):
                continue  # its members are those of the scope around it
            name = f"msl_union_{i}"
            tokens[i] = f"union {name}"
        copy = "__builtin_memcpy(static_cast<void*>(this), &other, sizeof *this); "
        tokens[opening] = (
            f"{{ {name}() = default; {name}(const {name}& other) {{ {copy}}}"
            f" {name}& operator=(const {name}& other) {{ {copy}return *this; }}"
        )


_VECTOR = re.compile(r"(packed_)?(bool|u?char|u?short|u?int|u?long|half|bfloat|float)[234]|vec")


def _literal(number: str) -> str:
    """MSL has no double: a literal without a suffix is a float. h is half, bf bfloat."""
    match = _FLOATING.fullmatch(number)
    if not match:
        return number
    digits, suffix = match[1], match[2].lower()
    if suffix in ("h", "bf"):
        digits += "" if re.search(r"[.eEpP]", digits) else ".0"
        return f"{'half' if suffix == 'h' else 'bfloat'}({digits}f)"
    return number if digits.isdigit() or suffix else f"{digits}f"


_FLOATING = re.compile(
    r"((?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?|0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*[pP][-+]?\d+)"
    r"([fFhH]|bf|BF|)"
)


def _erase_attributes(tokens):
    i = 0
    while i < len(tokens):
        if tokens.is_attribute(i) and read_attributes(tokens, i):
            close = tokens.close(i)
            tokens.erase(i, close + 1)
            i = close
        i += 1


def _erase_address_spaces(tokens) -> set[int]:
    """Erases the address spaces, but keeps that `constant` is const; returns where they stood."""
    found = set()
    for i in range(len(tokens)):
        if not tokens.is_word(i, *ADDRESS_SPACES):
            continue
        found.add(i)
        if tokens[i] != "constant":
            tokens[i] = ""
            continue
        before = tokens.before(i)
        after_parameters = before >= 0 and tokens[before] == ")"
        constant_method = before >= 0 and tokens[before] == "const" and (
            tokens[tokens.before(before)] == ")"
        )
        if after_parameters or constant_method or _has_const(tokens, i):
            tokens[i] = ""
        elif before < 0 or tokens[before][-1:] in (";", "}", "{"):
            tokens[i] = "static const" if _is_variable(tokens, i) else "const"
        else:
            tokens[i] = "const"
    return found


def _has_const(tokens, i) -> bool:
    """Whether the declaration's type around token i is const already."""
    k = tokens.before(i)
    while k >= 0 and tokens.kind(k) == "word":
        if tokens[k] in ("const", "constexpr"):
            return True
        k = tokens.before(k)
    k = tokens.after(i)
    while k < len(tokens):
        if tokens[k] == "<":
            k = tokens.angle_close(k) or k
        elif tokens[k] in ("const", "constexpr"):
            return True
        elif tokens.kind(k) != "word" and tokens[k] != "::":
            return False
        k = tokens.after(k)
    return False


def _is_variable(tokens, i) -> bool:
    """Whether the declaration at i defines an object, not a pointer or a function."""
    while tokens[i] not in (";", "=", "{", "(", "*", "&", "["):
        i += 1
    return tokens[i] in (";", "=", "{", "[")
