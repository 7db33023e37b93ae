"""What stands beside the layers of a block: what is added to its rows, and how the token before
changes what each of them guesses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx import nn


class Noised(nn.Module):
    """How noised each row of a block is, by its log-SNR, as Bonsai's DSpark heads are told.

    When a block is guessed that is fixed: its first row is clean (1000 on the scale), the others
    are nothing but noise (0).
    """

    turns = 64
    """Sines, and as many cosines."""

    def __init__(self, width: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fc1 = nn.Linear(2 * self.turns, width)
        self.fc2 = nn.Linear(width, width)

    def __call__(self, count: int) -> mx.array:
        """What is added to the embeddings of so many rows, [count, width]."""
        clean = mx.where(mx.arange(count) == 0, 1000.0, 0.0)[:, None]
        angles = clean * 10000.0 ** (-mx.arange(self.turns) / self.turns)
        turned = mx.concatenate([mx.sin(angles), mx.cos(angles)], axis=-1)
        added: mx.array = self.fc2(nn.silu(self.fc1(turned)))
        return added


class Markov(nn.Module):
    """DSpark's table of pairs (arXiv:2607.05147): the token before adds to every logit.

    Args:
        targets: tokens that may come before; ``guesses``: those that it may guess.
    """

    def __init__(self, targets: int, guesses: int, rank: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.markov_w1 = nn.Embedding(targets, rank)
        self.markov_w2 = nn.Linear(rank, guesses, bias=False)

    def __call__(self, previous: mx.array) -> mx.array:
        """What is added to the logits, [1, guesses], after a token [1]."""
        added: mx.array = self.markov_w2(self.markov_w1(previous))
        return added


class Selector(nn.Module):
    """DFlash 2's choice among the likeliest tokens of each row, by the one chosen before it.

    Args:
        width: of a row.
        count: tokens that it chooses among.
    """

    def __init__(self, width: int, vocabulary: int, rank: int, count: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.predecessor_codebook = mx.zeros((vocabulary, rank))
        self.successor_codebook = mx.zeros((vocabulary, rank))
        self.hidden_projection = nn.Linear(width, rank, bias=False)
        self.count = count

    def prepare(
        self, rows: mx.array, logits: mx.array, targets: mx.array | None
    ) -> tuple[mx.array, ...]:
        """What ``__call__`` takes for rows [n, width] and their logits [n, guesses]: [n, ...] each.

        Args:
            targets: the target's ids of those guesses; None: the same.
        """
        known = min(logits.shape[-1], self.successor_codebook.shape[0])
        count = min(self.count, known)
        ids = mx.argpartition(logits[:, :known], -count, axis=-1)[:, -count:]
        unary = mx.take_along_axis(logits, ids, axis=-1).astype(mx.float32)
        ids = ids if targets is None else targets[ids]
        return self.hidden_projection(rows), ids, unary

    def __call__(self, previous: mx.array, parts: Sequence[mx.array], width: int) -> mx.array:
        """The logits [1, width] of a row after a token [1]: -inf except for the candidates."""
        projected, ids, unary = parts
        before: Any = self.predecessor_codebook[previous] * projected
        pairs = before @ self.successor_codebook[ids[0]].T
        whole = mx.full((1, width), -mx.inf, mx.float32)
        return mx.put_along_axis(whole, ids, unary + pairs.astype(mx.float32), axis=-1)


class GroupedConv(nn.Module):
    """DFlash 2's convolutions before and after a sublayer, back to the block's first row.

    One projection of the sublayer's input corrects the taps of both, for each group of numbers.

    Args:
        base: shape of ``base_kernel``, (2, taps, width).
        groups: of numbers that share a correction.
    """

    def __init__(self, base: tuple[int, ...], groups: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        _, self.taps, width = base
        self.groups = groups
        self.base_kernel = mx.zeros(base)
        self.kernel_projection = nn.Linear(width, 2 * self.taps * groups, bias=False)

    def prepare(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """The sublayer's input for rows [1, n, width], and what ``finish`` takes."""
        added = self.kernel_projection(x).reshape(*x.shape[:2], 2, self.taps, self.groups)
        return self._convolved(x, added[:, :, 0], 0), added[:, :, 1]

    def finish(self, x: mx.array, added: mx.array) -> mx.array:
        """What the sublayer put out, [1, n, width], convolved."""
        return self._convolved(x, added, 1)

    def _convolved(self, x: mx.array, added: mx.array, side: int) -> mx.array:
        rows = x.reshape(*x.shape[:2], self.groups, -1)
        taps = self.base_kernel[side].reshape(self.taps, *rows.shape[2:]) + added[..., None]
        out = taps[:, :, 0] * rows
        for back in range(1, self.taps):
            before = mx.pad(rows[:, :-back], [(0, 0), (back, 0), (0, 0), (0, 0)])
            out = out + taps[:, :, back] * before[:, : rows.shape[1]]
        return out.reshape(x.shape)
