"""Suffix lookup: what followed most often where the last tokens stood before.

SuffixDecoding (Oliaro et al. 2024, arXiv:2411.04975).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from .corpus import Corpus
from .lookup import ROOM, Continuation, Lookup
from .places import ANCHOR, Places
from .replies import END, Replies

NODES = 2
"""Match lengths that are tried in each text: the longest one, and the next shorter one."""

NEAR = range(-8, 65)
"""How far from the anchor the original of a copy may go on."""


AGREED = 4
"""Steps of a vote after which the rest is compared as a whole."""


class Suffix(Lookup):
    """Copies the likeliest continuation of a match of any length.

    Matches of up to ``LONGEST`` tokens are looked for in this conversation and in past replies.
    For the longest one, and for the next shorter one with more places, the continuation follows
    the majority token by token; the one with the best score wins, of equals the longest match. The
    score is the expected number of accepted tokens, counted over as many tokens as the match is
    long (as in the paper: a short match says little about what comes far behind it).

    Where a copy with changes is going on (the last long match ended a few tokens ago), a match of
    fewer than ``ANCHOR`` tokens counts near that place only, and without any match the copy goes
    on there, as if one token had matched.

    A search looks at no more than ``MOST`` places for each of ``NODES`` match lengths and, in past
    replies, does a few binary searches. With a million tokens of them it takes about 45
    microseconds on a server's core, whatever the conversation's length, and reading a token 4;
    ``Places`` and ``Replies`` say what memory a token takes.

    Args:
        corpus: past replies; None: this conversation alone.
    """

    name = "suffix"

    def __init__(self, corpus: Corpus | None = None) -> None:
        super().__init__()
        self.corpus = corpus
        self._places = Places()

    def _read(self, tokens: Sequence[int]) -> None:
        self._places.extend(tokens)

    def _forget(self, length: int) -> None:
        kept = self._places.tokens[:length]
        if 2 * length < len(self._places.tokens):  # Then it is cheaper to begin anew.
            self._places = Places(kept)
        else:
            self._places.cut(length)

    def _search(self) -> Continuation:
        here, anchor = self._places, self._places.anchor()
        best = _best(Continuation(), here, _near(here.nodes(), anchor))
        if anchor is not None and not best.tokens:
            best = Continuation(here.row(anchor, ROOM), (1.0,) * ROOM, 1)
        if self.corpus is not None and best.score < ROOM:
            replies = self.corpus.replies
            best = _best(best, replies, replies.nodes(here.tokens))
        return best


def _near(
    nodes: Iterable[tuple[int, list[int]]], anchor: int | None
) -> Iterable[tuple[int, list[int]]]:
    """The same, but of a short match only the place closest to the anchor if one is near."""
    for match, places in nodes:
        if anchor is not None and match < ANCHOR:
            near = [place for place in places if place - anchor in NEAR]
            if near:
                places = [min(near, key=lambda place: abs(place - anchor))]
        yield match, places


def _best(
    best: Continuation, text: Places | Replies, nodes: Iterable[tuple[int, list[int]]]
) -> Continuation:
    """The best continuation so far, or one of these if it is better."""
    for match, places in islice(nodes, NODES):
        if match <= best.score:  # No score is above the length of its match.
            break
        found = Continuation(*_vote(text, places), match)
        if found.tokens and (found.score, match) > (best.score, best.match):
            best = found
    return best


def _vote(
    text: Places | Replies, places: Sequence[int]
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The way that most places go on at each step; of equals the one that comes first.

    Returns:
        The tokens, and the share of the places that go this way up to each of them. That is the
        product of count(child) / count(node) along the path.
    """
    tokens: list[int] = []
    shares: list[float] = []
    alive = places
    while (step := len(tokens)) < ROOM:
        # Those that have agreed so far often agree on all that follows.
        if len(alive) == 1 or step == AGREED:
            rows = {text.row(place, ROOM) for place in alive}
            if len(rows) == 1:
                rest = rows.pop()[step:]
                tokens += rest
                shares += [len(alive) / len(places)] * len(rest)
                break
        column = text.column(alive, step)
        child = column[0]
        if column.count(child) < len(column) or child == END:
            children = [token for token in column if token != END]
            if not children:
                break
            child = max(dict.fromkeys(children), key=children.count)
            alive = [place for place, token in zip(alive, column, strict=True) if token == child]
        tokens.append(child)
        shares.append(len(alive) / len(places))
    return tuple(tokens), tuple(shares)
