"""Texts of no meaning, and conversations of them: what the app shows while it is measured."""

from __future__ import annotations

import random
from collections.abc import Sequence

from macspec.stats import ReplyCounter
from macspec.store import GenerationMetadata, Store

CHARACTERS = 4
"""Of a token, about."""

ABOUT = (
    "speculative decoding draft model proposes several tokens which the target verifies in one "
    "pass so the text stays the same while it comes faster on most machines"
)
WORDS = ABOUT.split()

CODE = '''```python
def accept(p: list[float], q: list[float], u: float) -> bool:
    """Whether a drafted token stands."""
    for index, (a, b) in enumerate(zip(p, q)):
        if u < a / b:  # the ratio test
            return True
    return False
```
'''

Span = tuple[int, str | None]
"""So many characters, and the drafter whose guess they were; None: the target's own."""


def sentence(rng: random.Random, words: int) -> str:
    """Words in no order."""
    return " ".join(rng.choice(WORDS) for _ in range(words)).capitalize() + "."


def text_of(rng: random.Random, characters: int) -> str:
    """Markdown of all kinds."""
    parts, length = list[str](), 0
    while length < characters:
        kind = rng.random()
        if kind < 0.5:
            parts.append(sentence(rng, rng.randint(30, 90)) + "\n\n")
        elif kind < 0.7:
            items = (f"{n}. **{sentence(rng, 3)}** {sentence(rng, 16)}\n" for n in range(1, 6))
            parts.append("".join(items) + "\n")
        elif kind < 0.85:
            parts.append(CODE + "\n")
        elif kind < 0.93:
            rows = (f"| {sentence(rng, 2)} | {n} | {3 * n} ms |\n" for n in range(8))
            parts.append("| name | rows | time |\n|---|---:|---:|\n" + "".join(rows) + "\n")
        else:
            parts.append(f"## {sentence(rng, 5)}\n\n")
        length += len(parts[-1])
    return "".join(parts)[:characters]


def spans_of(rng: random.Random, text: str) -> list[Span]:
    """Who could have written it."""
    left, spans = len(text), list[Span]()
    while left > 0:
        length = min(rng.randint(1, 12), left)
        spans.append((length, rng.choice(["draft", "draft", "ngram", None])))
        left -= length
    return spans


def conversation(turns: int, characters: int = 2_000) -> list[tuple[str, str]]:
    """Prompts and replies of so many characters in turn; each its role and its text."""
    rng, made = random.Random(1), list[tuple[str, str]]()
    for number in range(turns):
        if number % 2:
            made.append(("assistant", text_of(rng, characters)))
        else:
            made.append(("user", sentence(rng, 20)))
    return made


def keep(store: Store, turns: Sequence[tuple[str, str]], model: str) -> int:
    """Put a conversation into a store, with numbers and tint under each reply; its number.

    Args:
        turns: role and text of each; it begins with the user's.
        model: who is said to have written the replies: a folder or an id.
    """
    rng, chat, parent = random.Random(2), store.new_chat().id, None
    for role, text in turns:
        if role == "user":
            parent = store.add(chat, parent, text).id
            continue
        assert parent is not None
        stats = _stats(len(text) // CHARACTERS)
        reply = store.reply(chat, parent)
        reply.append(text)
        reply.finish("end", GenerationMetadata(model=model, stats=stats, spans=spans_of(rng, text)))
        parent = reply.id
    return chat


def _stats(tokens: int) -> dict[str, object]:
    """Counted as of a reply at 30 tokens/s."""
    counter = ReplyCounter()
    for _ in range(1, tokens // 3 + 2):
        counter.add(3, 0.1, drafted=4, accepted=2)
    return counter.stats().as_dict()
