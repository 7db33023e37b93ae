"""Step 2: a model from nothing on the encoded stream (the target, and the draft's start)."""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from net import Net, Shape, save
from torch import Tensor
from torch.nn import functional
from train import Bar, Schedule, Trainer, device, held_out, keep, learned, windows

SHAPES = {
    "target": Shape(width=320, layers=8, heads=5, kv_heads=1, inner=896),
    "draft": Shape(width=160, layers=1, heads=2, kv_heads=1, inner=512),
    "short-target": Shape(width=64, layers=2, heads=2, kv_heads=1, inner=128, head=32),
    "short-draft": Shape(width=32, layers=1, heads=1, kv_heads=1, inner=64, head=32),
}
SAID = 0.62
"""Share of the tokens that are learned: an assistant's first, see ``learned``."""

STAGES = ((0.75, 256), (0.94, 512), (1.0, 2048))
"""Windows are this long up to this progress; the last are as long as the context."""


def likelihood(net: Net, ids: Tensor, wanted: Tensor, places: Tensor) -> Tensor:
    """Mean negative log likelihood of ``wanted`` at these places of (rows, length)."""
    logits = net.logits(net(ids).flatten(0, 1)[places])
    return functional.cross_entropy(logits.float(), wanted.flatten()[places])


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
    fuse: bool,
) -> Net:
    """Train, or go on from the checkpoint; leaves ``NAME.pt`` and ``NAME.json`` in ``work``."""
    torch.manual_seed(seed)
    stored = np.load(work / "train.npz")
    ids, kinds = stored["ids"], stored["kinds"]
    net = Net(shape).to(on)
    trainer = Trainer(net, muon, adam)
    loss = torch.compile(likelihood, dynamic=False) if fuse else likelihood
    path = work / f"{name}.checkpoint"
    at, step, used, seen = 0, 0, 0.0, 0
    if path.exists():
        state = torch.load(path, map_location=on, weights_only=False)
        trainer.restore(state)
        at, step, used, seen = state["at"], state["step"], state["used"], state["seen"]
    schedule, bar = Schedule(minutes, steps, used), Bar(name)
    kept = time.time()
    while (progress := schedule.progress(step)) < 1:
        length = min(shape.context, next(long for end, long in STAGES if progress < end))
        rows = max(1, tokens // length)
        batch, kind = windows(ids, kinds, at, rows, length)
        at = (at + rows * length) % len(ids)
        places = learned(kind[:, 1:], SAID, torch.Generator().manual_seed(1000 * step + seed))
        said, wanted = batch[:, :-1].contiguous().to(on), batch[:, 1:].contiguous().to(on)
        value = trainer.step(
            partial(loss, ids=said, wanted=wanted, places=places.to(on)),
            schedule.rate(progress, step),
        )
        step += 1
        seen += rows * length
        bar.show(schedule.progress(step), schedule.left(step), step, rows * length, value)
        if time.time() - kept > 120:
            kept = time.time()
            more = {"at": at, "step": step, "used": schedule.used, "seen": seen}
            keep(path, trainer.state() | more)
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
    parser.add_argument("--tokens", type=int, default=12288, help="tokens in a step")
    parser.add_argument("--muon", type=float, default=0.02, help="learning rate of matrices")
    parser.add_argument("--adam", type=float, default=0.004, help="learning rate of the rest")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--no-fuse", action="store_true", help="do not compile the model: slower, no C++ compiler"
    )
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
        fuse=not args.no_fuse,
    )


if __name__ == "__main__":
    main()
