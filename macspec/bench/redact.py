"""Masking what is private in a text, for a report that its user asked to have texts in."""

from __future__ import annotations

import re
from collections.abc import Callable

KEY, LINK, MAIL, PATH, NUMBER = "[key]", "[link]", "[mail]", "[path]", "[number]"

_RUN = r"[^\s\"'`<>|]"
"""What links and paths are made of."""

_WORD = r"[\w.~+-]"
"""What the names in a path are made of."""

_SECRET = (
    r"pass(?:word|wd|phrase|code)|passwort|kennwort|mot de passe|contraseña|secret|token|credential"
    r"|api[ _-]?key|access[ _-]?key|private[ _-]?key|authorization|\bpin|\btan"
)

_Mask = str | Callable[[re.Match[str]], str]


def _relative(match: re.Match[str]) -> str:
    """Words with slashes: a path if there are two, or if the last one has an ending."""
    whole = match[0]
    slashes = whole.count("/") + whole.count("\\")
    return PATH if slashes > 1 or re.search(r"\.[A-Za-z]\w*$", whole) else whole


# Every pattern begins where a word does, or takes what it has seen: so that no text is slow.
_RULES: tuple[tuple[re.Pattern[str], _Mask], ...] = (
    # A block of a key file, also one that was cut off.
    (re.compile(r"-----BEGIN .*?(?:-----END[^\n]*|\Z)", re.DOTALL), KEY),
    # What is named a secret: what is in quotes, or the rest of the word.
    (
        re.compile(
            rf"(?i)((?:{_SECRET})s?[\"'`]?\s*+(?:[:=]+|\b(?:is|ist|est|es)\b)\s*+"
            r"(?:(?:bearer|basic)\s++)?)"
            r"(?:\"[^\"\n]*+\"|'[^'\n]*+'|`[^`\n]*+`|(?!\[(?:key|link|mail|path|number)\])\S++)"
        ),
        rf"\1{KEY}",
    ),
    (re.compile(r"(?i)\b(bearer\s++)[\w+/=.-]{8,}"), rf"\1{KEY}"),
    # Beginnings that services give to their keys.
    (re.compile(rf"\b(?:sk|pk|rk|gh[opsu]|github_pat|glpat|hf|xox[a-z])[-_]{_RUN}{{6,}}"), KEY),
    (re.compile(r"\b(?:AKIA|ASIA|AIza|eyJ)[\w.=-]{6,}"), KEY),
    (re.compile(rf"(?i)\b(?:[a-z][a-z0-9+.-]{{0,20}}://|www\.|mailto:|data:)(?=\S){_RUN}*+"), LINK),
    (
        re.compile(r"(?<![^\s\"'`<>()\[\]{},;:|])@*+[^\s\"'`<>()\[\]{},;:|@]++@[^\s<>()\[\]{}]++"),
        MAIL,
    ),
    # A path in quotes may hold spaces.
    (re.compile(r"(?<=[\"'`])(?:[A-Za-z]:)?(?:~|\.{0,2})[\\/][^\"'`\n]*+(?=[\"'`])"), PATH),
    (re.compile(rf"(?<![\w<~./])(?:~[\w.-]*+|\.{{0,2}})/(?=[\w~.]){_RUN}*+"), PATH),
    (re.compile(rf"(?:\b[A-Za-z]:\\|\\\\[\w$]){_RUN}*+"), PATH),
    (re.compile(rf"(?<!{_WORD})(?<!\]){_WORD}++(?:[\\/]{_WORD}++)++[\\/]?"), _relative),
    # Long words with digits, and very long ones without, are more often keys than words.
    (
        re.compile(r"(?<![\w+/=.-])(?=[+/=.-]*+[^\W\d]*+[\w+/=.-]*\d)[\w+/=.-]{16,}+"),
        lambda match: KEY if re.search("[A-Za-z]", match[0]) else NUMBER,
    ),
    (re.compile(r"(?<![A-Za-z+/=_-])[A-Za-z+/=_-]{40,}+"), KEY),
    # Phone numbers, accounts, dates and sums, with whatever separates their digits.
    (
        re.compile(
            r"(?<![\w+(])[+(]{0,3}[^\W\d_]*+\d(?:[\w.,:()/+-]|[ \u00a0\u202f](?=[(\d+/-]))*+"
        ),
        NUMBER,
    ),
    (re.compile(r"(?<!\w)\w*\d\w*"), NUMBER),
    (re.compile(r"\d+"), NUMBER),
)


def redacted(text: str) -> str:
    """The text without mail addresses, links, paths, keys and numbers; a mask replaces each.

    It rather masks too much than too little: no digit is left, and nothing with an @ in a word.
    Names of people and places stay: no pattern knows them.
    """
    for pattern, mask in _RULES:
        text = pattern.sub(mask, text)
    return text
