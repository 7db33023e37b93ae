"""Step 3a: replies that the target writes to prompts of the training chats."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from random import Random

import numpy as np
import torch
from net import Net, half, load, rotate
from pieces import ASSISTANT_ID, BOS_ID, END_ID
from torch import Tensor
from torch.nn import functional
from train import Bar, device

TEMPERATURES = (0.0, 0.7, 1.0)
LONGEST = 256
"""Longest prompt, in tokens."""


DIALOGUES = {
    "ours": 0.3,
    "schema-guided-dialogue": 0.28,
    "topical-chat": 0.28,
    "taskmaster-4": 0.1,
    "gsm8k-train": 0.02,
    "chatterbot-english": 0.02,
}
"""Shares of the prompts for heads: mostly people's dialogues."""

Prompt = tuple[list[int], list[int]]


def prompts(
    ids: np.ndarray, kinds: np.ndarray, count: int, seed: int, sources: np.ndarray | None
) -> list[Prompt]:
    """Chats of the stream, each cut off where one of its replies begins, with the kinds of ids.

    Args:
        sources: of each chat, to draw them by the shares of ``DIALOGUES``; None: as they come.
    """
    rng = Random(seed)
    starts = np.flatnonzero(ids == BOS_ID)
    group = np.arange(len(starts) - 1)
    if sources is not None:
        names = [name for name in DIALOGUES if name.encode() in sources[:-1]]
        groups = [np.flatnonzero(sources[:-1] == name.encode()) for name in names]
        weights = [DIALOGUES[name] for name in names]
    out: list[Prompt] = []
    while len(out) < count:
        if sources is not None:
            (group,) = rng.choices(groups, weights)
        n = group[rng.randrange(len(group))]
        chat = slice(starts[n], min(starts[n + 1], starts[n] + LONGEST))
        replies = np.flatnonzero(ids[chat] == ASSISTANT_ID)
        if len(replies):
            end = starts[n] + rng.choice(replies.tolist()) + 1
            out.append((ids[starts[n] : end].tolist(), kinds[starts[n] : end].tolist()))
    return out


@torch.no_grad()
def replies(
    net: Net, batch: list[list[int]], temperatures: Tensor, longest: int, rng: torch.Generator
) -> list[list[int]]:
    """What a model says to prompts, all at once; the end token may be followed by more.

    Keys and values lie in buffers of shape (prompts, heads, positions, head size); prompts are
    padded on the left, and padding is masked out.
    """
    shape, on = net.shape, net.embed_tokens.weight.device
    size = max(map(len, batch))
    pad = torch.tensor([size - len(prompt) for prompt in batch], device=on)
    ids = torch.tensor([[0] * (size - len(p)) + p for p in batch], device=on)
    width, kind = size + longest, net.embed_tokens.weight.dtype
    buffers = [
        torch.zeros(2, len(batch), shape.kv_heads, width, shape.head, dtype=kind, device=on)
        for _ in range(shape.layers)
    ]
    places = torch.arange(width, device=on)
    alive = torch.arange(len(batch), device=on)
    ended = torch.zeros(len(batch), dtype=torch.bool, device=on)
    said: list[list[int]] = [[] for _ in batch]
    groups = shape.heads // shape.kv_heads
    start = 0
    while True:
        rows, length = ids.shape
        end = start + length
        spots = (places[start:end] - pad[:, None]).clamp(min=0)
        turn = (net.cos[spots][:, None], net.sin[spots][:, None])
        visible = (places[:end] >= pad[:, None])[:, None, None]
        visible = visible & (places[:end] <= places[start:end, None])
        x = net.embed_tokens(ids)
        for layer, buffer in zip(net.layers, buffers, strict=True):
            h = layer.input_layernorm(x)
            q, k, v = (
                project(h).view(rows, length, -1, shape.head).transpose(1, 2)
                for project in (layer.q_proj, layer.k_proj, layer.v_proj)
            )
            buffer[0, :, :, start:end], buffer[1, :, :, start:end] = rotate(k, turn), v
            q = rotate(q, turn).reshape(rows, shape.kv_heads, groups * length, shape.head)
            scores = q @ buffer[0, :, :, :end].mT * shape.head**-0.5
            scores = scores.view(rows, shape.kv_heads, groups, length, end)
            scores = scores.masked_fill(~visible[:, None], -1e9).softmax(-1).to(kind)
            out = scores.view(rows, shape.kv_heads, groups * length, end) @ buffer[1, :, :, :end]
            out = out.view(rows, shape.heads, length, shape.head).transpose(1, 2)
            x = x + layer.o_proj(out.reshape(rows, length, -1))
            h = layer.post_attention_layernorm(x)
            x = x + layer.down_proj(functional.silu(layer.gate_proj(h)) * layer.up_proj(h))
        logits = net.logits(net.norm(x[:, -1])).float()
        warm = temperatures[alive]
        chances = (logits / warm.clamp(min=1e-3)[:, None]).softmax(-1)
        drawn = torch.multinomial(chances, 1, generator=rng)[:, 0]
        token = torch.where(warm > 0, drawn, logits.argmax(-1))
        for row, value in zip(alive.tolist(), token.tolist(), strict=True):
            said[row].append(value)
        ended[alive] |= token == END_ID
        stay = ~ended[alive]
        start = end
        if not stay.any() or start + 1 == width:
            return said
        # Ended rows are dropped when it is worth the copy; `cut` removes what they say after.
        if stay.float().mean() < 0.8:
            alive, pad, token = alive[stay], pad[stay], token[stay]
            buffers = [buffer[:, stay] for buffer in buffers]
        ids = token[:, None]


