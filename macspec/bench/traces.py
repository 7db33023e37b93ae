"""Traces: a text, and at each of its tokens what every drafter would have got right.

The text is fixed: greedy and keyed replies do not depend on what was drafted, and a forced text is
given. So a trace can be played back under any plan and any cost curve, without a model.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..assets import folder
from ..choices import MAX_DEPTH
from .document import reading

FORMAT = 3

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
    models: Mapping[str, Sequence[int]]
    """By name of the drafter that runs a model, how many tokens, from each one on, it would have
    got right in a row."""
    lookups: Mapping[str, Sequence[Guess]]
    """By name of the drafter, its guess before each token."""


def runs(agrees: Sequence[bool]) -> list[int]:
    """The same, of a drafter that would guess these tokens wherever its chain begins."""
    found, run = [], 0
    for right in reversed(agrees):
        run = min(run + 1, MAX_DEPTH) if right else 0
        found.append(run)
    return found[::-1]


@dataclass(frozen=True, slots=True)
class Trace:
    """Replies in the order in which they were given."""

    name: str
    kind: str
    """Recorded from a pair, forced upon its tokenizer, or synthetic."""
    about: str
    replies: Sequence[Recorded]

    @property
    def models(self) -> list[str]:
        """The drafters that run a model."""
        return sorted({name for reply in self.replies for name in reply.models})

    @property
    def drafters(self) -> list[str]:
        """Everyone who had something to say."""
        return self.models + sorted({name for reply in self.replies for name in reply.lookups})

    def alone(self, model: str) -> Trace:
        """The same with only one of the drafters that run a model."""
        replies = [replace(it, models={model: it.models[model]}) for it in self.replies]
        return replace(self, about=f"{self.about}; {model} alone", replies=replies)


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
    """The recorded traces that ship, with the draft model alone and with all their models, and the
    synthetic ones."""
    recorded = [it for path in sorted((folder() / "traces").glob("*.json")) for it in load(path)]
    both = [replace(it, name=f"{it.name}+head") for it in recorded if len(it.models) > 1]
    alone = [it.alone("draft") if len(it.models) > 1 else it for it in recorded]
    return [*alone, *both, switching(), hopeless()]


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
        for at, run in enumerate(runs(copied)):
            known = known + 1 if at and copied[at - 1] else 0
            if known >= 2:
                guesses.append(Guess(MAX_DEPTH, min(known - 1, 3), run))
            elif chance.random() < 0.15:  # a stray match
                guesses.append(Guess(MAX_DEPTH, 1, 0 if chance.random() < 0.75 else min(run, 1)))
            else:
                guesses.append(NOTHING)
        made.append(Recorded(40, tokens, {"draft": runs(draft)}, {"ngram": guesses}))
    return Trace("switching", "synthetic", f"easy, hard and copied stretches, seed {seed}", made)


def hopeless(seed: int = 0, replies: int = 8, tokens: int = 256) -> Trace:
    """A synthetic text that no drafter guesses, though look-ups keep finding stray matches."""
    chance = random.Random(seed)
    made = []
    for _ in range(replies):
        stray = [chance.random() < 0.2 for _ in range(tokens)]
        guesses = [Guess(MAX_DEPTH, chance.choice((1, 1, 2)), 0) if it else NOTHING for it in stray]
        draft = [chance.random() < 0.02 for _ in range(tokens)]
        made.append(Recorded(40, tokens, {"draft": runs(draft)}, {"ngram": guesses}))
    return Trace("hopeless", "synthetic", f"nobody guesses it, seed {seed}", made)


def accepting(
    drafter: str, depth: int, tokens: Sequence[float], seed: int = 0, replies: int = 24
) -> Trace:
    """Synthetic replies of 200 tokens, of which a drafter guesses as many as somebody reports.

    Every token of a kind of text is guessed with the same chance: reports do not say more.

    Args:
        depth: tokens drafted in a round.
        tokens: of such a round, the target's own included, on average, for each kind of text.
        replies: in all, the kinds in turn.
    """
    chance, made = random.Random(seed), []
    shares = [_share(it, depth) for it in tokens]
    for share in itertools.islice(itertools.cycle(shares), replies):
        right = [chance.random() < share for _ in range(200)]
        made.append(Recorded(40, 200, {drafter: runs(right)}, {}))
    mean = sum(tokens) / len(tokens)
    about = f"{drafter} gets {mean:.2f} tokens of {depth} drafted, as published, seed {seed}"
    return Trace(drafter, "synthetic", about, made)


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
        tokens = int(it["tokens"])
        models = {str(name): [int(run, 36) for run in said] for name, said in it["models"].items()}
        lookups = {
            str(name): [_guess(word) for word in said.split()]
            for name, said in it["lookups"].items()
        }
        lengths = [len(it) for it in models.values()] + [len(it) for it in lookups.values()]
        if set(lengths) - {tokens}:
            raise ValueError("a drafter's guesses are not one for each token")
        replies.append(Recorded(int(it["prompt"]), tokens, models, lookups))
    return Trace(str(entry["name"]), str(entry["kind"]), str(entry["about"]), replies)


def _guess(word: str) -> Guess:
    if word == "-":
        return NOTHING
    room, bucket, run = map(int, word.split("/"))
    return Guess(room, bucket, run)
