"""The features of the language and its library that a Metal text uses, found from its tokens."""

import re

from metalsim.compiler import find_compiler, preprocess
from msl.comments import without_comments
from msl.declarations import ADDRESS_SPACES, read_attributes
from msl.tokens import Tokens

TYPES = set("auto bool char double float int long short signed unsigned void".split())
_OTHER_KEYWORDS = """
    alignas alignof asm break case catch class concept const const_cast consteval constexpr
    constinit continue decltype default delete do dynamic_cast else enum explicit extern false final
    for fragment friend goto if inline kernel mutable namespace new noexcept nullptr operator
    override private protected public register reinterpret_cast requires return sizeof static
    static_assert static_cast struct switch template this thread_local throw true try typedef typeid
    typename union using vertex virtual volatile while"""
KEYWORDS = TYPES.union(ADDRESS_SPACES, _OTHER_KEYWORDS.split())
_SCALARS = "bool|u?char|u?short|u?int|u?long|half|float|bfloat"
_TYPE = re.compile(
    rf"(?:packed_)?(?:{_SCALARS})[234]?(?:x[234])?|\w+_t|simdgroup_\w+8x8|atomic_\w+"
)

# Features without a keyword, name or attribute. In the text, a space separates any two tokens.
_CONSTRUCTS = {
    "bit-field": r"[;{}] (?:\w+ )+: \d+ ;",
    "designated initializer": r"[{,] \. \w+ =",
    "fold": r"(?:[-+*/|&]|\|\||&&) \. \. \. \)|\( \. \. \. [-+*/|&,]",
    "instantiation": r"\btemplate (?!<)",
    "lambda": r"[=(,{] \[ [=&]? ?(?:\w+ )?\] [({]",
    "loop over a range": r"\bfor \( [^;()]* : ",
    "method of an address space": r"\) (?:const )?(?:device|threadgroup|thread|constant) [{:;]",
    "pointer to a function": r"\( \* \w+ \) \(",
    "reference to an array": r"\( & \w+ \) \[",
    "specialization": r"\btemplate < >",
    "structured binding": r"\bauto (?:& )*\[",
    "threadgroup variable": r"[;{}] threadgroup [^;*&()=]*;",
    "variadic template": r"\b(?:typename|class|int) \. \. \.",
}


