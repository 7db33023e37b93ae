"""Pairs of tiny prefix-dependent models, friendly and hostile."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from exact import Array, Family

SIZE = 3
"""Vocabulary of the enumerations."""

Kind = Callable[[np.random.Generator, int], tuple[Array, Array]]
"""Makes n rows of p and of q, both [n, SIZE]."""


def rows(rng: np.random.Generator, n: int, alpha: float) -> Array:
    return rng.dirichlet(np.full(SIZE, alpha), n)


def masked(table: Array, mask: Array) -> Array:
    """Zeros where the mask is not set, normalised; each row keeps at least one token."""
    table = np.where(mask, table + 1e-9, 0)
    return table / table.sum(axis=-1, keepdims=True)


def near(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    p = rows(rng, n, 0.7)
    return p, 0.6 * p + 0.4 * rows(rng, n, 0.7)


def flat(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    return rows(rng, n, 1), rows(rng, n, 1)


def peaky(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    return rows(rng, n, 0.1), rows(rng, n, 0.1)


def same(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    p = rows(rng, n, 0.7)
    return p, p.copy()


def partly_same(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    p = rows(rng, n, 0.7)
    return p, np.where(rng.random((n, 1)) < 0.6, p, rows(rng, n, 0.7))


def some(rng: np.random.Generator, n: int) -> Array:
    """One or two of the tokens."""
    ranks = rng.random((n, SIZE)).argsort(axis=-1)
    return ranks < rng.integers(1, SIZE, (n, 1))


def zeros_in_q(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    return rows(rng, n, 0.7), masked(rows(rng, n, 0.7), some(rng, n))


def zeros_in_p(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    return masked(rows(rng, n, 0.7), some(rng, n)), rows(rng, n, 0.7)


def zeros_in_both(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    return masked(rows(rng, n, 0.7), some(rng, n)), masked(rows(rng, n, 0.7), some(rng, n))


def disjoint(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    mask = some(rng, n)
    return masked(rows(rng, n, 0.7), mask), masked(rows(rng, n, 0.7), ~mask)


def point(rng: np.random.Generator, n: int) -> Array:
    return np.eye(SIZE)[rng.integers(0, SIZE, n)]


def point_mass_draft(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    return rows(rng, n, 0.7), point(rng, n)


def point_mass_target(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    return point(rng, n), rows(rng, n, 0.7)


def dust(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    p, q = (10 ** rng.uniform(-40, 0, (n, SIZE)) for _ in range(2))
    return p / p.sum(axis=-1, keepdims=True), q / q.sum(axis=-1, keepdims=True)


KINDS: dict[str, Kind] = {
    kind.__name__: kind
    for kind in (
        near, flat, peaky, same, partly_same, zeros_in_q, zeros_in_p, zeros_in_both, disjoint,
        point_mass_draft, point_mass_target, dust,
    )
}  # fmt: skip


def family(kind: str, depth: int, rng: np.random.Generator) -> Family:
    """A random pair of models: every prefix has rows of its own."""
    p: list[Array] = []
    q: list[Array] = []
    for i in range(depth + 1):
        for tables, made in zip((p, q), KINDS[kind](rng, SIZE**i), strict=True):
            tables.append(made.reshape([SIZE] * (i + 1)))
    return Family(p, q[:depth])
