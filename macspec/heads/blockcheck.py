"""Whether a block drafter's files are read rightly: measured on the user's own prompt.

As with other heads, what the files leave open changes no text, only how much is accepted.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from ..cache import ModelCache
from ..tap import FINAL, HiddenRows
from .agreement import LOW, ROWS, SOUND
from .block import Block
from .head import Variant

ANCHORS = 24
"""Blocks that are compared."""

SURE = 0.6
"""A head that agrees this often is not tried in other ways."""

CLEARLY = 0.2
"""How much more often another reading must agree to be taken: a wrong one still agrees sometimes.
"""


class Comparison:
    """A head's first guesses behind tokens of a text, beside what the target would choose there."""

    def __init__(self, head: Block, hidden: HiddenRows, tokens: Sequence[int]) -> None:
        self._head, self._tap = head, hidden.tap
        self._output = head.output(self._tap)
        stop = min(hidden.stop, len(tokens))
        start = max(hidden.start, stop - ROWS)
        self._rows = hidden.rows(start, stop)
        last = stop - start - 1
        # From the last, so that the cache only goes back.
        self.places = sorted({last - at * last // ANCHORS for at in range(ANCHORS)}, reverse=True)
        self._anchors = [tokens[start + place] for place in self.places]
        final = self._rows[head.wanted.index(FINAL)][mx.array(self.places)]
        self._best = mx.argmax(self._tap.logits(final), axis=-1)

    @property
    def count(self) -> int:
        """Blocks that are compared."""
        return len(self.places)

    def share(self) -> float:
        """Share of guesses that are the target's."""
        return float(mx.mean((self.guesses() == self._best).astype(mx.float32)))

    def guesses(self) -> mx.array:
        """The first guess behind each of ``places``."""
        cache = ModelCache(self._head)
        cache.mark()
        self._head.read(self._head.enter(self._rows)[None], cache.layers)
        cache.advance(self._rows[0].shape[0])
        guesses = []
        for place, anchor in zip(self.places, self._anchors, strict=True):
            cache.rollback(place)
            guesses.append(self._guess(anchor, cache))
        return mx.concatenate(guesses)

    def _guess(self, anchor: int, cache: ModelCache) -> mx.array:
        head = self._head
        block = head.tokens(anchor, 1)
        cache.mark()
        embedded = head.embedded(block, self._tap.embedding)
        rows = head(None, embedded[None], cache.layers, 1)[0]
        cache.advance(block.shape[0])
        parts = head.prepared(rows, head.logits(rows, self._output))
        return mx.argmax(head.guess(block[:1], parts), axis=-1)


def settle(head: Block, hidden: HiddenRows, tokens: Sequence[int]) -> str | None:
    """Read a head's files in the way that agrees most.

    Returns:
        What is wrong with them, or was put right, continuing "the head"; None if nothing is.
    """
    comparison = Comparison(head, hidden, tokens)
    own = comparison.share()
    if own >= SURE:
        return None
    found: list[tuple[float, Variant]] = []
    for variant in list(head.variants()):
        before = {name: getattr(head, name) for name in variant}
        head.choose(variant)
        found.append((comparison.share(), variant))
        head.choose(before)
    best, variant = max(found, key=lambda it: it[0])
    if best >= max(SOUND, own + CLEARLY):
        head.choose(variant)
        (name,) = variant
        return f"is read in another way than its files say: {READINGS[name]}"
    if own >= LOW:
        return None
    return (
        f"drafts badly: it agrees with the target on {own:.0%} of the prompt's tokens; it is for "
        "another target, or damaged"
    )


READINGS = {
    "first": "its first guess stands in another row of the block",
    "traditional": "positions turn neighbours, not halves, or the other way round",
    "rotated": "another share of each attention head is turned",
    "shift": "the weights of its norms are stored minus one, or are not",
    "scale": "the target's embeddings are scaled, or are not",
}
"""What a reading changes."""
