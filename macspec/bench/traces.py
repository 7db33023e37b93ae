"""Traces: a text, and at each of its tokens what every drafter would have got right.

The text is fixed: greedy and keyed replies do not depend on what was drafted, and a forced text is
given. So a trace can be played back under any plan and any cost curve, without a model.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..assets import folder
from ..choices import MAX_DEPTH
from .document import reading

FORMAT = 2

KINDS = ("recorded", "forced", "synthetic")


@dataclass(frozen=True, slots=True)
class Guess:
    """What a look-up had to say before one token of a text."""

    room: int
    """Tokens that it offered; 0: it had nothing to say."""
    bucket: int
    """How sure it was."""
    run: int
    """How many of them, from the first on, were the text's."""


NOTHING = Guess(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One reply."""

    prompt: int
    """Tokens before it."""
    tokens: int
    draft: Sequence[bool] | None
    """At each token, whether the draft model would have drafted it after the text before it; None:
    there was no draft model."""
    lookups: Mapping[str, Sequence[Guess]]
    """By name of the drafter, its guess before each token."""

    def runs(self) -> list[int]:
        """At each token, how many the draft model would have got right from there on."""
        runs, run = [], 0
        for agrees in reversed(self.draft or ()):
            run = min(run + 1, MAX_DEPTH) if agrees else 0
            runs.append(run)
        return runs[::-1]


@dataclass(frozen=True, slots=True)
class Trace:
    """Replies in the order in which they were given."""

    name: str
    kind: str
    """Recorded from a pair, forced upon its tokenizer, or synthetic."""
    about: str
    replies: Sequence[Recorded]
    model: str = "draft"
    """The drafter that runs a model, whose guesses stand in the replies."""

    @property
    def drafters(self) -> list[str]:
        """Everyone who had something to say."""
        names = [self.model] if any(reply.draft is not None for reply in self.replies) else []
        return names + sorted({name for reply in self.replies for name in reply.lookups})


def load(path: Path) -> list[Trace]:
    """The traces of a file.

    Raises:
        BadOptionError: there are none in it.
    """
    with reading(path, "holds no traces") as stored:
        if stored["format"] != FORMAT:
            raise ValueError(f"format {stored['format']}, not {FORMAT}")
        return [_restored(entry) for entry in stored["traces"]]


def shipped() -> list[Trace]:
    """The recorded traces that ship, and the synthetic ones."""
    paths = sorted((folder() / "traces").glob("*.json"))
    return [trace for path in paths for trace in load(path)] + [switching(), hopeless()]


def switching(seed: int = 0, replies: int = 12, tokens: int = 240) -> Trace:
    """A synthetic text whose predictability changes every so often.

    Stretches of 60 tokens are copied (a look-up gets nearly all), easy (the draft model gets 85 %),
    or hard (it gets 25 %); look-ups have stray matches everywhere.
    """
    chance = random.Random(seed)
    made = []
    for _ in range(replies):
        kinds = [chance.choice(("copied", "easy", "hard")) for _ in range(tokens // 60 + 1)]
        kind = [kinds[at // 60] for at in range(tokens)]
        likely = {"copied": 0.8, "easy": 0.85, "hard": 0.25}
        draft = [chance.random() < likely[it] for it in kind]
        copied = [it == "copied" and chance.random() < 0.97 for it in kind]
        guesses, known = [], 0
        for at, run in enumerate(Recorded(40, tokens, copied, {}).runs()):
            known = known + 1 if at and copied[at - 1] else 0
            if known >= 2:
                guesses.append(Guess(MAX_DEPTH, min(known - 1, 3), run))
            elif chance.random() < 0.15:  # a stray match
                guesses.append(Guess(MAX_DEPTH, 1, 0 if chance.random() < 0.75 else min(run, 1)))
            else:
                guesses.append(NOTHING)
        made.append(Recorded(40, tokens, draft, {"ngram": guesses}))
    return Trace("switching", "synthetic", f"easy, hard and copied stretches, seed {seed}", made)


def hopeless(seed: int = 0, replies: int = 8, tokens: int = 256) -> Trace:
    """A synthetic text that no drafter guesses, though look-ups keep finding stray matches."""
    chance = random.Random(seed)
    made = []
    for _ in range(replies):
        stray = [chance.random() < 0.2 for _ in range(tokens)]
        guesses = [Guess(MAX_DEPTH, chance.choice((1, 1, 2)), 0) if it else NOTHING for it in stray]
        draft = [chance.random() < 0.02 for _ in range(tokens)]
        made.append(Recorded(40, tokens, draft, {"ngram": guesses}))
    return Trace("hopeless", "synthetic", f"nobody guesses it, seed {seed}", made)


def accepting(
    drafter: str, depth: int, tokens: Sequence[float], seed: int = 0, replies: int = 8
) -> Trace:
    """Synthetic replies of 200 tokens, of which a drafter guesses as many as somebody reports.

    Every token of a kind of text is guessed with the same chance: reports do not say more.

    Args:
        depth: tokens drafted in a round.
        tokens: of such a round, the target's own included, on average, for each kind of text.
        replies: of each kind, in turn.
    """
    chance, made = random.Random(seed), []
    for share in [_share(it, depth) for it in tokens] * replies:
        made.append(Recorded(40, 200, [chance.random() < share for _ in range(200)], {}))
    mean = sum(tokens) / len(tokens)
    about = f"{drafter} gets {mean:.2f} tokens of {depth} drafted, as published, seed {seed}"
    return Trace(drafter, "synthetic", about, made, drafter)


def _share(tokens: float, depth: int) -> float:
    """The chance of a guess with which rounds yield so many tokens."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        enough = sum(middle**place for place in range(depth + 1)) > tokens
        low, high = (low, middle) if enough else (middle, high)
    return low


def _restored(entry: Mapping[str, Any]) -> Trace:
    if entry["kind"] not in KINDS:
        raise ValueError(f"kind {entry['kind']!r}")
    replies = []
    for it in entry["replies"]:
        tokens, draft = int(it["tokens"]), it["draft"]
        lookups = {
            str(name): [_guess(word) for word in said.split()]
            for name, said in it["lookups"].items()
        }
        columns = [*lookups.values(), *([] if draft is None else [draft])]
        if any(len(column) != tokens for column in columns):
            raise ValueError("a drafter's guesses are not one for each token")
        agrees = None if draft is None else [mark == "1" for mark in draft]
        replies.append(Recorded(int(it["prompt"]), tokens, agrees, lookups))
    return Trace(str(entry["name"]), str(entry["kind"]), str(entry["about"]), replies)


def _guess(word: str) -> Guess:
    if word == "-":
        return NOTHING
    room, bucket, run = map(int, word.split("/"))
    return Guess(room, bucket, run)
