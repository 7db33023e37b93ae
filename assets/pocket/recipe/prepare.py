"""Step 1: the tokenizer and the encoded training stream."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from corpus import load, stream
from pieces import Pieces, train

OURS = 150_000
"""Conversations of our own in the training text."""


def texts_for_pieces(chats: Sequence[list[dict[str, str]]], characters: int) -> list[str]:
    """Lines for training the tokenizer: the first chats of the stream."""
    lines: list[str] = []
    for chat in chats:
        for message in chat:
            lines += [line for line in message["content"].split("\n") if line]
            characters -= len(message["content"])
        if characters < 0:
            break
    return lines


def encode(pieces: Pieces, chats: Sequence[list[dict[str, str]]]) -> tuple[np.ndarray, np.ndarray]:
    ids: list[int] = []
    kinds: list[int] = []
    for chat in chats:
        row, kind = pieces.chat(chat)
        ids += row
        kinds += kind
    return np.array(ids, np.uint16), np.array(kinds, np.uint8)


def prepare(work: Path, texts: Path | None, ours: int, size: int, seed: int) -> None:
    work.mkdir(parents=True, exist_ok=True)
    chats, held = load(texts, ours)
    sources, order = zip(*stream(chats, seed), strict=True)
    (work / "pieces.model").write_bytes(train(texts_for_pieces(order, 6_000_000), size))
    pieces = Pieces((work / "pieces.model").read_bytes())
    ids, kinds = encode(pieces, order)
    np.savez(work / "train.npz", ids=ids, kinds=kinds, sources=np.array(sources, "S"))
    for source, rows in held.items():
        ids_held, kinds_held = encode(pieces, rows)
        np.savez(work / f"held-{source}.npz", ids=ids_held, kinds=kinds_held)
    sizes = {
        source: sum(len(m["content"]) for c in rows for m in c) for source, rows in chats.items()
    }
    print(
        f"{pieces.size} pieces; {len(order)} chats, {len(ids):,} tokens; characters by source:"
        f" {sizes}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for everything made on the way"
    )
    parser.add_argument("--texts", type=Path, help="folder with the public texts")
    parser.add_argument("--ours", type=int, default=OURS, help="conversations of our own to draw")
    parser.add_argument("--pieces", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    prepare(args.work, args.texts, args.ours, args.pieces, args.seed)


if __name__ == "__main__":
    main()
