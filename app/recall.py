"""Walking through what was sent before, without losing what was not."""

from __future__ import annotations

from collections.abc import Iterable


class Recall:
    """Earlier prompts, and the one that is being written, as places in a row.

    What is changed at a place stays there until something is sent.

    Args:
        sent: earlier prompts, oldest first.
    """

    def __init__(self, sent: Iterable[str] = ()) -> None:
        self._sent = _distinct(sent)
        self._changed: dict[int, str] = {}
        self._place = len(self._sent)

    @property
    def walking(self) -> bool:
        """Whether an earlier prompt is shown."""
        return self._place < len(self._sent)

    @property
    def unsent(self) -> str:
        """The prompt that was being written when the walk began."""
        return self._changed.get(len(self._sent), "")

    def older(self, text: str) -> str | None:
        """One step back from ``text``, which is what now stands in the prompt; None: no more."""
        return self._step(text, -1)

    def newer(self, text: str) -> str | None:
        """One step forward; None: it is the last."""
        return self._step(text, 1)

    def add(self, text: str) -> None:
        """Something was sent: it is the last place now, and the walk ends."""
        if text.strip() and (not self._sent or self._sent[-1] != text):
            self._sent.append(text)
        self._changed.clear()
        self._place = len(self._sent)

    def keep(self, text: str) -> None:
        """A text that was given up is within reach, and the walk goes on from the end."""
        unsent = self.unsent
        self.add(text)
        if unsent:
            self._changed[self._place] = unsent

    def _step(self, text: str, by: int) -> str | None:
        place = self._place + by
        if not 0 <= place <= len(self._sent):
            return None
        self._changed[self._place] = text
        self._place = place
        return self._changed.get(place, self._sent[place] if place < len(self._sent) else "")


def _distinct(texts: Iterable[str]) -> list[str]:
    """Without blank ones and without one right after the same."""
    kept: list[str] = []
    for text in texts:
        if text.strip() and (not kept or kept[-1] != text):
            kept.append(text)
    return kept
