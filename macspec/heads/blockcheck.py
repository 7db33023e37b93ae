"""Whether a block drafter's files are read rightly: measured on the user's own prompt.

As with other heads, what the files leave open changes no text, only how much is accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx

from ..cache import ModelCache
from ..tap import FINAL, HiddenRows
from .agreement import LOW, ROWS
from .block import Block
from .head import Variant

LEAST = ROWS
"""Rows of text at which a head's files are judged: fewer do not tell its readings apart."""

ANCHORS = 48
"""Blocks that are compared."""

FIRST = 16
"""Of them those that every other reading is tried on."""

SURE = 0.75
"""A head that agrees this often is not tried in other ways."""

CLEARLY = 0.03
"""How much likelier another reading's guesses must be accepted to be taken."""

ERRORS = 3.0
"""And how many standard errors of that."""

FEW = 6
"""Second guesses below which their share says nothing."""


class Comparison:
    """A head's first two guesses behind tokens of a text, beside what the target would choose."""

    def __init__(self, head: Block, hidden: HiddenRows, tokens: Sequence[int]) -> None:
        self._head, self._tap = head, hidden.tap
        self._output = head.output(self._tap)
        stop = min(hidden.stop, len(tokens))
        start = max(hidden.start, stop - ROWS)
        self._rows = hidden.rows(start, stop)
        last = stop - start - 1
        # From the last, so that the cache only goes back.
        self.places = sorted({last - at * last // ANCHORS for at in range(ANCHORS)}, reverse=True)
        self._text = [*tokens[start:stop], tokens[start + last]]
        final = self._rows[head.wanted.index(FINAL)]
        behind = mx.array([self.places, [min(place + 1, last) for place in self.places]])
        self._said = self._tap.logits(final[behind.reshape(-1)]).reshape(2, self.count, -1)
        self._best = mx.argmax(self._said, axis=-1)
        texts = mx.array([self._text[place + 1] for place in self.places])
        self._goes_on = (self._best[0] == texts) & (behind[0] < last)
        """Where the text goes on as the target would, so that it says what the second guesses
        should be."""

    @property
    def count(self) -> int:
        """Blocks that are compared."""
        return len(self.places)

    def share(self) -> float:
        """Share of first guesses that are the target's."""
        return self.shares()[0]

    def shares(self) -> tuple[float, float]:
        """The same, and that of second guesses; 1 where too few of those can be compared."""
        right = (self.guesses() == self._best).astype(mx.float32)
        count = int(mx.sum(self._goes_on))
        second = float(mx.sum(right[1] * self._goes_on)) / count if count >= FEW else 1.0
        return float(mx.mean(right[0])), second if self._head.size > 1 else 1.0

    def guesses(self) -> mx.array:
        """The first guess behind each of ``places``, and the second after the text's next token,
        [2, places]."""
        return mx.stack([mx.argmax(it, axis=-1) for _, it in self._blocks(1)], axis=1)

    def chances(self, step: int) -> mx.array:
        """How likely the target accepts what is guessed in every ``step``-th block: how far its
        distribution and the head's overlap, on average over both guesses where both count."""
        found = []
        for at, guessed in self._blocks(step):
            p, q = (mx.softmax(it.astype(mx.float32), -1) for it in (self._said[:, at], guessed))
            first, second = mx.sum(mx.minimum(p, q), axis=-1)
            both = self._goes_on[at] if self._head.size > 1 else mx.array(False)
            found.append(mx.where(both, (first + second) / 2, first))
        return mx.stack(found)

    def _blocks(self, step: int) -> Iterator[tuple[int, mx.array]]:
        """The number of every ``step``-th block, and logits of its two guesses, [2, V]."""
        cache = ModelCache(self._head)
        cache.mark()
        self._head.read(self._head.enter(self._rows)[None], cache.layers)
        cache.advance(self._rows[0].shape[0])
        for at in range(0, self.count, step):
            place = self.places[at]
            cache.rollback(place)
            yield at, self._guess(self._text[place : place + 2], cache)

    def _guess(self, text: Sequence[int], cache: ModelCache) -> mx.array:
        """Logits of two guesses, [2, V], behind the first of two tokens."""
        head, count = self._head, min(self._head.size, 2)
        block = head.tokens(text[0], count)
        cache.mark()
        embedded = head.embedded(block, self._tap.embedding)
        rows = head(None, embedded[None], cache.layers, count)[0]
        cache.advance(block.shape[0])
        parts = head.prepared(rows, head.logits(rows, self._output))
        guesses = []
        for at in range(2):
            row = min(at, count - 1)
            read = mx.array(list(text[at : at + 1]))
            guesses.append(head.guess(read, [it[row : row + 1] for it in parts]))
        return mx.concatenate(guesses)


def settle(head: Block, hidden: HiddenRows, tokens: Sequence[int]) -> str | None:
    """Read a head's files in the way that agrees most.

    Returns:
        What is wrong with them, or was put right, continuing "the head"; None if nothing is.
    """
    comparison = Comparison(head, hidden, tokens)
    own, second = comparison.shares()
    late = None
    if own >= LOW > second:
        late = (
            f"guesses the first token of a block ({own:.0%} right) but not the second "
            f"({second:.0%}): its mask token may be another family's"
        )
    if own >= SURE:
        return late
    chances = comparison.chances(1)
    found: list[tuple[float, Variant]] = []
    for variant in list(head.variants()):
        before = {name: getattr(head, name) for name in variant}
        head.choose(variant)
        found.append((_gain(comparison, chances), variant))
        head.choose(before)
    best, variant = max(found, key=lambda it: it[0])
    if best >= CLEARLY:
        head.choose(variant)
        (name,) = variant
        return f"is read in another way than its files say: {READINGS[name]}"
    if own >= LOW:
        return late
    return (
        f"drafts badly: it agrees with the target on {own:.0%} of the prompt's tokens; it is for "
        "another target, or damaged"
    )


def _gain(comparison: Comparison, before: mx.array) -> float:
    """How much likelier guesses are accepted than ``before``; 0 where that may be chance."""
    step = -(-comparison.count // FIRST)
    if float(mx.mean(comparison.chances(step) - before[::step])) <= 0:
        return 0.0
    gains = comparison.chances(1) - before
    error = float(mx.sqrt(mx.var(gains) / comparison.count))
    mean = float(mx.mean(gains))
    return mean if mean >= ERRORS * error else 0.0


READINGS = {
    "first": "its first guess stands in another row of the block",
    "traditional": "positions turn neighbours, not halves, or the other way round",
    "rotated": "another share of each attention head is turned",
    "shift": "the weights of its norms are stored minus one, or are not",
    "scale": "the target's embeddings are scaled, or are not",
}
"""What a reading changes."""
