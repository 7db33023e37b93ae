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

    def older(self, text: str) -> str | None:
        """One step back from ``text``, which is what now stands in the prompt; None: no more."""
        return self._step(text, -1)

    def newer(self, text: str) -> str | None:
        """One step forward; None: it is the last."""
        return self._step(text, 1)

    def written(self, text: str) -> str:
        """What is being written, where ``text`` stands in the prompt."""
        return self._changed.get(len(self._sent), "") if self.walking else text

    def unsent(self, text: str) -> list[str]:
        """All that was typed and not sent, where ``text`` stands in the prompt: what is being
        written, and earlier prompts that were changed."""
        shown = {**self._changed, self._place: text}
        places = sorted(shown, key=lambda place: (place < len(self._sent), place))
        return [shown[at] for at in places if shown[at].strip() and shown[at] != self._at(at)]

    def add(self, text: str) -> None:
        """Something was sent: it is the last place now, and the walk ends."""
        if text.strip() and self._sent[-1:] != [text]:
            self._sent.append(text)
        self.rest()

    def rest(self) -> None:
        """The walk ends, and what was changed on it is forgotten."""
        self._changed.clear()
        self._place = len(self._sent)

    def _step(self, text: str, by: int) -> str | None:
        place = self._place + by
        if not 0 <= place <= len(self._sent):
            return None
        self._changed[self._place] = text
        self._place = place
        return self._changed.get(place, self._at(place))

    def _at(self, place: int) -> str:
        return self._sent[place] if place < len(self._sent) else ""


def _distinct(texts: Iterable[str]) -> list[str]:
    """Without blank ones and without one right after the same."""
    kept: list[str] = []
    for text in texts:
        if text.strip() and kept[-1:] != [text]:
            kept.append(text)
    return kept
