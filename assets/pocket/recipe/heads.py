"""Step 3c: heads that draft from the target's hidden rows, trained beside the frozen target."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from blocks import DFlash, DSpark, reduced
from chains import MTP, Eagle
from distil import OWN, packed
from net import load
from pieces import END_ID
from safetensors.torch import save_file
from torch import Tensor
from train import Bar, Schedule, device, keep, windows

KINDS = {"mtp": MTP, "eagle": Eagle, "dflash": DFlash, "dspark": DSpark}


def tensors(head: MTP | Eagle | DFlash | DSpark) -> dict[str, Tensor]:
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
    said = np.bincount(ids[kinds == 2], minlength=count)
    said[END_ID] = len(ids)
    return torch.from_numpy(np.sort(np.argsort(-said, kind="stable")[:count]))


def train_head(
    work: Path,
    kind: str,
    *,
    vocabulary: int,
    minutes: float | None,
    steps: int | None,
    tokens: int,
    rate: float,
    seed: int,
    on: str,
) -> dict[str, object]:
    """Train a head for ``target.pt``; leaves the folder ``KIND`` as macspec loads it.

    Args:
        vocabulary: tokens that a block head guesses; 0: all.
    """
    torch.manual_seed(seed)
    target = load(str(work / "target.pt"), on).requires_grad_(False)
    head = KINDS[kind](target.shape).to(on)
    path = work / f"{kind}.checkpoint"
    optimizer = torch.optim.AdamW(head.parameters(), rate, betas=(0.9, 0.95), weight_decay=0.01)
    step, used, count = 0, 0.0, 0
    if path.exists():
        state = torch.load(path, map_location=on, weights_only=False)
        head.load_state_dict(state["weights"])
        optimizer.load_state_dict(state["optimizer"])
        step, used, count = state["step"], state["used"], state["seen"]
    chats, replies = dict(np.load(work / "train.npz")), dict(np.load(work / "replies.npz"))
    written = packed(replies, np.random.default_rng(seed))
    length = min(256, target.shape.context, len(written[0]) - 1)
    rows = max(1, round(OWN * tokens / length))
    others = max(1, tokens // length - rows)
    schedule, bar, kept = Schedule(minutes, steps, used), Bar(kind), time.time()
    while (progress := schedule.progress(step)) < 1:
        own = windows(written[0], written[1], step * rows * length, rows, length)
        other = windows(chats["ids"], chats["kinds"], step * others * length, others, length)
        ids, kinds = (torch.cat(pair) for pair in zip(own, other, strict=True))
        rng = torch.Generator().manual_seed(1000 * step + seed)
        for group in optimizer.param_groups:
            group["lr"] = rate * schedule.rate(progress, step)
        value = head.loss(target, ids.to(on), kinds, rng)
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        step += 1
        count += ids.numel()
        bar.show(schedule.progress(step), schedule.left(step), step, ids.numel(), value.item())
        if time.time() - kept > 120:
            kept = time.time()
            state = {"weights": head.state_dict(), "optimizer": optimizer.state_dict()}
            keep(path, state | {"step": step, "used": schedule.used, "seen": count})
    folder = work / kind
    folder.mkdir(exist_ok=True)
    files, config = tensors(head), head.config()
    if vocabulary and isinstance(head, DFlash | DSpark):
        files, config = reduced(files, config, usual(*written[:2], vocabulary))
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
    parser.add_argument("--vocabulary", type=int, default=0, help="of a block head; 0: all")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--rate", type=float, default=0.002)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", default="auto")
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
        rate=args.rate,
        seed=args.seed,
        on=device(args.device),
    )


if __name__ == "__main__":
    main()
