"""Step 3b: the draft learns to say what the target would say next.

On-policy distillation (DistillSpec, Zhou et al., arXiv:2310.08461): most rows of a step are chats
with a reply that the target itself wrote, the others are training chats. The loss mixes the forward
KL divergence with the total variation distance, and 1 minus that distance is the chance that a
drafted token is accepted (Leviathan et al., arXiv:2211.17192).
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from net import Net, half, load, save
from pretrain import SAID
from torch import Tensor
from torch.nn import functional
from train import Bar, Schedule, Trainer, device, held_out, keep, learned, windows

OWN = 0.7
"""Share of the rows that end with what the target wrote."""

COLDEST = 0.3
"""Temperature at which greedy replies are compared: argmax alone has no gradient."""


def divergence(
    draft: Net, target: Net, ids: Tensor, places: Tensor, heat: Tensor, mix: float
) -> Tensor:
    """The loss at these places of ``ids`` (rows, length), at each place's temperature.

    Args:
        heat: temperatures that the total variation is taken at; the KL is at 1.
        mix: share of the total variation in the loss.
    """
    with torch.no_grad():
        wanted = target.logits(target(ids).flatten(0, 1)[places]).float()
    said = draft.logits(draft(ids).flatten(0, 1)[places]).float()
    forward = functional.kl_div(
        said.log_softmax(-1), wanted.log_softmax(-1), reduction="batchmean", log_target=True
    )
    cold = heat.clamp(min=COLDEST)[:, None]
    apart = ((said / cold).softmax(-1) - (wanted / cold).softmax(-1)).abs().sum(-1).mean() / 2
    return (1 - mix) * forward + mix * apart


def packed(stored: dict[str, np.ndarray], rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """The target's replies with their prompts, in a new order, one after the other."""
    ends = np.append(stored["starts"][1:], len(stored["ids"]))
    order = rng.permutation(len(ends))
    index = np.concatenate([np.arange(stored["starts"][n], ends[n]) for n in order])
    return stored["ids"][index], stored["kinds"][index], stored["heat"][index]


def distil(
    work: Path,
    *,
    minutes: float | None,
    steps: int | None,
    tokens: int,
    muon: float,
    adam: float,
    mix: float,
    seed: int,
    on: str,
    fuse: bool,
) -> dict[str, object]:
    """Train ``draft.pt`` against ``target.pt``; leaves ``distilled.pt`` and its numbers."""
    target = half(load(str(work / "target.pt"), on)).requires_grad_(False)
    path = work / "distilled.checkpoint"
    net = load(str(work / "draft.pt"), on)
    trainer = Trainer(net, muon, adam)
    loss = torch.compile(divergence, dynamic=False) if fuse else divergence
    step, used, seen = 0, 0.0, 0
    if path.exists():
        state = torch.load(path, map_location=on, weights_only=False)
        trainer.restore(state)
        step, used, seen = state["step"], state["used"], state["seen"]
    chats, replies = dict(np.load(work / "train.npz")), dict(np.load(work / "replies.npz"))
    written = packed(replies, np.random.default_rng(seed))
    length = min(512, net.shape.context, len(written[0]) - 1)
    rows = max(1, round(OWN * tokens / length))
    others = max(1, tokens // length - rows)
    schedule, bar, kept = Schedule(minutes, steps, used), Bar("distil"), time.time()
    while (progress := schedule.progress(step)) < 1:
        at, chat_at = step * rows * length, step * others * length
        ours, kind = windows(written[0], written[1], at, rows, length)
        _, heat = windows(written[0], written[2], at, rows, length)
        theirs, other = windows(chats["ids"], chats["kinds"], chat_at, others, length)
        batch = torch.cat((ours, theirs))
        rng = torch.Generator().manual_seed(1000 * step + seed)
        places = learned(torch.cat((kind, other))[:, 1:], SAID, rng)
        warm = torch.cat((heat.float() / 10, torch.ones(theirs.shape)))[:, 1:].flatten()[places]
        value = trainer.step(
            partial(
                loss,
                target=target,
                ids=batch[:, :-1].contiguous().to(on),
                places=places.to(on),
                heat=warm.to(on),
                mix=mix,
            ),
            schedule.rate(progress, step),
        )
        step += 1
        seen += batch.numel()
        bar.show(schedule.progress(step), schedule.left(step), step, batch.numel(), value)
        if time.time() - kept > 120:
            kept = time.time()
            keep(path, trainer.state() | {"step": step, "used": schedule.used, "seen": seen})
    save(net, str(work / "distilled.pt"))
    path.unlink(missing_ok=True)
    report: dict[str, object] = {
        "parameters": net.count(),
        "steps": step,
        "tokens": seen,
        "minutes": schedule.used / 60,
        "device": on,
        "held_out": held_out(net, work, on),
    }
    (work / "distilled.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report))
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description="Step 3b: distil the draft.")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--tokens", type=int, default=12288)
    parser.add_argument("--muon", type=float, default=0.01)
    parser.add_argument("--adam", type=float, default=0.002)
    parser.add_argument(
        "--mix", type=float, default=0.5, help="share of total variation in the loss"
    )
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--no-fuse", action="store_true", help="do not compile the models")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    distil(
        args.work,
        minutes=args.minutes,
        steps=args.steps,
        tokens=args.tokens,
        muon=args.muon,
        adam=args.adam,
        mix=args.mix,
        seed=args.seed,
        on=device(args.device),
        fuse=not args.no_fuse,
    )


if __name__ == "__main__":
    main()
