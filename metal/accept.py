"""Acceptance in two launches: logits in, the number of accepted tokens and the next token out.

Match, keyed, greedy and trees: ``accept_draw`` draws the target's token at every row, and
``accept_walk`` follows the draws through the drafted tokens. Block: ``accept_measure`` finds what
truncation keeps of each row, and its normaliser, and ``accept_block`` judges. The host waits for
none of it.

With ``scores = sampling.scores(logits[:, :size])``, ``accept`` takes the place of

    rule.accept(scores, drafted, log_q, noise)

and ``follow`` that of ``verification.follow(scores, tree, noise)``. Both take the logits as the
model gives them, in three types and wider than the tokenizer. The rule is not named: ``log_q``,
which only the block rule's drafts have, makes it block, and all others judge alike. Truncation
searches for its threshold where the portable pipeline sorts; the outcomes differ only where two
numbers are equal but for rounding.

A row that nothing can be drawn from, because it holds NaN or +inf, or nothing but -inf, means that
the pass is broken. ``accepted`` is then ``BROKEN`` and the token 0, whichever row it is. The same
holds for a drafted token that its own ``log_q`` excludes.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import mlx.core as mx
import numpy as np

from macspec.noise import Noise
from macspec.sampling import Sampling
from macspec.verification import Tree, TreeVerdict, Verdict

from .kernel import Kernel, Launch

PARTS = ("rows",)
MOST_ROWS = 33
MOST_WIDTH = 262_144
TYPES = (mx.float32, mx.float16, mx.bfloat16)
MOST_THREADS = 512
"""Of a threadgroup; more would leave too few registers for the eight bounds of the search."""
OFF = 2**32 - 1
"""A top-k that keeps everything."""

BROKEN = -1
"""``accepted`` of a pass that cannot be judged."""
LANES = 32
"""Of a simdgroup, one for each drafted token."""

DRAW = Kernel(
    "accept_draw",
    inputs=("logits", "depths", "place", "options", "limits"),
    outputs=("drawn",),
    parts=PARTS,
)
WALK = Kernel(
    "accept_walk", inputs=("drawn", "drafted", "nodes"), outputs=("accepted", "token", "path")
)
MEASURE = Kernel(
    "accept_measure",
    inputs=("logits", "options", "limits"),
    outputs=("scales", "cuts"),
    parts=PARTS,
)
BLOCK = Kernel(
    "accept_block",
    inputs=("logits", "scales", "cuts", "drafted", "log_q", "place", "options", "limits"),
    outputs=("accepted", "token"),
    parts=PARTS,
)
KERNELS = (DRAW, WALK, MEASURE, BLOCK)


def accept(
    sampling: Sampling,
    logits: mx.array,
    drafted: mx.array,
    log_q: mx.array | None,
    noise: Noise | None,
    *,
    size: int | None = None,
) -> Verdict:
    """Judge a chain of K drafted tokens on the GPU.

    Args:
        sampling: temperature and truncation; it has no bias and no penalties.
        logits: [K + 1, V] of a type that ``supports`` passes; K is 32 at most.
        drafted: [K] uint32.
        log_q: [K, W] float32, normalised log-probabilities that the tokens were drawn from, for
            the block rule; W may differ from V, and ids beyond either width cannot occur there.
        noise: the pass's noise; None when greedy.
        size: ids of the tokenizer; those from there on cannot occur. None: all of V.

    Returns:
        What the rule returns, not yet evaluated; ``accepted`` is ``BROKEN`` for a broken pass.
    """
    size = logits.shape[-1] if size is None else size
    depth = drafted.shape[0]
    if noise is None or log_q is None or depth == 0:
        chain = tuple(range(-1, depth - 1))
        verdict = _walked(sampling, logits, drafted, chain, noise, size)
        return Verdict(verdict.accepted, verdict.token)
    options, limits = sampling_options(sampling), id_limits(sampling.top_k, size)
    scales, cuts = MEASURE((logits, options, limits), measure_launch(logits, sampling))
    accepted, token = BLOCK(
        (logits, scales, cuts, drafted, log_q, noise_place(noise), options, limits),
        block_launch(logits),
    )
    return Verdict(accepted.reshape(()), token.reshape(()))


def follow(
    sampling: Sampling,
    logits: mx.array,
    tree: Tree,
    noise: Noise | None,
    *,
    size: int | None = None,
) -> TreeVerdict:
    """Judge a tree of N nodes on the GPU.

    Args:
        logits: [N + 1, V], row 0 after the last committed token, row i + 1 after node i.
        tree: the nodes.
        sampling, noise, size: as for ``accept``.

    Returns:
        What ``verification.follow`` returns, not yet evaluated.
    """
    size = logits.shape[-1] if size is None else size
    return _walked(sampling, logits, tree.tokens, tree.parents, noise, size)


def _walked(
    sampling: Sampling,
    logits: mx.array,
    drafted: mx.array,
    parents: tuple[int, ...],
    noise: Noise | None,
    size: int,
) -> TreeVerdict:
    nodes, depths, longest = _edges(parents)
    options, limits = sampling_options(sampling), id_limits(sampling.top_k, size)
    operands = (logits, depths, noise_place(noise), options, limits)
    (drawn,) = DRAW(operands, draw_launch(logits, sampling, noise))
    # A buffer cannot be empty.
    tokens = drafted if parents else mx.array([0], mx.uint32)
    accepted, token, path = WALK((drawn, tokens, nodes), WALK_LAUNCH)
    return TreeVerdict(accepted.reshape(()), token.reshape(()), path[:longest])


@lru_cache(maxsize=256)
def _edges(parents: tuple[int, ...]) -> tuple[mx.array, mx.array, int]:
    """Of each node its parent's row, its depth, and the bits of the nodes down to it, [3, N]
    uint32; the depth of each row, [N + 1] uint32; and the largest depth."""
    nodes = np.zeros((3, max(len(parents), 1)), np.uint32)
    for node, parent in enumerate(parents):
        above = nodes[1:, parent] if parent >= 0 else (0, 0)
        nodes[:, node] = parent + 1, above[0] + 1, above[1] | 1 << node
    depths = np.concatenate([np.zeros(1, np.uint32), nodes[1, : len(parents)]])
    return mx.array(nodes), mx.array(depths), int(depths.max())


def draw_launch(
    logits: mx.array, sampling: Sampling, noise: Noise | None, *, broken: int = -1
) -> Launch:
    """One threadgroup a row.

    Args:
        broken: the result for a row that nothing can be drawn from, modulo 2^32.
    """
    count, threads = logits.shape[0], threads_for(logits.shape[-1])
    template = (*row_template(logits, sampling), ("GREEDY", noise is None), ("BROKEN", broken))
    return Launch((count * threads, 1, 1), (threads, 1, 1), template, ((count,),), (mx.uint32,))


def measure_launch(logits: mx.array, sampling: Sampling) -> Launch:
    """One threadgroup a row."""
    count, threads = logits.shape[0], threads_for(logits.shape[-1])
    return Launch(
        (count * threads, 1, 1),
        (threads, 1, 1),
        row_template(logits, sampling),
        ((count, 2), (count, 2)),
        (mx.float32, mx.uint32),
    )


def block_launch(logits: mx.array) -> Launch:
    """One threadgroup."""
    threads = threads_for(logits.shape[-1])
    template = (("T", logits.dtype), ("THREADS", threads))
    return Launch((threads, 1, 1), (threads, 1, 1), template, ((1,), (1,)), (mx.int32, mx.uint32))


WALK_LAUNCH = Launch(
    (LANES, 1, 1),
    (LANES, 1, 1),
    (),
    ((1,), (1,), (LANES,)),
    (mx.int32, mx.uint32, mx.int32),
)
"""One simdgroup."""


def supports(logits: mx.array) -> str | None:
    """Why the sampling kernels cannot read these logits [rows, V]; None if they can."""
    count, width = logits.shape
    if logits.dtype not in TYPES:
        return f"logits of {logits.dtype}: the kernels read float32, float16 and bfloat16"
    if count > MOST_ROWS:
        return f"{count} rows: the kernels take at most {MOST_ROWS}"
    if width > MOST_WIDTH:
        return f"{width} columns of logits: the kernels take at most {MOST_WIDTH}"
    return None


def threads_for(width: int) -> int:
    """Of one threadgroup for a row of that width."""
    return min(MOST_THREADS, -(-width // 32) * 32)


def row_template(logits: mx.array, sampling: Sampling) -> tuple[tuple[str, Any], ...]:
    """The arguments that all of these kernels have."""
    width = logits.shape[-1]
    return (
        ("T", logits.dtype),
        ("THREADS", threads_for(width)),
        ("TRUNCATED", sampling.top_p < 1 or 0 < sampling.top_k < width),
    )


def noise_place(noise: Noise | None, step: int = 0) -> mx.array:
    """Where noise is drawn: two words of the seed, position, number of the pass; [4] uint32."""
    words = (0, 0, 0, 0)
    if noise is not None:
        words = (noise.seed & 0xFFFFFFFF, noise.seed >> 32, noise.position + step, noise.draw)
    return mx.array(words, mx.uint32)


@lru_cache(maxsize=16)
def sampling_options(sampling: Sampling) -> mx.array:
    """1 / temperature, top-p, and how far below the best logit min-p cuts; [3] float32."""
    inverse = 1.0 if sampling.greedy else 1 / sampling.temperature
    floor = math.log(sampling.min_p) if sampling.min_p > 0 else -math.inf
    # A share that float32 rounds to 0 would leave not even the most likely token.
    return mx.array((inverse, max(sampling.top_p, 1e-30), floor), mx.float32)


@lru_cache(maxsize=16)
def id_limits(top_k: int, size: int) -> mx.array:
    """Top-k, and the first id that cannot be drawn; [2] uint32."""
    return mx.array((min(top_k or OFF, OFF), size), mx.uint32)
