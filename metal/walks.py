"""The walks along a block: what a drafted token adds to the row after it, without the host.

``selector_walk`` takes DFlash 2's whole walk in one launch. ``markov_row`` makes one row of
DSpark's, from which ``draft_sample`` draws: its table is more than one threadgroup can read in
time, and threadgroups cannot wait for each other. They take the places of ``Block.guess`` and of
the steps of ``ChainDrafter``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx import nn

from macspec.heads.block import Block
from macspec.noise import DRAFT, TARGET, Noise, bits, row_key, to_gumbel
from macspec.sampling import Sampling

from .accept import PARTS, draft_sample, noise_place, sampling_options
from .kernel import TYPES, Kernel, Launch, constant, dtype_name

GROUPS = 16
"""Simdgroups that share a row's candidates."""
MOST = 32
"""Candidates, one for each lane."""
EACH = 4
"""Ids for a simdgroup."""
SIMDGROUPS = 8
"""Of a threadgroup of ``markov_row``."""

SELECTOR = Kernel(
    "selector_walk",
    inputs=(
        "predecessor",
        "successor",
        "projected",
        "ids",
        "unary",
        "anchor",
        "place",
        "options",
    ),
    outputs=("tokens", "log_q"),
    parts=PARTS,
)
MARKOV = Kernel(
    "markov_row",
    inputs=("logits", "earlier", "after", "places", "previous"),
    outputs=("out",),
)

KERNELS = (SELECTOR, MARKOV)

Parts = tuple[mx.array, ...]
"""What ``Block.prepared`` returns."""
Walked = tuple[mx.array, mx.array | None]
"""Tokens [n], and where the rule asks for it [n, V]: the log-probabilities they were drawn from."""


@dataclass(frozen=True, slots=True)
class Walk:
    """A block drafter's walk: over the candidates of a selector, or by a table of pairs."""

    kernel: str
    choices: int
    """Candidates of a row, or ids that it guesses."""
    rank: int
    width: int
    """Ids of the target."""
    dtype: mx.Dtype
    """Of the tables."""

    def __str__(self) -> str:
        return f"{self.choices} of {self.width} ids, rank {self.rank}, {dtype_name(self.dtype)}"

    @classmethod
    def of(cls, head: Any, width: int) -> Walk | None:
        """The walk of a head that has one and for which there is a kernel.

        Args:
            width: ids that exist.
        """
        if not isinstance(head, Block) or not head.walks or width > head.vocabulary:
            return None
        tables = tables_of(head)
        if tables is None:
            return None
        selects = "candidate_selector" in head
        name = SELECTOR.name if selects else MARKOV.name
        choices = head.candidate_selector.count if selects else min(len(tables[1]), width)
        (dtype, *others), rank = {it.dtype for it in tables}, tables[0].shape[1]
        if others or dtype not in TYPES or (selects and choices > MOST):
            return None
        return cls(name, choices, rank, width, dtype)


def tables_of(head: Block) -> Parts | None:
    """Of the token before and of the guesses, [ids, rank] each; None where they are quantized."""
    if "candidate_selector" in head:
        selector = head.candidate_selector
        return selector.predecessor_codebook, selector.successor_codebook
    top = head.markov_head
    if type(top.markov_w1) is not nn.Embedding or type(top.markov_w2) is not nn.Linear:
        return None
    return top.markov_w1.weight, top.markov_w2.weight


