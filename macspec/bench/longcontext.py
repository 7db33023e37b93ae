"""Long prompts made of our own text, to a wanted number of tokens."""

from __future__ import annotations

import random
import tomllib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from functools import cache
from typing import Any

from ..assets import folder
from ..conversation import Message
from .task import Task

LENGTHS = (1024, 2048, 4096, 8192, 16384)
"""Tokens of the prompt and its reply together."""

SEED = 1907

MIDDLE = date(1987, 3, 1)

ASKED = (-1, 0, 2)
"""Days whose entries are asked for; the log reaches as far before them as after."""


def long_name(length: int) -> str:
    """The workload of a length, as ``long-4k``."""
    return f"long-{length // 1024}k"


def long_task(length: int, count: Callable[[Sequence[Message]], int], *, force: bool) -> Task:
    """A log of many days, and the question for some in its middle, word for word.

    Args:
        length: the most tokens of the conversation with its reply; it falls short of that by less
            than an entry, if it is not shorter than the shortest log.
        count: tokens of a conversation.
        force: take the entries themselves as the recorded answer.
    """
    answer = "\n".join(map(entry, ASKED))
    # As a turn of its own: not every template takes a conversation that ends with a reply.
    reply = count([{"role": "user", "content": answer}])

    def size(days: int) -> int:
        return count([_question(days)]) + reply

    shortest = 2 * len(ASKED)
    days = bisect_right(range(length), length, lo=shortest, key=size) - 1
    question = _question(max(days, shortest))
    return Task(
        id=f"{long_name(length)}-1",
        workload=long_name(length),
        messages=(question,),
        max_tokens=reply,
        forced=answer if force else None,
    )


@cache
def entry(day: int) -> str:
    """The log of a day, the same at every call."""
    words = _words()
    chance = random.Random(f"{SEED} {day}")
    sentences = chance.sample(words["sentences"], chance.randint(2, 5))
    text = " ".join(_filled(sentence, words, chance) for sentence in sentences)
    return f"{_date(day)}: {text}"


def _question(days: int) -> dict[str, str]:
    first = -(days // 2)
    log = "\n".join(map(entry, range(first, first + days)))
    named = ", ".join(map(_date, ASKED))
    text = (
        f"This is the log of a lighthouse, a line a day.\n\n{log}\n\nRepeat the entries of {named} "
        "word for word, each on its own line, and nothing else."
    )
    return {"role": "user", "content": text}


def _date(day: int) -> str:
    return (MIDDLE + timedelta(day)).isoformat()


def _filled(sentence: str, words: dict[str, Any], chance: random.Random) -> str:
    def word(name: str) -> str:
        match name:
            case "number":
                return str(chance.randint(2, 29))
            case "large":
                return str(chance.randint(40, 390))
            case "voltage":
                return f"{chance.randint(10, 139) / 10:.1f}"
            case "pressure":
                return str(chance.randint(968, 1039))
            case "hour":
                return f"{chance.randint(0, 23):02}:{chance.choice((0, 10, 20, 30, 45)):02}"
        return str(chance.choice(words[name if name in words else f"{name}s"]))

    pieces = sentence.replace("}", "{").split("{")
    return "".join(word(piece) if at % 2 else piece for at, piece in enumerate(pieces))


@cache
def _words() -> dict[str, Any]:
    return tomllib.loads((folder() / "prompts" / "station.toml").read_text(encoding="utf-8"))
