"""What every training step shares: optimizer, schedule, progress, checkpoints, devices."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic

import numpy as np
import torch
from net import Module, Net, half
from torch import Tensor, nn


def device(name: str) -> str:
    if name != "auto":
        return name
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def orthogonal(gradient: Tensor, steps: int = 5) -> Tensor:
    """The nearest orthogonal matrix, roughly, by Newton-Schulz (Muon, Jordan et al. 2024)."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = gradient.bfloat16()
    flip = x.shape[-2] > x.shape[-1]
    if flip:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return (x.mT if flip else x).float()


class Muon(torch.optim.Optimizer):
    """Momentum whose step is made orthogonal, for matrices; equal shapes are done at once."""

    def __init__(
        self, weights: list[Tensor], lr: float, momentum: float = 0.95, decay: float = 0.0
    ):
        super().__init__(weights, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            shapes: dict[tuple[int, ...], list[Tensor]] = {}
            for weight in group["params"]:
                shapes.setdefault(tuple(weight.shape), []).append(weight)
            for weights in shapes.values():
                steps = []
                for weight in weights:
                    state = self.state[weight]
                    if not state:
                        state["speed"] = torch.zeros_like(weight)
                    state["speed"].lerp_(weight.grad, 1 - group["momentum"])
                    steps.append(weight.grad.lerp(state["speed"], group["momentum"]))
                rows, columns = weights[0].shape
                scale = group["lr"] * max(1.0, rows / columns) ** 0.5
                for weight, step in zip(weights, orthogonal(torch.stack(steps)), strict=True):
                    weight.mul_(1 - group["lr"] * group["decay"])
                    weight.add_(step, alpha=-scale)


def optimizers(net: nn.Module, muon: float, adam: float) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, Adam for embeddings and norms."""
    named = list(net.named_parameters())
    matrices = [w for name, w in named if "proj" in name or name == "fc.weight"]
    others = [w for name, w in named if not ("proj" in name or name == "fc.weight")]
    made: list[torch.optim.Optimizer] = [
        Muon(matrices, muon, decay=0.1),
        torch.optim.AdamW(others, adam, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    for optimizer in made:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return made


class Schedule:
    """Progress from 0 to 1 by steps or by the clock, and the learning rate that follows it.

    The clock goes on while the process is stopped, so that training ends when it was asked to,
    annealed. Time used before a restart counts; time between does not.
    """

    def __init__(self, minutes: float | None, steps: int | None, used: float = 0.0) -> None:
        if (minutes is None) == (steps is None):
            raise SystemExit("give either --minutes or --steps")
        self.seconds = None if minutes is None else 60 * minutes
        self.steps = steps
        self.start = time.time() - used

    @property
    def used(self) -> float:
        return time.time() - self.start

    def progress(self, step: int) -> float:
        if self.seconds is not None:
            return min(1.0, self.used / self.seconds)
        assert self.steps is not None
        return min(1.0, step / self.steps)

    def left(self, step: int) -> float:
        progress = max(1e-6, self.progress(step))
        return self.used * (1 - progress) / progress

    @staticmethod
    def rate(progress: float, step: int, warmup: int = 30, decay: float = 0.35) -> float:
        """Up over the first steps, level, down to nearly nothing over the last part."""
        return min(1.0, (step + 1) / warmup, max(0.02, (1 - progress) / decay))


class Trainer(Generic[Module]):
    """A net in float32, trained through a bfloat16 copy of itself.

    Nearly everything is then computed and moved in 16 bits, and small steps still add up.
    """

    def __init__(self, net: Module, muon: float, adam: float) -> None:
        self.net, self.working = net, half(net)
        self.optimizers = optimizers(net, muon, adam)
        self.pairs = list(zip(net.parameters(), self.working.parameters(), strict=True))

    def step(self, loss: Callable[[Module], Tensor], rate: float) -> float:
        """One step down ``loss`` of the copy, at this share of the learning rates' peaks."""
        with torch.no_grad():
            for weight, copied in self.pairs:
                copied.copy_(weight)
        value = loss(self.working)
        value.backward()
        for weight, copied in self.pairs:
            assert copied.grad is not None
            weight.grad, copied.grad = copied.grad.float(), None
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return value.item()

    def state(self) -> dict[str, Any]:
        return {
            "weights": self.net.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.net.load_state_dict(state["weights"])
        for optimizer, its in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(its)


class Bar:
    """A line with progress, speed, time left and the loss; on no terminal, a line now and then."""

    def __init__(self, name: str) -> None:
        self.name, self.tokens, self.at, self.loss, self.shown = name, 0, time.time(), 0.0, 0.0
        self.speed = 0.0

    def show(self, progress: float, left: float, step: int, tokens: int, loss: float) -> None:
        now = time.time()
        speed = tokens / max(now - self.at, 1e-6)
        self.speed = speed if not self.speed else 0.95 * self.speed + 0.05 * speed
        self.loss = loss if not self.loss else 0.95 * self.loss + 0.05 * loss
        self.at = now
        self.tokens += tokens
        terminal = sys.stderr.isatty()
        if now - self.shown < (0.5 if terminal else 20) and progress < 1:
            return
        self.shown = now
        filled = round(24 * progress)
        line = (
            f"{self.name} [{'#' * filled}{'.' * (24 - filled)}] {100 * progress:3.0f}% "
            f"step {step} {self.tokens / 1e6:.2f}M tokens {self.speed:,.0f}/s "
            f"{left / 60:.1f} min left loss {self.loss:.3f}"
        )
        print(line, end="\r" if terminal and progress < 1 else "\n", file=sys.stderr, flush=True)


def windows(
    ids: np.ndarray, kinds: np.ndarray, at: int, rows: int, length: int
) -> tuple[Tensor, Tensor]:
    """``rows`` windows of ``length + 1`` from the stream at ``at``, round its end."""
    index = (at + np.arange(rows * length + 1)) % len(ids)
    flat, kind = ids[index].astype(np.int64), kinds[index]
    picks = (np.arange(rows) * length)[:, None] + np.arange(length + 1)
    return torch.from_numpy(flat[picks]), torch.from_numpy(kind[picks])


def keep(path: Path, state: dict[str, Any]) -> None:
    """A checkpoint that is either whole or not there."""
    aside = path.with_suffix(".new")
    torch.save(state, aside)
    os.replace(aside, path)


def learned(kinds: Tensor, share: float, rng: torch.Generator) -> Tensor:
    """Where the loss is taken: places in the flattened ``kinds``, ``share`` of them, in order.

    What the target wrote comes first, then other tokens of assistants, then users' and systems' by
    chance. Their number is always the same, so that every step has the same shapes: compiled once,
    and memory is used again.
    """
    flat = kinds.flatten()
    wish = torch.rand(flat.shape, generator=rng) + flat
    return wish.topk(int(share * len(flat))).indices.sort().values


MIX = 0.5
"""Share of the total variation in a head's loss; the rest is the KL divergence."""


def parted(said: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Of log-probabilities (..., pieces): the loss of each row, and its total variation.

    What is wanted may leave pieces out, as those that a head does not guess.
    """
    chances = wanted.exp()
    forward = (chances * (wanted - said)).sum(-1)
    apart = ((said.exp() - chances).abs().sum(-1) + 1 - chances.sum(-1)) / 2
    return (1 - MIX) * forward + MIX * apart, apart


@torch.no_grad()
def held_out(net: Net, work: Path, on: str, limit: int = 60_000) -> dict[str, float]:
    """Nats per token of assistants' turns on the held-out chats, by source and over all."""
    net = half(net)
    losses: dict[str, float] = {}
    for path in sorted(work.glob("held-*.npz")):
        stored = np.load(path)
        ids, kinds = stored["ids"][:limit], stored["kinds"][:limit]
        total, count, length = 0.0, 0, min(512, len(ids) - 1)
        for at in range(0, len(ids) - length, 8 * length):
            rows = min(8, (len(ids) - 1 - at) // length)
            batch, kind = windows(ids, kinds, at, rows, length)
            batch, kind = batch.to(on), kind.to(on)
            said = kind[:, 1:] == 2
            logits = net.logits(net(batch[:, :-1])[said])
            total += torch.nn.functional.cross_entropy(
                logits.float(), batch[:, 1:][said], reduction="sum"
            ).item()
            count += int(said.sum())
        losses[path.stem.removeprefix("held-")] = total / max(count, 1)
    losses["mean"] = sum(losses.values()) / len(losses)
    return losses
