"""From token ids to text: characters, stop strings, and who wrote which of them."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import ModelBrokenError
from .events import Text
from .parts import HEADER, TAG, Format, PartReader

LONGEST = 100_000
"""Most characters that one token completes; thousands may wait for the end of a character."""

Span = tuple[int, str | None]
"""Number of characters, and the drafter that guessed their token; None: the target's own."""


@dataclass(slots=True)
class Piece:
    """Complete text of one part of a reply."""

    part: str
    """answer, reasoning or tag."""
    text: str = ""
    spans: list[Span] = field(default_factory=list)
    """One for each token that wrote some of it; their characters add up to it."""


@dataclass(slots=True)
class _Unit:
    """A token whose text has not been released yet."""

    drafter: str | None
    text: str | None = None
    """None while its last character is incomplete."""
    part: str | None = None
    """None while it may be the start of a tag."""
    ending: str = ""
    """The text if the token were the last one."""


class TextStream:
    """Detokenizes a reply and looks for stop strings and tags, which may span tokens.

    Anything that may be the start of one, or an incomplete character, is held back. A character
    belongs to the token that completes it.

    Args:
        tokenizer: mlx-lm's ``TokenizerWrapper``.
        stop: strings that end the reply; they are not part of it.
        parts: tells the parts of the tokens; None: all is the answer.
    """

    def __init__(
        self, tokenizer: Any, stop: Sequence[str] = (), parts: PartReader | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = tokenizer.detokenizer
        # This detokenizer holds back a trailing space until the next token.
        self._keeps_spaces: bool = getattr(self._detokenizer, "_clean_spaces", False)
        self._stop = tuple(stop)
        self._parts = parts or PartReader(Format(tokenizer))
        self._units: deque[_Unit] = deque()
        self._newest = _Unit(None)
        self._after_tag = False
        self.text = ""
        """All released text, tags included."""
        self.stopped = False
        """A stop string was found; nothing comes after it."""

    def token_text(self, token: int) -> str:
        """The text of a token by itself; of part of a character, the replacement character."""
        return str(self._tokenizer.decode([token]))

    @property
    def part(self) -> str:
        return TAG if self._parts.part == HEADER else self._parts.part

    def push(self, token: int, drafter: str | None = None) -> list[Piece]:
        """Take a token, and its drafter if it was a guess; return the text that it completes."""
        parts = self._parts.push(token)
        self._detokenizer.add_token(token)
        segment = self._detokenizer.last_segment
        if len(segment) > LONGEST:
            raise ModelBrokenError(
                f"the tokenizer writes {len(segment)} characters for one token: choose another "
                "copy of the model"
            )
        if self._ordinary(segment, parts):
            self._newest = _Unit(drafter, segment, parts[0])
            self.text += segment
            return [Piece(parts[0], segment, [(len(segment), drafter)])]
        self._newest = _Unit(drafter)
        self._units.append(self._newest)
        self._decide(parts)
        if segment:
            self._fill(segment)
        if not segment or self._keeps_spaces:
            # What the text would be at the end tells later which characters were already there.
            ending = copy.copy(self._detokenizer)
            ending.finalize()
            rest = ending.last_segment
            if segment and rest:
                self._units.append(_Unit(drafter, part=self._newest.part or self.part))
            self._units[-1].ending = rest
        return self._release(final=False)

    def finish(self) -> list[Piece]:
        """Return what was held back, at the end of the reply."""
        self._detokenizer.finalize()
        self._fill(self._detokenizer.last_segment)
        return self._release(final=True)

    def _ordinary(self, segment: str, parts: Sequence[str]) -> bool:
        """Whether a token is complete text at once: nothing waits, and nothing could."""
        simple = not (self._units or self._stop or self._keeps_spaces or self._after_tag)
        return simple and segment != "" and len(parts) == 1 and parts[0] != TAG

    def _decide(self, parts: Sequence[str]) -> None:
        undecided = (unit for unit in self._units if unit.part is None)
        for unit, part in zip(undecided, parts, strict=False):
            unit.part = part

    def _fill(self, segment: str) -> None:
        """Distribute new text over the tokens that have none yet."""
        waiting = [unit for unit in self._units if unit.text is None]
        if segment and not waiting:
            waiting = [_Unit(self._newest.drafter, part=self._newest.part or self.part)]
            self._units += waiting
        taken = 0
        for unit in waiting:
            known = common_prefix(unit.ending, segment)
            end = len(segment) if unit is waiting[-1] else max(known, taken)
            unit.text = segment[taken:end]
            taken = end

    def _release(self, *, final: bool) -> list[Piece]:
        if self.stopped:
            return []
        held = "".join(unit.text for unit in self._units if unit.text is not None)
        found = [at for at in map(held.find, self._stop) if at >= 0]
        if found:
            self.stopped = True
            settled = min(found)
        else:
            settled = len(held) if final else len(held) - self._possible_stop(held)
        if found or final:
            self._decide(self._parts.finish())
        pieces: list[Piece] = []
        while self._units:
            unit = self._units[0]
            if unit.part is None or unit.text is None:
                break
            text = unit.text[:settled]
            settled -= len(text)
            self._give(pieces, text, unit.drafter, unit.part)
            if len(text) < len(unit.text):
                unit.text = unit.text[len(text) :]
                break
            self._units.popleft()
        self.text += "".join(piece.text for piece in pieces)
        return pieces

    def _give(self, pieces: list[Piece], text: str, drafter: str | None, part: str) -> None:
        if part == TAG:
            self._after_tag = True
        elif self._after_tag and text:
            # The line breaks after a tag belong to the tag, not to the answer.
            rest = text.lstrip("\n")
            self._after_tag = not rest
            if breaks := text[: len(text) - len(rest)]:
                _add(pieces, breaks, drafter, TAG)
            text = rest
        if text:
            _add(pieces, text, drafter, part)

    def _possible_stop(self, held: str) -> int:
        """Length of the longest suffix of the held text that starts a stop string."""
        longest = min(len(held), max(map(len, self._stop), default=1) - 1)
        for length in range(longest, 0, -1):
            if any(stop.startswith(held[-length:]) for stop in self._stop):
                return length
        return 0


def _add(pieces: list[Piece], text: str, drafter: str | None, part: str) -> None:
    if not pieces or pieces[-1].part != part:
        pieces.append(Piece(part))
    piece = pieces[-1]
    piece.text += text
    piece.spans.append((len(text), drafter))


def joined(pieces: Sequence[Piece]) -> list[Piece]:
    """The same pieces, with neighbours of one part merged."""
    together: list[Piece] = []
    for piece in pieces:
        if together and together[-1].part == piece.part:
            together[-1].text += piece.text
            together[-1].spans += piece.spans
        else:
            together.append(piece)
    return together


def common_prefix(a: Sequence[object], b: Sequence[object]) -> int:
    """Length of the longest common prefix."""
    for at, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return at
    return min(len(a), len(b))


class Written:
    """Adds up the texts of a reply, in constant time for each; spans are None if unknown."""

    def __init__(
        self, spans: Iterable[Span] | None = (), reasoning_spans: Iterable[Span] | None = ()
    ) -> None:
        self.spans = None if spans is None else list(spans)
        """Who wrote the answer, in order; None if unknown."""
        self.reasoning_spans = None if reasoning_spans is None else list(reasoning_spans)
        self.characters = 0
        """Characters so far, tags included."""

    def take(self, event: Text) -> tuple[str, str]:
        """Take the next text and return what it adds to the answer and to the reasoning."""
        self.characters += len(event.delta)
        known = sum(length for length, _ in event.spans) == len(event.delta)
        if event.part == "answer":
            self.spans = added(self.spans, event.spans) if known else None
            return event.delta, ""
        if event.part == "reasoning":
            self.reasoning_spans = added(self.reasoning_spans, event.spans) if known else None
            return "", event.delta
        return "", ""


def added(spans: list[Span] | None, new: Iterable[Span]) -> list[Span] | None:
    """``spans`` extended by new ones, with neighbours of one drafter merged."""
    if spans is None:
        return None
    for length, drafter in new:
        if spans and spans[-1][1] == drafter:
            spans[-1] = spans[-1][0] + length, drafter
        else:
            spans.append((length, drafter))
    return spans