def select(
    sampling: Sampling,
    tables: Parts,
    parts: Parts,
    anchor: mx.array,
    noise: Noise | None,
    *,
    keeps_q: bool,
) -> tuple[mx.array, mx.array]:
    """Walk along n rows on the GPU; not yet evaluated.

    Args:
        sampling: temperature and truncation; it has no bias and no penalties.
        tables: the codebooks of what comes before and of what comes after, [V, rank] each.
        parts: projected rows [n, rank], the ids of candidates [n, C] and their logits [n, C].
        anchor: [1], the token before the first row.
        noise: the pass's noise; None takes the most likely tokens.
        keeps_q: of the rule. True draws with noise of the draft's own, False with the target's.

    Returns:
        Tokens [n] uint32, and the log-probabilities [n, C] of the candidates, float32.
    """
    projected, ids, unary = parts
    count = ids.shape[1]
    operands = [
        *tables,
        projected.astype(tables[0].dtype),
        ids.astype(mx.uint32),
        unary.astype(mx.float32),
        anchor.astype(mx.uint32),
        noise_place(noise),
        sampling_options(sampling),
    ]
    threads = 32 * min(GROUPS, count)
    constants = (
        ("T", tables[0].dtype),
        ("GROUPS", threads // 32),
        ("GREEDY", noise is None),
        ("KEEPS", keeps_q),
    )
    shapes = (ids.shape[:1], ids.shape)
    launch = Launch((threads, 1, 1), (threads, 1, 1), constants, shapes, (mx.uint32, mx.float32))
    tokens, log_q = SELECTOR(operands, launch)
    return tokens, log_q


def markov_row(
    tables: Parts, logits: mx.array, previous: mx.array, places: mx.array | None, width: int
) -> mx.array:
    """The logits [1, width], float32, of a row on the GPU, after a token [1]; not yet evaluated.

    Args:
        tables: [V, rank] of the token before, [guesses, rank] of the guesses.
        logits: [1, guesses].
        places: [V]: which guess an id is, and as many as there are for others; None: the same.
    """
    operands = [
        logits[0].astype(mx.float32),
        *tables,
        constant((0,), mx.int32) if places is None else places.astype(mx.int32),
        previous.astype(mx.uint32),
    ]
    constants = (("EACH", EACH), ("WIDTH", width), ("REDUCED", places is not None))
    threads = -(-width // EACH) * 32
    group = min(32 * SIMDGROUPS, threads)
    launch = Launch((threads, 1, 1), (group, 1, 1), constants, ((1, width),), (mx.float32,))
    (out,) = MARKOV(operands, launch)
    return out


def walked(
    head: Block,
    parts: Parts,
    anchor: mx.array,
    width: int,
    sampling: Sampling,
    noise: Noise | None,
    *,
    keeps_q: bool,
) -> Walked:
    """Draw the tokens of a block on the GPU; not yet evaluated.

    Args:
        parts: of ``Block.prepared``; ``width``: ids that exist.
    """
    kept, tables = keeps_q and noise is not None, tables_of(head)
    assert tables is not None
    if "candidate_selector" in head:
        projected, ids, unary = parts
        if head.vocabulary > width:
            unary = mx.where(ids < width, unary, -mx.inf)
        parts = projected, ids, unary
        tokens, log_p = select(sampling, tables, parts, anchor, noise, keeps_q=kept)
        if not kept:
            return tokens, None
        whole = mx.full((ids.shape[0], head.vocabulary), -mx.inf)
        return tokens, mx.put_along_axis(whole, ids, log_p, axis=-1)[:, :width]
    drawn = [anchor]
    log_q: list[mx.array] = []
    for step in range(parts[0].shape[0]):
        row = markov_row(tables, parts[0][step : step + 1], drawn[-1], head.places, width)
        token, log_row = draft_sample(sampling, row, noise, step, keeps_q=kept)
        drawn.append(token)
        log_q += [] if log_row is None else [log_row]
    return mx.concatenate(drawn[1:]), mx.concatenate(log_q) if kept else None


def reference(
    sampling: Sampling,
    tables: Parts,
    parts: Parts,
    anchor: mx.array,
    noise: Noise | None,
    *,
    keeps_q: bool,
) -> tuple[mx.array, mx.array]:
    """As ``select``, in plain MLX."""
    projected, ids, unary = parts
    tokens, rows, before = [], [], anchor
    for row in range(ids.shape[0]):
        left = tables[0][before] * projected[row].astype(tables[0].dtype)
        pairs = (left @ tables[1][ids[row]].T).astype(mx.float32)
        x = unary[row].astype(mx.float32) + pairs[0]
        x = mx.nan_to_num(x, nan=0.0, posinf=3e38, neginf=-mx.inf)
        # In the order of ids, by which equals are told apart.
        order = mx.argsort(ids[row])
        log_p = mx.take(sampling.scores(x[order][None])[0], mx.argsort(order))
        score = x if noise is None else log_p
        if noise is not None:
            stream, draw = (DRAFT, noise.draw) if keeps_q else (TARGET, 0)
            key = mx.array([row_key(noise.seed, stream, noise.position + row, draw)], mx.uint32)
            score = score + to_gumbel(bits(key, ids[row].astype(mx.uint32)))[0]
        best = mx.where(score == mx.max(score), ids[row].astype(mx.uint32), 2**32 - 1)
        before = mx.min(best, keepdims=True)
        tokens.append(before)
        rows.append(log_p)
    return mx.concatenate(tokens).astype(mx.uint32), mx.stack(rows)


def markov_reference(
    tables: Parts, logits: mx.array, previous: mx.array, places: mx.array | None, width: int
) -> mx.array:
    """As ``markov_row``, in plain MLX."""
    y = logits.astype(mx.float32) + (
        tables[0][previous].astype(mx.float32) @ tables[1].astype(mx.float32).T
    )
    y = mx.nan_to_num(y, nan=0.0, neginf=-mx.inf)
    if places is not None:
        padded = mx.pad(y, [(0, 0), (0, 1)], constant_values=-mx.inf)
        y = mx.take(padded, places, axis=1)
    return y[:, :width]
