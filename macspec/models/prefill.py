"""How many rows a prefill pass has."""

from __future__ import annotations

PREFILL_CHUNKS = (2048, 1024, 512)
"""Most rows of a prefill pass, by what memory allows; the first as in mlx-lm."""

PREFILL_CHUNK = PREFILL_CHUNKS[-1]
"""Rows of the first prefill pass; of later ones, where time allows no more."""

PREFILL_SECONDS = 2.0
"""Longest prefill pass of more rows: nothing interrupts it, and progress is shown after it."""


class PrefillChunk:
    """Rows of the next prefill pass of a target, and of its draft model.

    Args:
        most: what memory allows.
    """

    def __init__(self, most: int = PREFILL_CHUNK) -> None:
        self.most = most
        self._rows = PREFILL_CHUNK

    @property
    def rows(self) -> int:
        return min(self._rows, self.most)

    def took(self, rows: float, seconds: float) -> None:
        """Passes over so many rows took so long: double where that is short enough, or halve."""
        if 2 * rows < self.rows:
            return  # the end of a prompt, mostly overhead
        expected = seconds * self.rows / rows
        if expected > PREFILL_SECONDS:
            self._rows = max(self.rows // 2, PREFILL_CHUNK)
        elif 2 * expected <= PREFILL_SECONDS:
            self._rows = min(2 * self.rows, self.most)
