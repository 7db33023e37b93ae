"""Dialogues of all sources as messages, cleaned, with a part of each held out."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

from conversations import Message, conversations

Chat = list[Message]

HELD_OUT = 50
"""One dialogue in this many of each public source is held out."""

OURS_HELD_OUT = 400
OPENINGS = Path(__file__).resolve().parent / "openings.json"
SHARES = {
    "ours": 1.0,
    "schema-guided-dialogue": 1.0,
    "taskmaster-4": 1.0,
    "topical-chat": 0.35,
    "gsm8k-train": 0.15,
    "chatterbot-english": 2.0,
}
"""How much of each source goes into the training stream; 2.0 is twice."""


def clean(text: str) -> str:
    """One line of dialogue with its spacing put right."""
    text = (
        text.replace("\u2019", "'")
        .replace("\u2018", "'")
        .replace("\u201c", '"')
        .replace("\u201d", '"')
    )
    text = re.sub(r"[^\S\n]+", " ", text).strip()
    text = re.sub(r" ('s|n't|'m|'re|'ve|'ll|'d)\b", r"\1", text)
    return re.sub(r" ([,.!?])(?=\s|$)", r"\1", text)


def worked(answer: str) -> str:
    """A worked answer without the calculator's marks."""
    text, result = re.sub(r"<<[^>]*>>", "", answer).split("####")
    return f"{text.strip()}\nThe answer is {result.strip()}."


def read(path: Path) -> Iterator[Chat]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if "question" in row:
                chat = [
                    {"role": "user", "content": clean(row["question"])},
                    {"role": "assistant", "content": clean(worked(row["answer"]))},
                ]
            else:
                chat = [
                    {"role": turn["role"], "content": clean(turn["content"])}
                    for turn in row["messages"]
                ]
            if len(chat) > 1 and all(turn["content"] for turn in chat):
                yield chat


def key(text: str) -> str:
    """What is left of a text when case, spacing and punctuation do not count."""
    return "".join(filter(str.isalnum, text.casefold()))


def apart(train: list[Chat], held: list[Chat]) -> tuple[list[Chat], list[Chat]]:
    """The training chats without the held-out openings; the held-out ones that are not in them."""
    openings = {key(turn) for turns in json.loads(OPENINGS.read_text()) for turn in turns}
    train = [chat for chat in train if not any(key(turn["content"]) in openings for turn in chat)]
    seen = {key("".join(turn["content"] for turn in chat)) for chat in train}
    new = [c for c in held if key("".join(turn["content"] for turn in c)) not in seen]
    return train, new


def load(texts: Path | None, ours: int) -> tuple[dict[str, list[Chat]], dict[str, list[Chat]]]:
    """Training and held-out chats by source.

    Args:
        texts: folder with the public texts; without it, only our own conversations.
        ours: how many conversations of our own to draw.
    """
    train = {"ours": conversations("train", 0, ours)}
    held = {"ours": conversations("held-out", 0, min(OURS_HELD_OUT, max(20, ours // 20)))}
    if texts is not None:
        for path in sorted(texts.glob("*.jsonl.gz")):
            source = path.name.removesuffix(".jsonl.gz")
            chats = list(read(path))
            train[source] = [chat for n, chat in enumerate(chats) if n % HELD_OUT]
            held[source] = [chat for n, chat in enumerate(chats) if n % HELD_OUT == 0]
    for source in train:
        train[source], held[source] = apart(train[source], held[source])
    return train, held


def stream(train: dict[str, list[Chat]], seed: int) -> list[tuple[str, Chat]]:
    """All training chats in the shares of ``SHARES`` with their sources, in one random order."""
    rng = Random(seed)
    chats: list[tuple[str, Chat]] = []
    for source, rows in train.items():
        share, tagged = SHARES.get(source, 1.0), [(source, chat) for chat in rows]
        chats += tagged * int(share)
        chats += rng.sample(tagged, int(len(rows) * (share % 1)))
    rng.shuffle(chats)
    return chats
