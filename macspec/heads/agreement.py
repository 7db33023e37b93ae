"""Whether a head reads its target rightly: how often both choose the same token.

What a head's files leave open (which hidden row, in which order, norms stored minus one) changes no
text, only how much is accepted. So it is measured on the user's own prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import mlx.core as mx

from ..cache import ModelCache
from ..tap import FINAL, HiddenRows
from .assistant import Assistant
from .head import Head, Variant

ROWS = 96
"""Most rows of a prompt that are compared."""

LEAST = 32
"""Rows below which a comparison says nothing."""

SOUND = 0.25
"""A head that agrees this often is read rightly."""

LOW = 0.1
"""One that agrees less often, however it is read, is not for this target, or damaged."""

SURE = 0.6
"""A head that agrees this often reads the layers that it was made for."""

CLEARLY = 0.2
"""How much more often it must agree beside other layers to be given those."""

MARGIN = 0.03
"""How much more often one of two likely readings must agree to be taken."""

BETTER = 2.0
"""How much more often another reading must agree to be taken."""


class Agreement:
    """A head beside its target on the newest rows of a text.

    Args:
        tokens: the committed tokens.
        caches: the target's, where the head attends to them.
    """

    def __init__(
        self,
        head: Head,
        hidden: HiddenRows,
        tokens: Sequence[int],
        caches: Sequence[Any] = (),
    ) -> None:
        self._head, self._tap = head, hidden.tap
        self._output = head.depths[0].output(hidden.tap)
        self._damaged = False
        """Whether the newest guesses are no numbers."""
        self.agreed = 0.0
        """How often it agrees as it is read now, once that is settled."""
        stop = min(hidden.stop, len(tokens) - 1)
        start = max(hidden.start, stop - ROWS)
        if isinstance(head, Assistant):
            start = max(start, head.oldest(caches))
        self._stop, self._held = stop, caches
        self.count = max(stop - start - 1, 0)
        """Rows that can be compared."""
        if self.count:
            self._rows = hidden.rows(start, stop)
            self._next = mx.array(list(tokens[start + 1 : stop + 1]), mx.uint32)
            self._chosen = self._best(self._rows[head.wanted.index(FINAL)])

    def share(self, late: int = 0) -> float:
        """Share of rows at which the head chooses what the target chooses ``late`` rows earlier
        than the head should."""
        depth: Any = self._head.depths[0]
        out = depth(
            self._head.enter(self._rows)[None],
            self._head.embedded(self._next, self._tap.embedding)[None],
            self._caches(depth),
        )[0]
        logits = self._output(out)
        self._damaged = bool(mx.any(mx.isnan(logits)))
        chosen = mx.argmax(logits, axis=-1)
        # Row i of the head stands where row i + 1 of the target does.
        same = chosen[late:-1] == self._chosen[1 : len(self._chosen) - late]
        return float(mx.mean(same.astype(mx.float32)))

    def settle(self) -> str | None:
        """Read the head's files in the way that agrees most.

        Returns:
            What is wrong with them, in half a sentence; None if nothing seems to be.
        """
        first = self._head.reading
        own = self.share()
        own = self._taken(first, own, self._head.alternatives(), own + MARGIN)
        if self._damaged:
            return "its weights are not numbers: its files are damaged"
        self.agreed = own
        if own >= SOUND:
            return None
        least = max(SOUND, BETTER * own)
        self.agreed = self._taken(self._head.reading, own, self._head.variants(), least)
        if self.agreed < SOUND and self.share(late=1) >= least:
            return "its guesses come one token late: its rows are shifted by one"
        if self.agreed >= SOUND or own >= LOW:
            return None
        return (
            f"it agrees with the target on {own:.0%} of the prompt's tokens: it is for another "
            "target, or damaged"
        )

    def _caches(self, depth: Any) -> Sequence[Any]:
        """Those that a step of all rows takes."""
        if isinstance(self._head, Assistant):
            return self._head.shared(self._held, self._stop, self._next.shape[0])
        return ModelCache(depth).layers

    def _taken(
        self, reading: Variant, share: float, variants: Iterable[Variant], least: float
    ) -> float:
        """Take the variant that agrees most, and at least so much; else the present reading.

        Returns:
            How often it agrees.
        """
        shares = {}
        for number, variant in enumerate(tried := list(variants)):
            self._head.choose(variant)
            shares[number] = self.share()
        best = max(shares, key=lambda it: shares[it], default=None)
        if best is not None and shares[best] >= least:
            self._head.choose(tried[best])
            return shares[best]
        self._head.choose(reading)
        return share

    def _best(self, rows: mx.array) -> mx.array:
        return mx.argmax(self._tap.logits(rows), axis=-1)
