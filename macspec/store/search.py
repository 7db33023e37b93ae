"""Finding conversations by their words."""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from collections.abc import Iterator, Sequence

from .records import Hit, get_chat, listed_chats
from .valid import restored

WORDS = 32
"""Words of a query that are used."""

AROUND = 80
"""Characters of an excerpt before the first match; twice as many follow."""

FOUND = """
SELECT messages.id, chat, role, text FROM messages
WHERE chat IN (SELECT id FROM chats WHERE deleted IS NULL)
"""

INDEXED = f"""
SELECT at, chat, role, text FROM
    (SELECT rowid AS at, rank AS worth FROM words WHERE words MATCH ?)
    JOIN ({FOUND}) ON id = at
ORDER BY worth
"""


class Folding(dict[int, int]):
    """Maps each character to one: lower case, without diacritics."""

    def __missing__(self, code: int) -> int:
        self[code] = ord(unicodedata.normalize("NFD", chr(code))[0].lower()[0])
        return self[code]


FOLDING = Folding()


def search(connection: sqlite3.Connection, query: str, limit: int) -> list[Hit]:
    """One hit per conversation: first those found by title, then by a message, best first.

    If neither titles nor index have the words, texts are searched for the query as typed, which
    finds scripts without spaces, parts of words, and symbols.
    """
    query = query.encode("utf-8", "replace").decode().replace("\0", " ").strip()
    terms = _terms(query)
    if not terms:
        return []
    hits = _first(_in_words(connection, terms), limit)
    return hits or _first(_scanned(connection, query.strip('"')), limit)


def _first(found: Iterator[Hit], limit: int) -> list[Hit]:
    hits: dict[int, Hit] = {}
    for hit in found:
        hits.setdefault(hit.chat.id, hit)
        if len(hits) == limit:
            break
    return list(hits.values())


def _terms(query: str) -> list[tuple[str, bool]]:
    """The words and quoted phrases of a query, each with whether it is quoted."""
    found = re.findall(r'"([^"]*)"|([^\s"]+)', query)
    return [(quoted or word, bool(quoted)) for quoted, word in found if quoted or word][:WORDS]


def _in_words(connection: sqlite3.Connection, terms: Sequence[tuple[str, bool]]) -> Iterator[Hit]:
    patterns = [_pattern(term, quoted) for term, quoted in terms]
    for chat in listed_chats(connection):
        folded = chat.title.translate(FOLDING)
        if all(pattern.search(folded) for pattern in patterns):
            yield Hit(chat, None, "", excerpt(chat.title, patterns))
    asked = " ".join(f'"{term}"' if quoted else f'"{term}"*' for term, quoted in terms)
    for id, chat_id, role, text in connection.execute(INDEXED, (asked,)):
        pieces = excerpt(restored(text), patterns)
        yield Hit(get_chat(connection, chat_id), id, role, pieces)


def _scanned(connection: sqlite3.Connection, query: str) -> Iterator[Hit]:
    pattern = re.compile(re.escape(query.translate(FOLDING)))
    for id, chat, role, text in connection.execute(f"{FOUND} ORDER BY messages.id DESC"):
        text = restored(text)
        if pattern.search(text.translate(FOLDING)):
            yield Hit(get_chat(connection, chat), id, role, excerpt(text, [pattern]))


def _pattern(term: str, quoted: bool) -> re.Pattern[str]:
    """Matches a term in a folded text, much as the index does."""
    folded = term.translate(FOLDING)
    words = re.findall(r"\w+", folded)
    phrase = r"\W+".join(map(re.escape, words)) if words else re.escape(folded)
    return re.compile(rf"(?<!\w){phrase}" + (r"(?!\w)" if quoted else ""))


def excerpt(text: str, patterns: Sequence[re.Pattern[str]]) -> list[tuple[str, bool]]:
    """The text around the first match, in pieces, each with whether it matches."""
    folded = text.translate(FOLDING)
    first = [match.start() for match in (each.search(folded) for each in patterns) if match]
    begin = max(min(first, default=0) - AROUND, 0)
    end = min(first, default=0) + 2 * AROUND
    spans = sorted(
        match.span() for pattern in patterns for match in pattern.finditer(folded, begin, end)
    )
    pieces = [("…", False)] if begin else []
    at = begin
    for start, stop in spans:
        if start >= at and stop > start:
            pieces += [(text[at:start], False), (text[start:stop], True)]
            at = stop
    pieces += [(text[at:end], False), ("…" if end < len(text) else "", False)]
    return [(piece, match) for piece, match in pieces if piece]
