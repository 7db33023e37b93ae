"""Trees: several guesses for one position, judged in one pass.

At every node the target draws its own token. Where that is one of the node's children the walk
goes on there, else it is emitted and the round is over. Only the target's own draws are emitted,
so this is exact for a tree of any shape, whatever its nodes were chosen for; a node's acceptance
is what the target gives its children together. On a chain it is the match rule. EAGLE (Li et al.
2024, arXiv:2401.15077) and its successors follow trees of fixed candidates so.

Rows of one depth belong to one position of the text and draw with that position's noise, so under
the keyed rule a tree writes what a chain writes, and what plain decoding does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np

from ..noise import TARGET, Noise
from .rule import Verdict

MAX_NODES = 32
"""Most drafted tokens in a tree."""

ROOT = -1
"""The parent of a node that comes right after the last committed token."""


class _Shape(NamedTuple):
    """What follows from a tree's edges; N nodes, D the largest depth."""

    depths: tuple[int, ...]
    sees: np.ndarray[Any, np.dtype[np.bool_]]
    """[N, N]: column j is node i itself or one that it descends from."""
    paths: np.ndarray[Any, np.dtype[np.int32]]
    """[N + 1, D]: the nodes from the root to node row - 1, then ``ROOT``."""


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """Drafted tokens, each a guess for the token after its parent.

    In a pass the last committed token is row 0 and node i is row i + 1. A drafter's main line comes
    first, in order: where it is accepted, the cache need not be moved.

    Raises:
        ValueError: not as many parents as tokens, too many nodes, or a parent that does not come
            before its child.
    """

    tokens: mx.array
    """[N] ids; may be lazy. Equal children of one node cost rows and win nothing."""
    parents: tuple[int, ...]
    """Index of each node's parent, or ``ROOT``."""

    def __post_init__(self) -> None:
        nodes = len(self.parents)
        if self.tokens.shape != (nodes,):
            raise ValueError(f"{nodes} parents for tokens of shape {self.tokens.shape}")
        if nodes > MAX_NODES:
            raise ValueError(f"a tree of {nodes} nodes; the most is {MAX_NODES}")
        if not all(ROOT <= parent < node for node, parent in enumerate(self.parents)):
            raise ValueError(f"in {self.parents} a parent does not come before its child")

    @property
    def depths(self) -> tuple[int, ...]:
        """Of each node: 1 for a child of the root."""
        return _shape(self.parents).depths

    @property
    def depth(self) -> int:
        """Most tokens that can be accepted."""
        return max(self.depths, default=0)

    @property
    def sees(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """[N, N]: whether node j is node i itself or one that it descends from."""
        return _shape(self.parents).sees

    def recent(self, tokens: Sequence[int], count: int) -> mx.array:
        """The ids before each row, the nodes that it descends from included, for the penalties.

        Returns:
            [N + 1, n] int32 with n <= ``count``, -1 where there is none.
        """
        n = max(min(count, len(tokens) + self.depth), 1)
        tail = list(tokens[-n:])
        known = mx.array([-1] * (n - len(tail)) + tail, mx.int32)
        window = np.empty((len(self.parents) + 1, n), np.int32)
        for row, path in enumerate(_shape(self.parents).paths):
            window[row] = np.concatenate([np.arange(n), n + path[path != ROOT]])[-n:]
        return mx.concatenate([known, self.tokens.astype(mx.int32)])[mx.array(window)]


@dataclass(frozen=True, slots=True)
class TreeVerdict(Verdict):
    """The outcome of a tree's pass, on the device."""

    path: mx.array
    """int32 [D]: the first ``accepted`` entries are the accepted nodes, root first."""


def follow(scores: mx.array, tree: Tree, noise: Noise | None) -> TreeVerdict:
    """Judge a tree of N nodes, without a host round trip.

    Args:
        scores: [N + 1, V] from ``Sampling.scores``: row 0 after the last committed token, row i + 1
            after node i.
        noise: the pass's noise, with a row for every depth and the root; None when greedy.

    Raises:
        ValueError: the noise ends above the deepest node.
    """
    shape = _shape(tree.parents)
    if noise is not None:
        if noise.rows <= tree.depth:
            raise ValueError(f"{noise.rows} rows of noise for a tree of depth {tree.depth}")
        scores = scores + noise.gumbel(TARGET)[mx.array([0, *shape.depths])]
    drawn = mx.argmax(scores, axis=-1)
    parent_rows = mx.array([parent + 1 for parent in tree.parents], mx.int32)
    refused = drawn[parent_rows] != tree.tokens
    alive = ~mx.any(mx.array(shape.sees) & refused[None], axis=1)
    kept = mx.where(alive, mx.array(shape.depths, mx.int32), 0)
    # Row 0 comes first: where no node is accepted it is the first of the largest.
    lengths = mx.concatenate([mx.zeros((1,), mx.int32), kept])
    row = mx.argmax(lengths)
    path = mx.take(mx.array(shape.paths), row, axis=0)
    return TreeVerdict(mx.take(lengths, row), mx.take(drawn, row), path)


@lru_cache(maxsize=256)
def _shape(parents: tuple[int, ...]) -> _Shape:
    nodes = len(parents)
    sees = np.eye(nodes, dtype=np.bool_)
    for node, parent in enumerate(parents):
        if parent != ROOT:
            sees[node] |= sees[parent]
    depths = tuple(int(depth) for depth in sees.sum(axis=1))
    paths = np.full((nodes + 1, max(depths, default=0)), ROOT, np.int32)
    for node, depth in enumerate(depths):
        paths[node + 1, :depth] = np.flatnonzero(sees[node])
    return _Shape(depths, sees, paths)