def cut(reply: list[int]) -> list[int]:
    return reply[: reply.index(END_ID) + 1] if END_ID in reply else reply


def sample(
    work: Path, *, name: str, count: int, rows: int, longest: int, seed: int, on: str
) -> None:
    """Write ``NAME.npz``: chats with the target's own reply at their end.

    ``heat`` is ten times the temperature that an id was drawn at, 10 for ids of the training text.
    The prompts of ``dialogues`` are drawn by source, and what the target wrote there is of kind 3.
    """
    net = half(load(str(work / "target.pt"), on))
    stored = np.load(work / "train.npz")
    heads = name == "dialogues"
    sources = stored["sources"] if heads else None
    todo = prompts(stored["ids"], stored["kinds"], count, seed, sources)
    # Prompts of like length share a batch; the batches come in random order.
    todo.sort(key=lambda prompt: len(prompt[0]))
    batches = [todo[at : at + rows] for at in range(0, count, rows)]
    Random(seed).shuffle(batches)
    rng = torch.Generator(device=on).manual_seed(seed)
    bar, begin = Bar("sample"), time.time()
    flat: list[int] = []
    kinds: list[int] = []
    heat: list[int] = []
    starts: list[int] = []
    done = total = 0
    for n, batch in enumerate(batches):
        degrees = torch.tensor([TEMPERATURES[(n + row) % 3] for row in range(len(batch))])
        written = replies(net, [prompt for prompt, _ in batch], degrees.to(on), longest, rng)
        made = 0
        for (prompt, kind), reply, degree in zip(
            batch, map(cut, written), degrees.tolist(), strict=True
        ):
            starts.append(len(flat))
            flat += prompt + reply
            kinds += kind + [3 if heads else 2] * len(reply)
            heat += [10] * len(prompt) + [round(10 * degree)] * len(reply)
            total += len(reply)
            made += len(reply)
        done += len(batch)
        used = time.time() - begin
        bar.show(done / count, used * (count - done) / done, n + 1, made, 0.0)
    np.savez(
        work / f"{name}.npz",
        ids=np.array(flat, np.uint16),
        kinds=np.array(kinds, np.uint8),
        heat=np.array(heat, np.uint8),
        starts=np.array(starts, np.int64),
    )
    print(f"{done} replies, {total:,} tokens written by the target")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--name", choices=("replies", "dialogues"), default="replies")
    parser.add_argument("--count", type=int, default=24_000)
    parser.add_argument("--rows", type=int, default=64, help="replies written at once")
    parser.add_argument("--longest", type=int, default=160, help="longest reply, in tokens")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    sample(
        args.work,
        name=args.name,
        count=args.count,
        rows=args.rows,
        longest=args.longest,
        seed=args.seed,
        on=device(args.device),
    )


if __name__ == "__main__":
    main()
