"""The tokens of a C++ or Metal text, its functions, and the extents of its expressions."""

import re
from functools import cached_property

from msl.tokens import Tokens

# Conditions of text that neither the simulated device nor the baseline's compiler sees.
_OTHERS = re.compile(r"__CUDACC__|__AVX|__F16C__|MLX_NORMS_AVX|__aarch64__|__ARM")
_RANKS = [
    ("?", ":"),
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
]
_RANKS += [("<<", ">>"), ("+", "-"), ("*", "/", "%")]
_RANK = {sign: rank for rank, signs in enumerate(_RANKS) for sign in signs}
_ENDS = {",", ";", "(", ")", "[", "]", "{", "}", "=", "+=", "-=", "*=", "/=", "|=", "&=", "return"}
_CONTROL = {"if", "for", "while", "switch", "catch", "constexpr"}


def seen(text: str) -> str:
    """The text with spaces for directives, and for what is compiled for CUDA or AVX alone."""
    lines, stack, goes_on = [], [], False
    for line in text.splitlines(keepends=True):
        word = re.match(r"\s*#\s*(\w+)(.*)", line)
        if word and word[1] in ("if", "ifdef", "ifndef"):
            others = bool(_OTHERS.search(word[2]))
            is_not = word[1] == "ifndef" or word[2].lstrip().startswith("!")
            stack.append((others and not is_not, others and is_not))
        elif word and word[1] in ("else", "elif"):
            stack[-1] = stack[-1][::-1]
        elif word and word[1] == "endif":
            stack.pop()
        blank = word or goes_on or any(hidden for hidden, _ in stack)
        goes_on = bool(word or goes_on) and line.rstrip().endswith("\\")
        lines.append(re.sub(r"[^\n]", " ", line) if blank else line)
    return "".join(lines)


class Source:
    """A text without what the tests' compilers do not see: directives, and what is CUDA's alone.

    Significant tokens have numbers, by which the methods name places.

    Args:
        text: The file's text; one that metalsim's lexer can read.
    """

    def __init__(self, text: str):
        self.text = text
        tokens = Tokens(seen(text), "")
        self.words, self.kinds, self.starts, self.close, numbers, at = [], [], [], {}, {}, 0
        for i, token in enumerate(tokens.all):
            if token.kind != "space":
                numbers[i] = len(self.words)
                self.words.append(token.text)
                self.kinds.append(token.kind)
                self.starts.append(at)
            at += len(token.text)
        for i, number in numbers.items():
            if tokens[i] in ("(", "[", "{"):
                self.close[number] = numbers[tokens.close(i)]
        self.open = {close: opened for opened, close in self.close.items()}

    def end(self, i: int) -> int:
        return self.starts[i] + len(self.words[i])

    def of(self, first: int, last: int) -> str:
        """The text from one token up to another, which is part of it."""
        return self.text[self.starts[first] : self.end(last)]

    def find(self, *words: str) -> list[int]:
        return [i for i, word in enumerate(self.words) if word in words and self.function_of[i]]

    def is_binary(self, i: int) -> bool:
        """Whether an operator has two operands: clang-format sets it between spaces then."""
        return self.end(i - 1) < self.starts[i] and self.end(i) < self.starts[i + 1]

    def left(self, i: int) -> int:
        """The first token of the left operand of the operator at i."""
        rank, at = _RANK[self.words[i]], i - 1
        while True:
            at = self.open.get(at, at)
            before = self.words[at - 1]
            if before in _ENDS and at - 1 not in self.open:
                return at
            if _RANK.get(before, 99) < rank and self.is_binary(at - 1):
                return at
            at -= 1

    def right(self, i: int) -> int:
        """The last token of the right operand of the operator at i."""
        rank, at = _RANK[self.words[i]], i + 1
        while True:
            at = self.close.get(at, at)
            after = self.words[at + 1]
            if after in _ENDS and at + 1 not in self.close:
                return at
            if _RANK.get(after, 99) <= rank - (rank == 0) and self.is_binary(at + 1):
                return at
            at += 1

    def is_called(self, i: int) -> int | None:
        """The bracket that opens the arguments of the function at i."""
        at = i + 1
        if self.words[at] == "<" and not self.is_binary(at):
            depth = 0
            while self.words[at] not in (";", "{", "}"):
                depth += {"<": 1, ">": -1, ">>": -2}.get(self.words[at], 0)
                at += 1
                if depth <= 0:
                    break
        return at if self.words[at] == "(" else None

    def arguments(self, opened: int) -> list[tuple[int, int]]:
        """The first and last tokens of each argument in the brackets that open here."""
        found, first, at = [], opened + 1, opened + 1
        while at <= self.close[opened]:
            if self.words[at] == "," or at == self.close[opened]:
                if at > first:
                    found.append((first, at - 1))
                first = at + 1
            at = self.close.get(at, at) + 1
        return found

    @cached_property
    def function_of(self) -> list[str]:
        """The name of the function that each token is in, or nothing outside of them."""
        names = [""] * len(self.words)
        for opened in sorted(self._functions):
            if not names[opened]:
                close = self.close[opened]
                names[opened : close + 1] = [self._functions[opened]] * (close + 1 - opened)
        return names

    @cached_property
    def _functions(self) -> dict[int, str]:
        """The names of functions, lambdas included, by the brace that opens them."""
        found = {}
        for opened in self.close:
            if self.words[opened] != "{":
                continue
            at = opened - 1
            while at >= 0 and (
                self.kinds[at] == "word" or self.words[at] in ("->", "::", "*", "&", ">", "<")
            ):
                at -= 1
            if at < 0 or self.words[at] != ")":
                continue
            at = self.open[at] - 1
            if self.words[at] == "]":
                found[opened] = "lambda"
            elif self.kinds[at] == "word" and self.words[at] not in _CONTROL:
                found[opened] = self.words[at]
            elif "operator" in self.words[max(at - 2, 0) : at + 1]:
                found[opened] = "operator"
        return found

    def returns_bool(self, i: int) -> bool:
        """Whether the return statement at i is one of a function whose result is a bool."""
        opened = max(o for o in self._functions if o < i < self.close[o])
        ends = (j for j in range(opened - 1, -1, -1) if self.words[j] in (";", "}", "{"))
        signature = next(ends, 0)
        words = self.words[signature : self.words.index("(", signature)]
        return any(w == "bool" and words[i - 1] not in ("<", ",") for i, w in enumerate(words))

    @cached_property
    def statements(self) -> list[tuple[int, int]]:
        """The first token and the semicolon of each statement in a function that has no block."""
        found, headers = [], set()
        for i in self.find("for"):
            headers.update(range(i, self.close[i + 1]))
        for i in self.find(";"):
            if i in headers:
                continue
            at = i - 1
            while self.words[at] not in (";", "{", "(") and not self._ends_block(at):
                at = self.open.get(at, at) - 1
            if at < i - 1 and self.words[at] != "(":
                found.append((at + 1, i))
        return found

    def _ends_block(self, i: int) -> bool:
        """Whether a statement can begin after this bracket: it ends no list of values."""
        if self.words[i] != "}":
            return False
        before = self.open[i] - 1
        is_value = self.kinds[before] == "word" and self.words[before] not in (
            "else",
            "do",
            "const",
        )
        return not (is_value or self.words[before] in ("=", ",", "(", ">", "{"))
