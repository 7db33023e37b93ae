"""Every step in a row: from texts to a pair in OUT/target and OUT/draft."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from convert import convert
from distil import distil
from heads import KINDS, train_head
from net import load
from prepare import OURS, prepare
from pretrain import SHAPES, pretrain
from sample import sample
from train import device


def short(work: Path, out: Path, on: str, seed: int = 1) -> None:
    """A pair of tiny models and four heads from our own conversations alone, in about a minute."""
    prepare(work, None, ours=1500, size=640, seed=seed)
    plain = {"minutes": None, "tokens": 2048, "muon": 0.02, "adam": 0.005, "on": on, "fuse": False}
    for name, steps in (("target", 60), ("draft", 40)):
        shape = replace(SHAPES[f"short-{name}"], pieces=640, context=512)
        pretrain(work, name, shape, steps=steps, seed=seed, **plain)
    for name in ("replies", "dialogues"):
        sample(work, name=name, count=32, rows=32, longest=48, seed=seed, on=on)
    distil(work, steps=20, mix=0.5, seed=seed, **plain)
    for kind in KINDS:
        train_head(
            work,
            kind,
            vocabulary=256,
            minutes=None,
            steps=4,
            tokens=1024,
            muon=0.02,
            adam=0.005,
            seed=seed,
            on=on,
            fuse=False,
        )
    finish(work, out)


def full(work: Path, out: Path, texts: Path, scale: float, on: str, fuse: bool) -> None:
    """The shipped pair, at ``scale`` 1; what ``work`` holds already is not made again."""

    def steps(count: int) -> int:
        return max(1, round(scale * count))

    plain = {"minutes": None, "tokens": 12288, "muon": 0.02, "on": on, "fuse": fuse}
    if not (work / "train.npz").exists():
        prepare(work, texts, ours=OURS, size=4096, seed=1)
    for name, count, adam in (("target", 1500, 0.003), ("draft", 1200, 0.004)):
        if not (work / f"{name}.pt").exists():
            pretrain(work, name, SHAPES[name], steps=steps(count), adam=adam, seed=1, **plain)
    if not (work / "replies.npz").exists():
        sample(work, name="replies", count=steps(24_000), rows=64, longest=160, seed=2, on=on)
    if not (work / "distilled.pt").exists():
        plain |= {"muon": 0.01, "adam": 0.002}
        distil(work, steps=steps(600), mix=0.5, seed=3, **plain)
    finish(work, out)


def finish(work: Path, out: Path) -> None:
    pieces = (work / "pieces.model").read_bytes()
    convert(load(str(work / "target.pt")), pieces, out / "target")
    convert(load(str(work / "distilled.pt")), pieces, out / "draft")
    print(f"wrote {out}/target and {out}/draft")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for everything made on the way"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the two models")
    parser.add_argument("--texts", type=Path, help="folder with the public texts")
    parser.add_argument(
        "--short", action="store_true", help="tiny models from our own conversations"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="times the usual steps")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or mps")
    parser.add_argument("--no-fuse", action="store_true", help="do not compile the models")
    args = parser.parse_args()
    # Threads that wait for each other cost more than such small models gain from them.
    threads = args.threads or (1 if args.short else 0)
    if threads:
        torch.set_num_threads(threads)
    if args.short:
        short(args.work, args.out, device(args.device))
    elif args.texts is None:
        parser.error("give --texts, the folder with the public texts, or --short")
    else:
        full(args.work, args.out, args.texts, args.scale, device(args.device), not args.no_fuse)


if __name__ == "__main__":
    main()