class Source:
    """A preprocessed text, and the names that it declares itself.

    Args:
        text: The text, which is preprocessed as for Metal 3.1.
        name: The text's name, for errors.
        include: Folders for its includes.
    """

    def __init__(self, text, name, include=()):
        self.tokens = Tokens(preprocess(text, name, find_compiler(), include), name)
        self.at = self.tokens.significant(0, len(self.tokens))
        self.words = [*(self.tokens[i] for i in self.at), "", "", ""]
        self._place = {i: n for n, i in enumerate(self.at)}
        self._types, self._functions, self._variables = set(), set(), set()
        self._find_types()
        self._find_others()

    def features(self):
        """The features that it uses: a set of texts, each with a kind and a name."""
        return {
            *self._names(),
            *self._words(),
            *self._attributes(),
            *_constructs(self.words),
        }

    def _is_name(self, n):
        return re.match(r"[A-Za-z_]", self.words[n]) and self.words[n] not in KEYWORDS

    def _close(self, n):
        """The index of the bracket that closes the one at n; None for a `<` that compares."""
        if self.words[n] != "<":
            return self._place[self.tokens.close(self.at[n])]
        end = self.tokens.angle_close(self.at[n])
        if end is None or {"&&", "||", "?"} & set(self.words[n : self._place[end]]):
            return None
        return self._place[end]

    def _opens(self, n):
        """Whether the token at n is a bracket that is closed later."""
        angle = self.words[n] == "<" and self._is_name(n - 1) and self._close(n) is not None
        return angle or self.words[n] in ("(", "[", "{")

    def _find_types(self):
        for n, word in enumerate(self.words):
            if word == "typedef":
                self._types.add(self.words[self.words.index(";", n) - 1])
            if word not in ("struct", "class", "union", "enum", "namespace", "using", "typename"):
                continue
            enumerates = word == "enum"
            n += 1
            while self.words[n] in ("class", "struct", "."):
                n += 1
            after = (",", ">", "=") if word == "typename" else ("{", ";", ":", "<", "=", ",", ">")
            if self._is_name(n) and self.words[n + 1] in after:
                self._types.add(self.words[n])
            if enumerates:
                opening = self.words.index("{", n)
                for k in range(opening, self._close(opening)):
                    if self.words[k] in ("{", ",") and self._is_name(k + 1):
                        self._variables.add(self.words[k + 1])

    def _find_others(self):
        """Finds functions and variables: names after a type. Overloads of Metal's stay Metal's."""
        metal = set()
        for n in range(len(self.at) - 2):
            if self.words[n : n + 3] == ["namespace", "metal", "{"]:
                metal.update(range(n, self._close(n + 2)))
        closers = {self._close(n) for n, word in enumerate(self.words) if word == "<"}
        for n in range(1, len(self.words) - 3):
            if self._is_name(n) and self._is_type(n - 1, closers):
                if self.words[n + 1] != "(":
                    self._variables.add(self.words[n])
                elif n not in metal:
                    self._functions.add(self.words[n])
                self._find_more(n + 1)

    def _is_type(self, n, closers):
        """Whether a type ends at n."""
        word = self.words[n]
        if word in ("*", "&", "const") or word in ADDRESS_SPACES:
            return n > 0 and self._is_type(n - 1, closers)
        if word == ">":
            return n in closers
        return word in TYPES or word in self._types or _TYPE.fullmatch(word)

    def _find_more(self, n):
        """Finds the declarators after the first one."""
        while self.words[n] not in (";", ")", "}", ">", ":", ""):
            if self._opens(n):
                n = self._close(n)
            elif self.words[n] == "," and self._is_name(n + 1):
                if self.words[n + 2] in ("=", ";", ",", "["):
                    self._variables.add(self.words[n + 1])
            n += 1

    def _names(self):
        """Metal's names, and swizzles. A variable hides no function, since it is not called."""
        called = self._types | self._functions
        named = called | self._variables
        n = 0
        while n < len(self.at):
            start, n = n, n + 1
            if self.tokens.is_attribute(self.at[start]):
                n = self._close(start) + 1
            before = self.words[start - 1]
            if before == "." and re.fullmatch("[xyzw]{2,4}|[rgba]{2,4}", self.words[start]):
                yield f"swizzle {self.words[start]}"
            if not self._is_name(start) or before in (".", "->", "namespace"):
                continue
            chain = [self.words[start]]
            while self.words[n] == "::":
                chain.append(self.words[n + 1])
                n += 2
            qualified = chain[0] == "metal"
            name = "::".join(chain[qualified:])
            opening = n
            if self.words[n] == "<" and self._close(n):
                opening = self._close(n) + 1
            if self.words[opening] != "(":
                if qualified or chain[0] not in named:
                    yield f"name {name}"
            elif (qualified or chain[0] not in called) and not self._is_declared(start):
                yield f"call {name} of {self._count(opening)}"

    def _is_declared(self, n):
        """Whether the name at n, before a bracket, comes after a type."""
        word = self.words[n - 1] if n else ""
        return word in TYPES or word in self._types or _TYPE.fullmatch(word)

    def _count(self, opening):
        """The number of arguments in brackets."""
        end, n = self._close(opening), opening + 1
        count = int(n < end)
        while n < end:
            if self._opens(n):
                n = self._close(n)
            count += self.words[n] == ","
            n += 1
        return count

    def _words(self):
        """Keywords, adjacent keywords, operators and forms of numbers."""
        for n, i in enumerate(self.at):
            word, kind = self.words[n], self.tokens.kind(i)
            if word in KEYWORDS:
                yield f"keyword {word}"
                if self.words[n + 1] in KEYWORDS - TYPES:
                    yield f"keywords {word} {self.words[n + 1]}"
            elif kind == "number":
                yield "number " + re.sub(
                    r"(?<=0[xX])[0-9a-fA-F]+|\d+", "0", word.replace("e-", "e")
                )
            elif kind == "sign":
                yield f"sign {word}"

    def _attributes(self):
        for i in self.at:
            if self.tokens.is_attribute(i):
                yield from (f"attribute {name}" for name in read_attributes(self.tokens, i))


def _constructs(words):
    text = " ".join(words)
    return {f"construct {name}" for name, what in _CONSTRUCTS.items() if re.search(what, text)}


def directives(text):
    """The preprocessor directives that a text uses before preprocessing."""
    text = without_comments(text).replace("\\\n", " ")
    found = {f"pragma {what}" for what in re.findall(r'_Pragma\(\s*"([^"]*)"\s*\)', text)}
    for directive, rest in re.findall(r"^[ \t]*#[ \t]*(\w+)([^\n]*)", text, re.MULTILINE):
        found.add(f"directive {directive.replace('ifndef', 'ifdef')}")
        if directive == "include":
            found.add(f"include {rest.strip()}")
        elif directive == "pragma":
            found.add(f"pragma {rest.strip()}")
        elif directive in ("if", "ifdef", "ifndef", "elif"):
            found |= {f"macro {name}" for name in re.findall(r"[A-Za-z_]\w*", rest)}
        elif directive == "define":
            found |= {f"directive {sign}" for sign in re.findall(r"##?|__VA_\w+", rest)}
            rest = re.sub(r'"[^"]*"', "", rest)
            found |= _constructs(re.findall(r"\w+|[^\w\s]", rest))
            for attribute in re.findall(r"\[\[([^()]*?)(?:\(.*?\))?\]\]", rest):
                found.add(f"attribute {attribute}")
    return found
