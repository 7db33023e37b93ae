"""Step 3c: heads that draft from the target's hidden rows, trained beside the frozen target."""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from blocks import Block, DFlash, DSpark
from chains import MTP, WINDOW, Eagle, Head
from distil import OWN, packed
from net import Net, half, load
from pieces import END_ID
from safetensors.torch import save_file
from torch import Tensor
from train import Bar, Schedule, Trainer, device, keep, windows

KINDS = {"mtp": MTP, "eagle": Eagle, "dflash": DFlash, "dspark": DSpark}


def tensors(head: Head | Block) -> dict[str, Tensor]:
    """Under the names of the packaging, in bfloat16."""
    found = {}
    for name, weight in head.state_dict().items():
        for start in "qkvo":
            name = name.replace(f".{start}_proj", f".self_attn.{start}_proj")
        for start in ("gate", "up", "down"):
            name = name.replace(f".{start}_proj", f".mlp.{start}_proj")
        found[head.named(name)] = weight.to(torch.bfloat16).contiguous()
    return found


def usual(ids: np.ndarray, kinds: np.ndarray, count: int) -> Tensor:
    """The ``count`` tokens that assistants say most often, ascending; the end of a turn is one."""
    said = np.bincount(ids[kinds >= 2], minlength=count)
    said[END_ID] = len(ids)
    return torch.from_numpy(np.sort(np.argsort(-said, kind="stable")[:count]))


def value_of(head: Head | Block, target: Net, **batch: Tensor) -> Tensor:
    return head.loss(target, **batch)


def train_head(
    work: Path,
    kind: str,
    *,
    vocabulary: int,
    minutes: float | None,
    steps: int | None,
    tokens: int,
    muon: float,
    adam: float,
    seed: int,
    on: str,
    fuse: bool,
) -> dict[str, object]:
    """Train a head for ``target.pt``; leaves the folder ``KIND`` as macspec loads it.

    Args:
        vocabulary: tokens that the head guesses; 0: all.
    """
    torch.manual_seed(seed)
    target = half(load(str(work / "target.pt"), on)).requires_grad_(False)
    chats, replies = dict(np.load(work / "train.npz")), dict(np.load(work / "dialogues.npz"))
    written = packed(replies, np.random.default_rng(seed))
    pieces = target.shape.pieces
    some = min(vocabulary or pieces, pieces)
    ids = usual(*written[:2], some) if some < pieces else torch.arange(pieces)
    draft = load(str(work / "distilled.pt"), on)
    head = KINDS[kind](target.shape, draft, ids.to(on)).to(on)
    trainer = Trainer(head, muon, adam)
    loss = torch.compile(value_of, dynamic=False) if fuse else value_of
    path = work / f"{kind}.checkpoint"
    step, used, count = 0, 0.0, 0
    if path.exists():
        state = torch.load(path, map_location=on, weights_only=False)
        trainer.restore(state)
        step, used, count = state["step"], state["used"], state["seen"]
    length = min(WINDOW, target.shape.context, len(written[0]) - 1)
    rows = max(1, round(OWN * tokens / length))
    others = max(1, tokens // length - rows)
    schedule, bar, kept = Schedule(minutes, steps, used), Bar(kind), time.time()
    while (progress := schedule.progress(step)) < 1:
        own = windows(written[0], written[1], step * rows * length, rows, length)
        other = windows(chats["ids"], chats["kinds"], step * others * length, others, length)
        texts, kinds = (torch.cat(pair) for pair in zip(own, other, strict=True))
        rng = torch.Generator().manual_seed(1000 * step + seed)
        places = head.places(kinds, rng)
        batch = {"ids": texts.to(on), "kinds": kinds.to(on), "places": places.to(on)}
        value = trainer.step(partial(loss, target=target, **batch), schedule.rate(progress, step))
        step += 1
        count += texts.numel()
        bar.show(schedule.progress(step), schedule.left(step), step, texts.numel(), value)
        if time.time() - kept > 120:
            kept = time.time()
            keep(path, trainer.state() | {"step": step, "used": schedule.used, "seen": count})
    folder = work / kind
    folder.mkdir(exist_ok=True)
    files, config = tensors(head), head.config()
    if some < pieces:
        files["d2t"] = ids - torch.arange(some)
        config["draft_vocab_size"] = some
    save_file(files, str(folder / "model.safetensors"), {"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    path.unlink(missing_ok=True)
    report: dict[str, object] = {
        "parameters": sum(weight.numel() for weight in head.parameters()),
        "steps": step,
        "tokens": count,
        "minutes": schedule.used / 60,
    }
    print(json.dumps(report))
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description="Step 3c: train a head.")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--vocabulary", type=int, default=0, help="tokens that it guesses; 0: all")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--tokens", type=int, default=4096, help="tokens in a step")
    parser.add_argument("--muon", type=float, default=0.02, help="learning rate of matrices")
    parser.add_argument("--adam", type=float, default=0.002, help="learning rate of the rest")
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--no-fuse", action="store_true", help="do not compile the head")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    train_head(
        args.work,
        args.kind,
        vocabulary=args.vocabulary,
        minutes=args.minutes,
        steps=args.steps,
        tokens=args.tokens,
        muon=args.muon,
        adam=args.adam,
        seed=args.seed,
        on=device(args.device),
        fuse=not args.no_fuse,
    )


if __name__ == "__main__":
    main()
