"""From token ids to text, one complete piece at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class TextStream:
    """Detokenizes a reply and looks for stop strings, which may span tokens.

    What could be the beginning of a stop string, or is not yet a whole character, is held back.

    Args:
        tokenizer: mlx-lm's ``TokenizerWrapper``.
        stop: strings that end the reply; they are not part of it.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str] = ()) -> None:
        self._detokenizer = tokenizer.detokenizer
        self._stop = tuple(stop)
        self._held = ""
        self.text = ""
        self.stopped = False
        """A stop string was found; nothing comes after it."""

    def push(self, token: int) -> str:
        """Take one token and return the text that it settles."""
        self._detokenizer.add_token(token)
        return self._release(final=False)

    def finish(self) -> str:
        """Return what was held back, at the end of the reply."""
        self._detokenizer.finalize()
        return self._release(final=True)

    def _release(self, *, final: bool) -> str:
        if self.stopped:
            return ""
        self._held += self._detokenizer.last_segment
        found = [at for at in map(self._held.find, self._stop) if at >= 0]
        if found:
            self.stopped = True
            settled = self._held[: min(found)]
        elif final:
            settled = self._held
        else:
            settled = self._held[: len(self._held) - self._possible_stop()]
        self._held = self._held[len(settled) :]
        self.text += settled
        return settled

    def _possible_stop(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        longest = min(len(self._held), max(map(len, self._stop), default=1) - 1)
        for length in range(longest, 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stop):
                return length
        return 0
