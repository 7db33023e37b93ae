"""An engine that says a made-up text at a given pace, in the place of one that decodes.

It stands in where only the app is measured: this file is started in the place of the engine's
process and speaks its protocol. The prompt itself says which text is wanted, and how fast.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import cycle
from typing import Any

from madeup import CHARACTERS, text_of

from macspec.errors import BadOptionError
from macspec.events import Emitted, Event, Finished, Prefilled, Round, Text
from macspec.stats import ReplyCounter
from macspec.worker import (
    Loaded,
    PairChoice,
    PairInfo,
    ReplyRequest,
    ScoreMargin,
    Status,
    Tuning,
)
from macspec.worker.child import main
from macspec.worker.messages import Answer, MeasureMargin, PromptTokens

DEPTH = 4
ROUNDS = (1, 3, 2, 1, 3)
"""Tokens that the rounds of an ordinary reply bring."""

PAIR = PairInfo(
    target="paced stand-in",
    draft="paced stand-in",
    draft_off=None,
    context=2**17,
    weights=0,
    planned=0,
)

END = "Ѫ"
"""What every text ends with, and nothing else on the screen has."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a prompt asks for; its fields as JSON are the prompt."""

    characters: int
    pace: float = 30.0
    """Tokens a second."""
    tokens: int = 0
    """Tokens a round; 0: as an ordinary reply has them."""
    line: bool = False
    """All in one line."""

    def prompt(self) -> str:
        """As a user types it."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, request: ReplyRequest) -> Wish:
        """The wish of a request.

        Raises:
            BadOptionError: it has none.
        """
        said = request.messages
        try:
            return cls(**json.loads(said if isinstance(said, str) else said[-1]["content"]))
        except (ValueError, TypeError, KeyError):
            raise BadOptionError("this engine only says what a wish asks for") from None

    def text(self) -> str:
        """What is said, its end included."""
        if self.line:
            return ("word " * self.characters)[: self.characters - 1] + END
        return text_of(random.Random(3), self.characters - 2) + "\n" + END


@dataclass
class PacedEngine:
    """As ``macspec.worker.engine.Engine``, without a model."""

    shared = None
    tuning: Tuning = field(default_factory=Tuning)
    _loaded: bool = False
    _counter: ReplyCounter = field(default_factory=ReplyCounter)
    _last: float = 0.0
    _said: list[str] = field(default_factory=list)
    _whole: bool = False

    def load(self, choice: PairChoice, report: Callable[[Answer], None]) -> Loaded:
        self._loaded = True
        return Loaded(PAIR)

    def reply(self, request: ReplyRequest) -> Generator[Event, None, None]:
        wish = Wish.of(request)
        text, began = wish.text(), time.monotonic()
        self._counter = ReplyCounter(prompt_tokens=len(str(request.messages)) // CHARACTERS)
        self._last = began
        self._said, self._whole = [], False
        rounds = cycle((wish.tokens,) if wish.tokens else ROUNDS)
        at = done = 0
        while at < len(text):
            tokens = next(rounds)
            delta = text[at : at + CHARACTERS * tokens]
            at, done = at + len(delta), done + tokens
            time.sleep(max(began + done / wish.pace - time.monotonic(), 0))
            yield from self._round(delta, tokens)
        self._whole = True

    def _round(self, delta: str, tokens: int) -> Iterator[Event]:
        """A round in which all tokens but the last were guessed."""
        counter, first = self._counter, not self._counter.passes
        drafted, guessed = max(DEPTH, tokens - 1), tokens - 1
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        counter.add(tokens, seconds, drafted=drafted, accepted=guessed)
        if first:
            yield Prefilled(counter.prompt_tokens, 0, seconds)
        ids = tuple(range(counter.tokens - tokens, counter.tokens))
        emitted = tuple(Emitted(id, "draft" if id < ids[-1] else None) for id in ids)
        own = min(len(delta), CHARACTERS)
        spans = ((len(delta) - own, "draft"), (own, None))
        self._said.append(delta)
        yield Text(delta, emitted, tuple(span for span in spans if span[0]))
        why = "a stand-in for an engine, which keeps to a pace"
        yield Round(ids, "draft", DEPTH, drafted, guessed, seconds, 0.0, float(tokens), why)

    def stop(self) -> Finished:
        return Finished(
            "end" if self._whole else "interrupted",
            "".join(self._said),
            tuple(range(self._counter.tokens)),
            1,
            self.tuning.rule,
            self.tuning.method,
            self.tuning.depth,
            self._counter.stats(),
        )

    def score_margin(self, choice: MeasureMargin) -> ScoreMargin:
        raise BadOptionError("this engine has no scores")

    def count_tokens(self, request: ReplyRequest) -> PromptTokens:
        return PromptTokens(1, 1, 1, PAIR.context)

    def tune(self, changes: Mapping[str, Any]) -> Tuning:
        sampling = {**self.tuning.sampling, **(changes.get("sampling") or {})}
        self.tuning = replace(self.tuning, **{**changes, "sampling": sampling})
        return self.tuning

    def status(self) -> Status:
        return Status(
            pair=PAIR if self._loaded else None,
            tuning=self.tuning,
            why="",
            cached_tokens=self._counter.prompt_tokens + self._counter.tokens,
            memory=0,
            memory_limit=2**34,
            kernels="none: nothing is computed",
            plain_seconds=1 / 30,
        )

    def idle(self) -> Iterator[None]:
        yield from ()

    def unexpected(self, error: BaseException) -> None:
        """Nothing of it is spread over machines."""

    def close(self) -> None:
        pass


if __name__ == "__main__":
    main(sys.argv[1:], PacedEngine)
