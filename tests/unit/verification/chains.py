"""Two tiny models whose next token depends on the last two, and what a rule writes with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from exact import Array

from macspec.noise import ACCEPT, DRAFT, RESIDUAL, TARGET, bits, row_key, to_gumbel
from macspec.verification import Rule

SIZE = 4
START = (0, 1)
"""The prompt."""

Policy = Callable[[Array], Array]
"""From q [n, K] of the drafted tokens to how many of them, [n], are verified."""


@dataclass(frozen=True)
class Tables:
    """log p and log q of the token after (a, b), [SIZE, SIZE, SIZE]."""

    p: Array
    q: Array

    @classmethod
    def random(cls, seed: int) -> Tables:
        rng = np.random.default_rng(seed)
        p = rng.dirichlet(np.full(SIZE, 1.0), (SIZE, SIZE)) * 0.9 + 0.1 / SIZE
        q = 0.5 * p + 0.5 * rng.dirichlet(np.full(SIZE, 0.7), (SIZE, SIZE))
        return cls(np.log(p).astype(np.float32), np.log(q).astype(np.float32))

    def joint(self, length: int) -> Array:
        """The target's distribution of the first tokens, [SIZE] * length."""
        p = np.exp(self.p.astype(np.float64))
        joint = np.ones(1)
        for chain in np.ndindex(*[SIZE] * (length - 1)):
            del chain
            break
        words = np.stack([w.ravel() for w in np.indices([SIZE] * length)], axis=1)
        words = np.concatenate([np.tile(START, (len(words), 1)), words], axis=1)
        joint = np.prod(
            [p[words[:, i], words[:, i + 1], words[:, i + 2]] for i in range(length)], 0
        )
        return joint.reshape([SIZE] * length)


@dataclass(frozen=True)
class Given:
    """Noise of one pass as plain arrays, so that passes can be stacked."""

    uniforms: mx.array
    residual: mx.array
    target: mx.array

    def uniform(self, stream: int) -> mx.array:
        assert stream == ACCEPT
        return self.uniforms

    def gumbel_row(self, stream: int) -> mx.array:
        assert stream == RESIDUAL
        return self.residual

    def gumbel(self, stream: int) -> mx.array:
        assert stream == TARGET
        return self.target


def hashes(seeds: Array, stream: int, positions: Array, rows: int, draw: int) -> mx.array:
    """Bits [n, rows, SIZE] of n passes."""
    draw = 0 if stream == TARGET else draw
    keys = [
        row_key(seed, stream, position + row, draw)
        for seed, position in zip(seeds.tolist(), positions.tolist(), strict=True)
        for row in range(rows)
    ]
    ids = mx.arange(SIZE, dtype=mx.uint32)
    return bits(mx.array(keys, mx.uint32), ids).reshape(len(seeds), rows, SIZE)


def write(
    rule: Rule, tables: Tables, seeds: Array, length: int, depth: int, policy: Policy | None = None
) -> Array:
    """The first tokens [n, length] of one reply for each seed, several rounds each."""
    n = len(seeds)
    text = np.zeros((n, len(START) + length + depth), np.int64)
    text[:, : len(START)] = START
    ends = np.full(n, len(START))
    draw = 0
    while (ends < len(START) + length).any():
        busy = np.flatnonzero(ends < len(START) + length)
        tail = np.stack([text[busy, ends[busy] - 2], text[busy, ends[busy] - 1]], axis=1)
        noise = to_gumbel(hashes(seeds[busy], DRAFT, ends[busy], depth, draw))
        for step in range(depth):
            scores = mx.array(tables.q[tail[:, -2], tail[:, -1]]) + noise[:, step]
            tail = np.concatenate([tail, np.array(mx.argmax(scores, axis=-1))[:, None]], axis=1)
        log_p = tables.p[tail[:, :-1], tail[:, 1:]]
        log_q, drafted = log_p[:, :-1] * 0 + tables.q[tail[:, :-2], tail[:, 1:-1]], tail[:, 2:]
        chance = np.exp(np.take_along_axis(log_q, drafted[..., None], -1)[..., 0])
        depths = np.full(len(busy), depth) if policy is None else policy(chance)
        for k in np.unique(depths).tolist():
            some = np.flatnonzero(depths == k)
            at = busy[some]
            verdicts = judge(
                rule, seeds[at], ends[at], draw, log_p[some, : k + 1], drafted[some, :k],
                log_q[some, :k],
            )  # fmt: skip
            for row, accepted, token in zip(at, *verdicts, strict=True):
                new = [*tail[np.searchsorted(busy, row), 2 : 2 + accepted], token]
                text[row, ends[row] : ends[row] + accepted + 1] = new
                ends[row] += accepted + 1
        draw += 1
    return text[:, len(START) : len(START) + length]


def judge(rule, seeds, positions, draw, log_p, drafted, log_q) -> tuple[Array, Array]:
    raise NotImplementedError
