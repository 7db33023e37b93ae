"""What Apple's compiler refuses and clang accepts, found in a kernel's own text.

The rules are those of the Metal Shading Language Specification, section 1.5 (restrictions) and
chapter 4 (address spaces). Recursion is found in the check pass, see build.py.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise

from .text import Text

TOKEN = re.compile(
    r"(?P<blank>\s+|//[^\n]*|/\*.*?\*/|#(?:[^\n\\]|\\.)*)"
    r'|(?P<word>[A-Za-z_]\w*)|(?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)|(?P<string>"[^"]*")'
    r"|(?P<sign>\[\[|\]\]|::|->|&&|\|\||[-+*/%&|^=!<>]=|\S)",
    re.S,
)
REFUSED = {
    "goto": "goto",
    "double": "double",
    "try": "exceptions",
    "catch": "exceptions",
    "throw": "exceptions",
    "new": "new",
    "delete": "delete",
    "virtual": "virtual functions",
    "dynamic_cast": "dynamic_cast",
    "typeid": "typeid",
    "thread_local": "thread_local",
    "register": "register",
    "asm": "assembly",
    "std": "the C++ standard library",
}
SCALARS = (
    r"bool|u?char|u?short|u?int|u?long|u?int(8|16|32|64)_t|size_t|ptrdiff_t|float|half|bfloat|"
    r"float16_t|bfloat16_t|void|auto"
)
TYPE = re.compile(rf"({SCALARS})[234]?")
LEADS = {"const", "volatile", "inline", "static", "constexpr", "METAL_FUNC"}
NO_VARIABLE = {"using", "typedef", "static_assert", "friend", "extern"}


class Scope(Enum):
    """What a brace encloses."""

    FILE = auto()
    STRUCT = auto()
    ENUM = auto()
    FUNCTION = auto()
    KERNEL = auto()
    VALUE = auto()


BODIES = (Scope.FUNCTION, Scope.KERNEL)


@dataclass(frozen=True)
class Token:
    """One word or sign, and where it begins."""

    text: str
    line: int
    column: int


def tokens(source: str) -> Iterator[Token]:
    """Without blanks, comments and lines of the preprocessor."""
    line, start = 1, 0
    for found in TOKEN.finditer(source):
        if found.lastgroup != "blank":
            yield Token(found[0], line, found.start() - start + 1)
        if breaks := found[0].count("\n"):
            line += breaks
            start = found.start() + found[0].rindex("\n") + 1


@functools.lru_cache(maxsize=512)
def lint(text: Text) -> tuple[str, ...]:
    """One line a finding."""
    all_tokens = list(tokens(text.source))
    found = [*_words(all_tokens), *_pointers(all_tokens), *_statements(all_tokens)]
    found.sort(key=lambda finding: (finding[0].line, finding[0].column))
    return tuple(f"{text.place(token.line, token.column)}: {what}" for token, what in found)


def _words(all_tokens: list[Token]) -> Iterator[tuple[Token, str]]:
    before = Token(";", 0, 0)
    for token in all_tokens:
        if token.text in REFUSED:
            yield token, f"Metal has no {REFUSED[token.text]}"
        elif token.text == "[" and not re.fullmatch(r"(?!return$)\w+|\]|\)|\]\]", before.text):
            yield token, "Metal before 3.2 has no lambdas"
        before = token


def _pointers(all_tokens: list[Token]) -> Iterator[tuple[Token, str]]:
    """A pointer or reference whose type is not preceded by an address space."""
    declared = _declared_types(all_tokens)
    for index, token in enumerate(all_tokens[:-2]):
        if token.text not in declared and not TYPE.fullmatch(token.text):
            continue
        after = index + 1
        if all_tokens[after].text == "const":
            after += 1
        if all_tokens[after].text not in ("*", "&", "&&"):
            continue
        if not re.fullmatch(r"[A-Za-z_]\w*|[,)>*]", all_tokens[after + 1].text):
            continue
        lead = index - 1
        while lead >= 0 and all_tokens[lead].text in LEADS:
            lead -= 1
        before = all_tokens[lead].text if lead >= 0 else ";"
        if before in ("(", ",", ";", "{", "}", "<", ">") and not (
            before == "(" and all_tokens[lead - 1].text in ("sizeof", "if", "while", "return")
        ):
            yield token, f"{token.text}{all_tokens[after].text} names no address space"


def _declared_types(all_tokens: list[Token]) -> set[str]:
    """Template parameters, structs and aliases of the text."""
    names = {
        name.text
        for word, name in pairwise(all_tokens)
        if word.text in ("typename", "class", "struct", "using")
    }
    return names - {"namespace", "metal"}


def _statements(all_tokens: list[Token]) -> Iterator[tuple[Token, str]]:
    """Variables that stand where Metal wants them in another address space."""
    scopes, statement = [Scope.FILE], list[Token]()
    for token in all_tokens:
        if token.text == "{":
            kind = _scope(scopes[-1], _outermost(statement))
            scopes.append(kind)
            if kind in (Scope.VALUE, Scope.ENUM):
                statement.append(token)
            else:
                statement = []
        elif token.text == "}":
            if scopes.pop() in (Scope.VALUE, Scope.ENUM):
                statement.append(token)
            else:
                statement = []
        elif token.text == ";" and scopes[-1] not in (Scope.VALUE, Scope.ENUM):
            if wrong := _variable(scopes[-1], _outermost(statement)):
                yield statement[0], wrong
            statement = []
        else:
            statement.append(token)


def _outermost(statement: list[Token]) -> list[str]:
    """The words of a statement but for its template's head and what stands in parentheses."""
    words = [part.text for part in statement]
    while words[:2] == ["template", "<"]:
        depth = at = 0
        for at, word in enumerate(words):
            depth += (word == "<") - (word == ">")
            if at and not depth and word == ">":
                break
        words = words[at + 1 :]
    kept, depth = [], 0
    for word in words:
        depth -= word == ")"
        if depth <= 0:
            kept.append(word)
        depth += word == "("
    return kept


def _scope(outer: Scope, words: list[str]) -> Scope:
    """What a brace opens after those words."""
    if "namespace" in words:
        return Scope.FILE
    if "enum" in words:
        return Scope.ENUM
    if "=" in words and "operator" not in words:
        return Scope.VALUE
    if outer in (Scope.FILE, Scope.STRUCT) and "(" in words:
        return Scope.KERNEL if "kernel" in words else Scope.FUNCTION
    if {"struct", "class", "union"} & set(words):
        return Scope.STRUCT
    if outer in BODIES and words and words[-1] not in (")", "else", "do", ":"):
        return Scope.VALUE
    return Scope.FUNCTION if outer == Scope.FILE else outer


def _variable(scope: Scope, words: list[str]) -> str:
    """What is wrong with a statement that ends in a semicolon."""
    value = words.index("=") if "=" in words else len(words)
    declares = not {"(", "[[", *NO_VARIABLE} & set(words[:value])
    if scope in BODIES:
        own = set() if {"*", "&", "("} & set(words[:value]) else set(words[:value])
        if "static" in words:
            return "Metal has no static variables in functions"
        if "constant" in own:
            return "a variable in constant memory stands outside of functions"
        if "threadgroup" in own and scope != Scope.KERNEL:
            return "a variable in threadgroup memory stands in the kernel itself"
    elif not words or not declares or "constant" in words:
        return ""
    elif scope == Scope.FILE and not {"struct", "class", "enum", "union"} & set(words):
        return "a variable outside of functions must be in constant memory"
    elif scope == Scope.STRUCT and "static" in words:
        return "a static member must be in constant memory"
    return ""
