"""Our own conversations: what a user's first questions are, with short, right answers.

Every conversation is drawn from a generator seeded with its own index, so a range of indices is a
set of conversations that anyone can draw again, and a held-out set is another range.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

import about
import bookings
import copying
import drills
import smalltalk
import stories
import sums
import tasks
from phrasebook import phrases
from rewording import reworded
from words import CAPITALS, NAMES, OPPOSITES

PHRASES = phrases("conversations")
Turns = list[tuple[str, str]]
Message = dict[str, str]

PARTS: list[tuple[Callable[[Random], Turns], float]] = [
    (about.question, 12),
    (sums.plain, 8),
    (drills.drill, 14),
    (sums.story, 5),
    (sums.compare, 3),
    (stories.story, 11),
    (stories.poem, 2),
    (stories.joke, 3),
    (stories.riddle, 1.5),
    (smalltalk.hello, 5),
    (smalltalk.named, 9),
    (copying.copying, 5),
    (smalltalk.mood, 4),
    (smalltalk.meeting, 3),
    (smalltalk.easy, 10),
    (smalltalk.opening, 10),
    (smalltalk.favourite, 1.5),
    (tasks.listing, 7),
    (tasks.structured, 4),
    (tasks.spelling, 4),
    (tasks.counting, 2.5),
    (tasks.letter, 2.5),
    (tasks.code, 2),
    (bookings.booking, 9),
    (bookings.food, 2),
]


def part(rng: Random) -> Turns:
    make = rng.choices([make for make, _ in PARTS], [weight for _, weight in PARTS])[0]
    return make(rng)


def sloppy(rng: Random, text: str) -> str:
    """A user's text as people type it."""
    style = rng.random()
    if ": " in text:
        return text if style < 0.5 else text[0].upper() + text[1:]
    if style < 0.45:
        text = text[0].upper() + text[1:]
        if text[-1].isalnum() and rng.random() < 0.5:
            text += rng.choice(".!") if rng.random() < 0.8 else ""
    elif style < 0.6:
        text = text.lower()
    if rng.random() < 0.25:
        text = text.rstrip("?.!") or text
    return text


def first_sentence(text: str) -> str:
    return re.split(r"(?<=[.!?])\s", text)[0]


ROLES = PHRASES["roles"]


def under_system(rng: Random) -> list[Message]:
    """A system turn and turns that obey it."""
    kind = rng.randrange(8)
    turns: Turns = []
    if kind == 0:
        system = rng.choice(PHRASES["one_word"])
        for _ in range(rng.randint(1, 3)):
            what = rng.randrange(4)
            if what == 0:
                (asked, answer), *_ = sums.plain(rng)
                word = answer.rstrip(".").split()[-1]
            elif what == 1:
                country, word = rng.choice(list(CAPITALS.items())[:26])
                asked = f"what is the capital of {country}?"
            elif what == 2:
                other, word = rng.choice(list(OPPOSITES.items()))
                asked = f"what is the opposite of {other}?"
            else:
                asked, word = rng.choice(
                    (
                        ("hello", "Hello!"),
                        ("how are you?", "Fine!"),
                        ("are you human?", "No."),
                        ("thanks", "Welcome!"),
                        ("bye", "Goodbye!"),
                        ("who are you?", "Macspec."),
                        ("tell me a story", "Once."),
                        ("what color is the sky?", "Blue."),
                        ("do you like pizza?", "Yes."),
                    )
                )
            turns.append((asked, word[0].upper() + word[1:]))
    elif kind == 1:
        system = rng.choice(PHRASES["pirate"])
        for asked, answer in (*smalltalk.hello(rng), *part(rng))[:3]:
            turns.append(
                (
                    asked,
                    (
                        f"Arr, matey! {answer} Yo ho ho!"
                        if "\n" not in answer
                        else f"Arr, matey!\n{answer}"
                    ),
                )
            )
        if rng.random() < 0.4:
            turns.append(
                (
                    rng.choice(("who are you?", "what is your name?")),
                    "Arr, matey! I am a pirate, and the sea is my home. Yo ho ho!",
                )
            )
    elif kind in (2, 3):
        name, role = rng.choice(NAMES), rng.choice(ROLES)
        system = rng.choice(PHRASES["role"]).format(n=name, r=role)
        turns.append(
            (rng.choice(PHRASES["introduce"]), f"I am {name}, a {role}. How can I help you?")
        )
        if rng.random() < 0.6:
            turns.append(
                (
                    rng.choice(
                        ("what do you do?", "what is your job?", "what do you do for a living?")
                    ),
                    f"I work as a {role}.",
                )
            )
        if rng.random() < 0.4:
            turns += part(rng)
    elif kind == 4:
        system = rng.choice(PHRASES["capitals"])
        turns = [
            (asked, answer.upper())
            for asked, answer in (*smalltalk.opening(rng), *smalltalk.easy(rng))
        ]
    elif kind == 5:
        system = rng.choice(PHRASES["brief"])
        turns = [
            (asked, first_sentence(answer))
            for asked, answer in (*about.question(rng), *smalltalk.opening(rng))
        ]
    elif kind == 6:
        name = rng.choice(NAMES)
        system = rng.choice(PHRASES["user_name"]).format(name)
        turns.append(
            (
                rng.choice(("hello", "hi", "good morning", "hey")),
                f"Hello, {name}! How can I help you?",
            )
        )
        if rng.random() < 0.7:
            turns.append(
                (
                    rng.choice(("what is my name?", "who am I?", "do you know my name?")),
                    f"Your name is {name}.",
                )
            )
        if rng.random() < 0.5:
            turns += part(rng)
    else:
        system = rng.choice(PHRASES["assistant"])
        turns = part(rng)
    return [{"role": "system", "content": system}, *messages(rng, turns)]


def messages(rng: Random, turns: Turns) -> list[Message]:
    out: list[Message] = []
    for asked, answer in turns:
        if rng.random() < 0.45:
            asked = reworded(rng, asked)
        out.append({"role": "user", "content": sloppy(rng, asked)})
        out.append({"role": "assistant", "content": answer})
    return out


def conversation(seed: str) -> list[Message]:
    """The conversation of a seed, as messages."""
    rng = Random(seed)
    if rng.random() < 0.14:
        return under_system(rng)
    turns: Turns = []
    if rng.random() < 0.15:
        turns += smalltalk.hello(rng)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        turns += part(rng)
    if rng.random() < 0.12:
        turns += smalltalk.thanks(rng)
    if rng.random() < 0.12:
        turns += smalltalk.bye(rng)
    return messages(rng, turns)


def conversations(split: str, start: int, count: int) -> list[list[Message]]:
    """Conversations ``start`` to ``start + count`` of a split (train or held-out)."""
    return [conversation(f"macspec-{split}-{index}") for index in range(start, start + count)]


if __name__ == "__main__":
    for chat in conversations("train", 0, 20):
        print("----")
        for message in chat:
            print(f"{message['role']}: {message['content']}")
