"""Step 2: a model from nothing on the encoded stream (the target, and the draft's start)."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from net import Net, Shape, save
from torch.nn import functional
from train import Bar, Schedule, autocast, device, held_out, keep, optimizers, set_rate, windows

SHAPES = {
    "target": Shape(width=384, layers=5, heads=6, kv_heads=2, inner=1024),
    "draft": Shape(width=128, layers=2, heads=2, kv_heads=1, inner=384),
    "short-target": Shape(width=64, layers=2, heads=2, kv_heads=1, inner=128, head=32),
    "short-draft": Shape(width=32, layers=1, heads=1, kv_heads=1, inner=64, head=32),
}
OTHERS = 0.3
"""Share of the tokens of users and systems that are learned; all of an assistant's are."""

LONG = 0.85
"""From this progress on, the windows are as long as the context."""


def pretrain(
    work: Path,
    name: str,
    shape: Shape,
    *,
    minutes: float | None,
    steps: int | None,
    tokens: int,
    muon: float,
    adam: float,
    seed: int,
    on: str,
) -> Net:
    """Train, or go on from the checkpoint; leaves ``NAME.pt`` and ``NAME.json`` in ``work``."""
    torch.manual_seed(seed)
    stored = np.load(work / "train.npz")
    ids, kinds = stored["ids"], stored["kinds"]
    net = Net(shape).to(on)
    made = optimizers(net, muon, adam)
    path = work / f"{name}.checkpoint"
    at, step, used, seen = 0, 0, 0.0, 0
    if path.exists():
        state = torch.load(path, map_location=on, weights_only=False)
        net.load_state_dict(state["weights"])
        for optimizer, its in zip(made, state["optimizers"], strict=True):
            optimizer.load_state_dict(its)
        at, step, used, seen = state["at"], state["step"], state["used"], state["seen"]
    schedule, bar = Schedule(minutes, steps, used), Bar(name)
    rng = torch.Generator().manual_seed(seed + step)
    kept = time.time()
    while (progress := schedule.progress(step)) < 1:
        length = shape.context if progress >= LONG else min(512, shape.context)
        rows = max(1, tokens // length)
        batch, kind = windows(ids, kinds, at, rows, length)
        at = (at + rows * length) % len(ids)
        lucky = torch.rand(kind.shape, generator=rng) < OTHERS
        said = ((kind == 2) | ((kind == 1) & lucky))[:, 1:].to(on)
        batch = batch.to(on)
        set_rate(made, schedule.rate(progress, step))
        with autocast(on):
            logits = net.logits(net(batch[:, :-1])[said])
        loss = functional.cross_entropy(logits.float(), batch[:, 1:][said])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        for optimizer in made:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step += 1
        seen += rows * length
        bar.show(schedule.progress(step), schedule.left(step), step, rows * length, loss.item())
        if time.time() - kept > 120:
            kept = time.time()
            keep(
                path,
                {
                    "weights": net.state_dict(),
                    "optimizers": [o.state_dict() for o in made],
                    "at": at,
                    "step": step,
                    "used": schedule.used,
                    "seen": seen,
                },
            )
    losses = held_out(net, work, on)
    save(net, str(work / f"{name}.pt"))
    report = {
        "parameters": net.count(),
        "steps": step,
        "tokens": seen,
        "minutes": schedule.used / 60,
        "device": on,
        "held_out": losses,
    }
    (work / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")
    path.unlink(missing_ok=True)
    print(json.dumps(report))
    return net


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--model", choices=tuple(SHAPES), default="target")
    parser.add_argument("--minutes", type=float, help="end after so much time, annealed")
    parser.add_argument("--steps", type=int, help="end after so many steps, annealed")
    parser.add_argument("--tokens", type=int, default=6144, help="tokens in a step")
    parser.add_argument("--muon", type=float, default=0.02, help="learning rate of matrices")
    parser.add_argument("--adam", type=float, default=0.004, help="learning rate of the rest")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    pretrain(
        args.work,
        args.model,
        SHAPES[args.model],
        minutes=args.minutes,
        steps=args.steps,
        tokens=args.tokens,
        muon=args.muon,
        adam=args.adam,
        seed=args.seed,
        on=device(args.device),
    )


if __name__ == "__main__":
    main()
