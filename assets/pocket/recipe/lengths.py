"""What a drafter is worth by the length of the context. Needs macspec, and PyTorch not at all.

Each context ends with the same turns of a held-out dialogue of people; before them stand other such
dialogues, whole but for the first, so that only the length differs between columns.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from random import Random
from typing import Any

from corpus import HELD_OUT, Chat, read
from evaluate import reply

from macspec import Sampling, Session, load_pair

SOURCES = ("schema-guided-dialogue", "topical-chat", "taskmaster-4")
LENGTHS = ((0, 256), (256, 512), (512, 1024), (1024, 1900))
"""Tokens of a context, the upper bound excluded."""

NEAR = 60
"""So many tokens below the length that was drawn a context may end."""


def lengthened(
    chat: Chat, rows: list[Chat], goal: float, longest: int, size: Any, rng: Random
) -> Chat:
    """The chat with others before it: about ``goal`` tokens, below ``longest``."""
    while size(chat) < goal - NEAR:
        before = list(rng.choice(rows))
        while before and (before[-1]["role"] != "assistant" or size(before + chat) >= longest):
            before.pop()
        chat = before + chat
    return chat


def contexts(texts: Path, tokenizer: Any, count: int, half: int) -> list[list[Chat]]:
    """``count`` contexts of each of ``LENGTHS``, from one half of the held-out dialogues."""
    rng, kept = Random(11 + half), []
    for source in SOURCES:
        chats = read(texts / f"{source}.jsonl.gz")
        kept.append([it for at, it in enumerate(chats) if at % HELD_OUT == 0][half::2])

    def size(chat: Chat) -> int:
        return len(tokenizer.apply_chat_template(chat, add_generation_prompt=True))

    found: list[list[Chat]] = [[] for _ in LENGTHS]
    while len(found[0]) < count:
        rows = kept[len(found[0]) % len(kept)]
        chat = rng.choice(rows)
        turns = [at for at, turn in enumerate(chat[:-1]) if turn["role"] == "user"]
        last = chat[: rng.choice(turns) + 1]
        if size(last) >= LENGTHS[0][1]:
            continue
        for (least, longest), place in zip(LENGTHS, found, strict=True):
            goal = rng.uniform(least + NEAR, longest) if least else 0
            place.append(lengthened(last, rows, goal, longest, size, rng))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path, required=True, help="draft model or head")
    parser.add_argument("--method", required=True, help="draft, eagle, mtp, dspark or dflash")
    parser.add_argument("--texts", type=Path, required=True, help="folder with the public texts")
    parser.add_argument("--count", type=int, default=16, help="contexts of each length")
    parser.add_argument("--half", type=int, default=1, help="of the held-out dialogues, 0 or 1")
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--longest", type=int, default=64, help="longest reply, in tokens")
    args = parser.parse_args()
    pair = load_pair(str(args.target), str(args.draft))
    columns = contexts(args.texts, pair.target.tokenizer, args.count, args.half)
    for temperature, rule in ((0.0, "block"), (0.7, "block"), (0.7, "keyed")):
        found = []
        for chats in columns:
            tokens = passes = 0
            for n, chat in enumerate(chats):
                session = Session(pair, method=args.method, depth=args.depth, rule=rule)
                sampling = Sampling(temperature=temperature, seed=1000 * n + 7)
                stats = reply(session, chat, sampling, args.longest).stats
                tokens, passes = tokens + stats.tokens, passes + stats.passes
            found.append(round(tokens / passes, 2))
        print(f"{args.method}@{args.depth} {rule} T={temperature}: {found}", flush=True)


if __name__ == "__main__":
    main()
