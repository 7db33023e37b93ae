"""Random passes for the sampling kernels, and what must come of each, in float64."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
from harness import Outputs, launching, run

from macspec.metal.kernel import Kernel, Launch
from macspec.noise import ACCEPT, DRAFT, RESIDUAL, TARGET, Noise, bits, row_key, to_gumbel
from macspec.sampling import Sampling
from macspec.verification import Verdict

# The enumeration that proves the rules themselves.
sys.path.append(str(Path(__file__).resolve().parents[1] / "unit"))

Array = np.ndarray[Any, np.dtype[Any]]
NEAR = 1e-5
TYPES = (mx.float32, mx.float16, mx.bfloat16)


def wide(array: mx.array) -> Array:
    return np.array(array.astype(mx.float32)).astype(np.float64)


def gumbel(noise: Noise, stream: int, row: int, width: int) -> Array:
    """Noise [width] of one row, in float64 from the float32 values."""
    draw = 0 if stream == TARGET else noise.draw
    keys = mx.array([row_key(noise.seed, stream, noise.position + row, draw)], mx.uint32)
    return wide(to_gumbel(bits(keys, mx.arange(width, dtype=mx.uint32))))[0]


@dataclass(frozen=True)
class Distribution:
    """A row's log-probabilities [V], and whether rounding may move what truncation keeps."""

    log_p: Array
    near: bool


def distribution(sampling: Sampling, logits: Array) -> Distribution:
    """The pipeline on one row [V], in float64 and with a sort."""
    log_p = logits - np.logaddexp.reduce(logits)
    _, group = np.unique(log_p, return_inverse=True)
    keep, near = np.isfinite(log_p), False
    if sampling.top_p < 1:
        mass = np.bincount(group, np.exp(log_p))
        above = np.cumsum(mass[::-1])[::-1] - mass
        keep &= (above < sampling.top_p)[group]
        near |= bool(np.any(np.abs(above - sampling.top_p) < NEAR))
    if sampling.min_p > 0:
        floor = log_p.max() + math.log(sampling.min_p)
        keep &= log_p >= floor
        near |= bool(np.any(np.abs(log_p - floor) < NEAR))
    if 0 < sampling.top_k < keep.sum():
        ranked = np.argsort(np.where(keep, -log_p, np.inf), kind="stable")
        keep[ranked[sampling.top_k :]] = False
    if keep.any() and not keep.all():
        last, first = log_p[keep].min(), log_p[~keep].max()
        near |= 0 < last - first < NEAR
    tempered = np.where(keep, log_p, -np.inf) / (sampling.temperature or 1)
    return Distribution(tempered - np.logaddexp.reduce(tempered), near)


@dataclass(frozen=True)
class Pass:
    """A pass over a chain of K tokens.

    Attributes:
        rule: by which the chain was drafted.
        logits: [K + 1, V].
        drafted: [K].
        log_q: [K, W] under the block rule.
        noise: None when greedy.
    """

    rule: str
    sampling: Sampling
    logits: mx.array
    drafted: mx.array
    log_q: mx.array | None
    noise: Noise | None

    @property
    def size(self) -> int:
        """V."""
        return int(self.logits.shape[1])

    @property
    def arguments(self) -> tuple[Any, ...]:
        return self.sampling, self.logits, self.drafted, self.log_q, self.noise


@dataclass(frozen=True)
class Outcome:
    """What must come of a pass, and how far it is from another outcome."""

    accepted: int
    token: int
    margin: float


def best(scores: Array) -> tuple[int, float]:
    """The best id and its lead."""
    first = int(np.argmax(scores))
    others = np.delete(scores, first)
    with np.errstate(invalid="ignore"):
        lead = scores[first] - others.max(initial=-np.inf)
    return first, float(lead)


def outcome(case: Pass) -> Outcome:
    """The rules' own definitions in float64, fed with the same noise."""
    rows = wide(case.logits)
    drafted = np.array(case.drafted).tolist()
    if case.noise is None:
        drawn = [best(row) for row in rows]
        # Equals are no matter of rounding: the first counts.
        leads = [lead if lead > 0 else math.inf for _, lead in drawn]
        return _first_mismatch([token for token, _ in drawn], leads, drafted)
    made = [distribution(case.sampling, row) for row in rows]
    near = 0.0 if any(one.near for one in made) else math.inf
    if case.log_q is None:
        drawn = [
            best(one.log_p + gumbel(case.noise, TARGET, i, case.size)) for i, one in enumerate(made)
        ]
        found = _first_mismatch([token for token, _ in drawn], [lead for _, lead in drawn], drafted)
        return Outcome(found.accepted, found.token, min(found.margin, near))
    return _block(case, np.exp([one.log_p for one in made]), drafted, near)


def _first_mismatch(drawn: list[int], leads: list[float], drafted: list[int]) -> Outcome:
    accepted = next((i for i, x in enumerate(drafted) if drawn[i] != x), len(drafted))
    return Outcome(accepted, drawn[accepted], min(leads[: accepted + 1]))


