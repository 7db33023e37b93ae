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
from pathlib import Path

import numpy as np
import torch
from net import load, save
from torch import Tensor
from train import Bar, Schedule, autocast, device, held_out, keep, optimizers, set_rate, windows

OWN = 0.7
"""Share of the rows that end with what the target wrote."""

COLDEST = 0.3
"""Temperature at which greedy replies are compared: argmax alone has no gradient."""


def divergence(draft: Tensor, target: Tensor, heat: Tensor, mix: float) -> tuple[Tensor, Tensor]:
    """The loss and the mean overlap of two rows of logits, at each row's temperature.

    Args:
        draft, target: (rows, vocabulary).
        heat: (rows,) temperatures that the total variation is taken at; the KL is at 1.
        mix: share of the total variation in the loss.
    """
    said, wanted = draft.log_softmax(-1), target.log_softmax(-1)
    forward = (wanted.exp() * (wanted - said)).sum(-1).mean()
    cold = heat.clamp(min=COLDEST)[:, None]
    overlap = torch.minimum((draft / cold).softmax(-1), (target / cold).softmax(-1)).sum(-1).mean()
    return (1 - mix) * forward + mix * (1 - overlap), overlap


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
) -> dict[str, object]:
    """Train ``draft.pt`` against ``target.pt``; leaves ``distilled.pt`` and its numbers."""
    target = load(str(work / "target.pt"), on).eval()
    path = work / "distilled.checkpoint"
    net = load(str(work / "draft.pt"), on)
    made = optimizers(net, muon, adam)
    step, used, seen = 0, 0.0, 0
    if path.exists():
        state = torch.load(path, map_location=on, weights_only=False)
        net.load_state_dict(state["weights"])
        for optimizer, its in zip(made, state["optimizers"], strict=True):
            optimizer.load_state_dict(its)
        step, used, seen = state["step"], state["used"], state["seen"]
    chats, replies = dict(np.load(work / "train.npz")), dict(np.load(work / "replies.npz"))
    rng = np.random.default_rng(seed + step)
    written = packed(replies, rng)
    length = min(512, net.shape.context, len(written[0]) - 1)
    rows = max(1, round(OWN * tokens / length))
    others = max(1, tokens // length - rows)
    at, chat_at = 0, int(rng.integers(len(chats["ids"])))
    schedule, bar, kept = Schedule(minutes, steps, used), Bar("distil"), time.time()
    shares: list[float] = []
    while (progress := schedule.progress(step)) < 1:
        if at + rows * length >= len(written[0]):
            written, at = packed(replies, rng), 0
        ours, kind = windows(written[0], written[1], at, rows, length)
        _, heat = windows(written[0], written[2], at, rows, length)
        theirs, other = windows(chats["ids"], chats["kinds"], chat_at, others, length)
        at, chat_at = at + rows * length, (chat_at + others * length) % len(chats["ids"])
        batch = torch.cat((ours, theirs)).to(on)
        said = (torch.cat((kind, other))[:, 1:] == 2).to(on)
        warm = torch.cat((heat.float() / 10, torch.ones(theirs.shape)))[:, 1:].to(on)[said]
        set_rate(made, schedule.rate(progress, step))
        with autocast(on):
            with torch.no_grad():
                wanted = target.logits(target(batch[:, :-1])[said])
            logits = net.logits(net(batch[:, :-1])[said])
        loss, overlap = divergence(logits.float(), wanted.float(), warm, mix)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        for optimizer in made:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step += 1
        seen += batch.numel()
        shares = [*shares[-49:], overlap.item()]
        bar.show(schedule.progress(step), schedule.left(step), step, batch.numel(), loss.item())
        if time.time() - kept > 120:
            kept = time.time()
            keep(
                path,
                {
                    "weights": net.state_dict(),
                    "optimizers": [o.state_dict() for o in made],
                    "step": step,
                    "used": schedule.used,
                    "seen": seen,
                },
            )
    save(net, str(work / "distilled.pt"))
    path.unlink(missing_ok=True)
    report: dict[str, object] = {
        "parameters": net.count(),
        "steps": step,
        "tokens": seen,
        "minutes": schedule.used / 60,
        "device": on,
        "overlap": sum(shares) / max(len(shares), 1),
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
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--muon", type=float, default=0.01)
    parser.add_argument("--adam", type=float, default=0.002)
    parser.add_argument(
        "--mix", type=float, default=0.5, help="share of total variation in the loss"
    )
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", default="auto")
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
    )


if __name__ == "__main__":
    main()