def _block(case: Pass, p: Array, drafted: list[int], near: float) -> Outcome:
    from exact import block_reference, normalised

    assert case.noise is not None
    assert case.log_q is not None
    log_q = wide(case.log_q)[:, : case.size]
    missing = case.size - log_q.shape[1]
    q = np.exp(np.pad(log_q, [(0, 0), (0, missing)], constant_values=-np.inf))
    h, weights = block_reference(p, q, drafted)
    u = wide(case.noise.uniform(ACCEPT))[: len(drafted)]
    accepted = max((i + 1 for i in range(len(drafted)) if u[i] <= h[i]), default=0)
    with np.errstate(divide="ignore"):
        following = np.log(normalised(weights[accepted], p[accepted]))
    token, lead = best(following + gumbel(case.noise, RESIDUAL, 0, case.size))
    return Outcome(accepted, token, min(lead, float(np.abs(u - h).min()), near))


def sampling_of(rng: np.random.Generator, width: int) -> Sampling:
    """A pipeline of any stages."""
    on = rng.random(3) < 0.4
    return Sampling(
        temperature=float(rng.choice([0.3, 0.7, 1.0, 1.4])),
        top_p=float(rng.uniform(0.3, 0.99)) if on[0] else 1.0,
        top_k=int(rng.integers(1, width + 2)) if on[1] else 0,
        min_p=float(rng.choice([0.01, 0.1])) if on[2] else 0.0,
    )


def logits_of(rng: np.random.Generator, rows: int, width: int) -> Array:
    """Logits [rows, width]: smooth, or with many equals, or all equal; some with -inf."""
    kind = rng.integers(8)
    made = rng.normal(scale=rng.choice([1, 3]), size=(rows, width))
    if kind in (0, 1):
        made = np.rint(made)
    elif kind == 2:
        made[rng.integers(rows)] = 1.5
    elif kind == 3:
        made[rng.random((rows, width)) < 0.5] = -np.inf
        made[:, 0] = 1
    return made


def passes(seed: int, count: int, shapes: tuple[tuple[int, int, mx.Dtype], ...]) -> Iterator[Pass]:
    """Passes as the loop makes them, all rules in turn; ``shapes`` are depth, V and type."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        depth, width, dtype = shapes[number // 4 % len(shapes)]
        rule = ("block", "keyed", "match", "greedy")[number % 4]
        yield one_pass(rng, rule, depth, width, dtype)


def one_pass(rng: np.random.Generator, rule: str, depth: int, width: int, dtype: mx.Dtype) -> Pass:
    sampling = Sampling(temperature=0) if rule == "greedy" else sampling_of(rng, width)
    size = width - int(rng.integers(3)) if width > 6 else width
    draft_width = max(width + int(rng.integers(-2, 3)), 2)
    shared = min(size, draft_width)
    noise = None
    if rule != "greedy":
        seed, draw, position = (int(rng.integers(n)) for n in (2**63, 500, 30_000))
        noise = Noise(seed, draw, position, depth + 1, size)
    logits = logits_of(rng, depth + 1, width)
    cast = mx.array(logits[:, :size], mx.float32).astype(dtype)
    if depth == 0:
        return Pass(rule, sampling, cast, mx.zeros((0,), mx.uint32), None, noise)
    likeness = rng.choice([0.0, 0.1, 0.5, 1.5])
    draft = np.pad(logits[:-1], [(0, 0), (0, max(draft_width - width, 0))])[:, :shared]
    draft = draft + rng.normal(scale=likeness, size=draft.shape)
    drawn = scores = sampling.scores(mx.array(draft, mx.float32))
    if noise is not None and rule != "match":
        stream = DRAFT if rule == "block" else TARGET
        drawn = scores + noise.gumbel(stream)[:depth, :shared]
    log_q = None
    if rule == "block":
        beyond = [(0, 0), (0, draft_width - shared)]
        log_q = mx.pad(scores, beyond, constant_values=-mx.inf)
    drafted = mx.argmax(drawn, axis=-1)
    return Pass(rule, sampling, cast, drafted, log_q, noise)


class Ran(NamedTuple):
    """One launch that went through every layer of the harness."""

    kernel: str
    outputs: Outputs


@contextmanager
def through_every_layer(*, skewed: bool = False) -> Iterator[list[Ran]]:
    """Every launch inside is inspected and run in all orders, fused and not, with the same bits."""
    ran: list[Ran] = []

    def call(kernel: Kernel, arrays: Sequence[mx.array], launch: Launch) -> list[mx.array]:
        outputs = run(kernel, arrays, launch, same_bits=True, skewed=skewed)
        ran.append(Ran(kernel.name, outputs))
        return list(outputs)

    with launching(call):
        yield ran


def verdict(case: Verdict) -> tuple[int, int]:
    """How many stand, and the token."""
    return int(case.accepted.item()), int(case.token.item())
