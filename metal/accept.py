"""Choosing tokens: acceptance in two launches, and one step of a draft model.

``accept_draw`` and ``accept_walk`` serve match, keyed, greedy and trees, ``accept_measure`` and
``accept_block`` the block rule. The host waits for none of them.

``accept`` takes the place of ``rule.accept(sampling.scores(logits), drafted, log_q, noise)``,
``follow`` that of ``verification.follow``. The rule is not named: ``log_q``, which only the block
rule's drafts have, makes it block, and all others judge alike. Truncation searches for its
threshold where the portable pipeline sorts; the outcomes differ only where two numbers are equal
but for rounding.

A row that nothing can be drawn from, because it holds NaN or +inf, or nothing but -inf, means that
the pass is broken. ``accepted`` is then ``BROKEN`` and the token 0, whichever row it is. The same
holds for a drafted token that its own ``log_q`` excludes. A draft step gives token 0 for such a
row, and NaN for its distribution, on which ``accept`` calls the pass broken.
"""

from __future__ import annotations

import math
from functools import lru_cache

import mlx.core as mx
import numpy as np

from macspec.noise import Noise
from macspec.sampling import Sampling
from macspec.verification import Tree, TreeVerdict, Verdict

from .kernel import TYPES, Constants, Kernel, Launch

PARTS = ("rows",)
MOST_ROWS = 33
MOST_WIDTH = 2**20
MOST_THREADS = 512
"""Of a threadgroup; more would leave too few registers for the eight bounds of the search."""
OFF = 2**24
"""A top-k that keeps everything, exact in float32."""

BROKEN = -1
"""``accepted`` of a pass that cannot be judged."""
LANES = 32
"""Of a simdgroup, one for each drafted token."""

DRAW = Kernel(
    "accept_draw",
    inputs=("logits", "depths", "place", "options"),
    outputs=("drawn",),
    parts=PARTS,
)
WALK = Kernel(
    "accept_walk", inputs=("drawn", "drafted", "nodes"), outputs=("accepted", "token", "path")
)
MEASURE = Kernel(
    "accept_measure",
    inputs=("logits", "options"),
    outputs=("scales", "cuts"),
    parts=PARTS,
)
BLOCK = Kernel(
    "accept_block",
    inputs=("logits", "scales", "cuts", "drafted", "log_q", "place", "options"),
    outputs=("accepted", "token"),
    parts=PARTS,
)
SAMPLE = Kernel(
    "draft_sample",
    inputs=("logits", "place", "options"),
    outputs=("token", "log_q"),
    parts=PARTS,
)
KERNELS = (DRAW, WALK, MEASURE, BLOCK, SAMPLE)


def accept(
    sampling: Sampling,
    logits: mx.array,
    drafted: mx.array,
    log_q: mx.array | None,
    noise: Noise | None,
) -> Verdict:
    """Judge a chain of K drafted tokens on the GPU.

    Args:
        sampling: temperature and truncation; it has no bias and no penalties.
        logits: [K + 1, V] of a type that ``supports`` passes; K is 32 at most.
        drafted: [K] uint32.
        log_q: [K, W] float32, normalised log-probabilities that the tokens were drawn from, for
            the block rule; W may differ from V, and ids beyond either width cannot occur there.
        noise: the pass's noise; None when greedy.

    Returns:
        What the rule returns, not yet evaluated; ``accepted`` is ``BROKEN`` for a broken pass.
    """
    depth = drafted.shape[0]
    if noise is None or log_q is None or depth == 0:
        verdict = _walked(sampling, logits, drafted, tuple(range(-1, depth - 1)), noise)
        return Verdict(verdict.accepted, verdict.token)
    options = sampling_options(sampling)
    scales, cuts = MEASURE([logits, options], measure_launch(logits, sampling))
    operands = [logits, scales, cuts, drafted, log_q, noise_place(noise), options]
    accepted, token = BLOCK(operands, block_launch(logits))
    return Verdict(accepted.reshape(()), token.reshape(()))


def follow(sampling: Sampling, logits: mx.array, tree: Tree, noise: Noise | None) -> TreeVerdict:
    """Judge a tree of N nodes on the GPU; not yet evaluated.

    Args:
        logits: [N + 1, V], row 0 after the last committed token, row i + 1 after node i.
    """
    return _walked(sampling, logits, tree.tokens, tree.parents, noise)


def draft_sample(
    sampling: Sampling, logits: mx.array, noise: Noise | None, step: int, *, keeps_q: bool
) -> tuple[mx.array, mx.array | None]:
    """Draw one token of a draft model's chain on the GPU.

    Args:
        sampling: temperature and truncation; it has no bias and no penalties.
        logits: [1, W] of the draft model, of a type that ``supports`` passes.
        noise: the pass's noise; None takes the most likely token.
        step: of the chain, 0 the first.
        keeps_q: of the rule. True draws with noise of the draft's own, False with the target's.

    Returns:
        The token [1] uint32; and [1, W] float32, the normalised log-probabilities that it was drawn
        from, None unless it was drawn with ``keeps_q``. Not yet evaluated.
    """
    place, options = noise_place(noise, step), sampling_options(sampling)
    if noise is None or not keeps_q:
        launch = draw_launch(logits, sampling, noise, judged=False)
        (token,) = DRAW([logits, mx.array([0], mx.uint32), place, options], launch)
        return token, None
    token, log_q = SAMPLE([logits, place, options], sample_launch(logits, sampling))
    return token, log_q


def _walked(
    sampling: Sampling,
    logits: mx.array,
    drafted: mx.array,
    parents: tuple[int, ...],
    noise: Noise | None,
) -> TreeVerdict:
    nodes, depths, longest = _edges(parents)
    operands = [logits, depths, noise_place(noise), sampling_options(sampling)]
    (drawn,) = DRAW(operands, draw_launch(logits, sampling, noise))
    # A buffer cannot be empty.
    tokens = drafted if parents else mx.array([0], mx.uint32)
    accepted, token, path = WALK([drawn, tokens, nodes], WALK_LAUNCH)
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
    logits: mx.array, sampling: Sampling, noise: Noise | None, *, judged: bool = True
) -> Launch:
    """One threadgroup a row.

    Args:
        judged: the result for a row that nothing can be drawn from is ``BROKEN``, not 0.
    """
    count = logits.shape[0]
    constants = (*_row_constants(logits, sampling), ("GREEDY", noise is None), ("JUDGED", judged))
    return _launch(logits, count, constants, ((count,), mx.uint32))


def measure_launch(logits: mx.array, sampling: Sampling) -> Launch:
    """One threadgroup a row."""
    count, constants = logits.shape[0], _row_constants(logits, sampling)
    return _launch(logits, count, constants, ((count, 2), mx.float32), ((count, 2), mx.uint32))


def block_launch(logits: mx.array) -> Launch:
    """One threadgroup."""
    constants = (("T", logits.dtype), ("THREADS", _threads(logits)))
    return _launch(logits, 1, constants, ((1,), mx.int32), ((1,), mx.uint32))


def sample_launch(logits: mx.array, sampling: Sampling) -> Launch:
    """One threadgroup."""
    constants = _row_constants(logits, sampling)
    return _launch(logits, 1, constants, ((1,), mx.uint32), (logits.shape, mx.float32))


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


def _threads(logits: mx.array) -> int:
    """Of one threadgroup for a row."""
    return min(MOST_THREADS, -(-logits.shape[-1] // 32) * 32)


def _launch(
    logits: mx.array,
    groups: int,
    constants: Constants,
    *outputs: tuple[tuple[int, ...], mx.Dtype],
) -> Launch:
    threads = _threads(logits)
    shapes, dtypes = zip(*outputs, strict=True)
    return Launch((groups * threads, 1, 1), (threads, 1, 1), constants, shapes, dtypes)


def _row_constants(logits: mx.array, sampling: Sampling) -> Constants:
    """Of the kernels that truncate."""
    return (
        ("T", logits.dtype),
        ("THREADS", _threads(logits)),
        ("TRUNCATED", sampling.top_p < 1 or 0 < sampling.top_k < logits.shape[-1]),
    )


def noise_place(noise: Noise | None, step: int = 0) -> mx.array:
    """Where noise is drawn: two words of the seed, position, number of the pass; [4] uint32."""
    words = (0, 0, 0, 0)
    if noise is not None:
        words = (noise.seed & 0xFFFFFFFF, noise.seed >> 32, noise.position + step, noise.draw)
    return mx.array(words, mx.uint32)


@lru_cache(maxsize=16)
def sampling_options(sampling: Sampling) -> mx.array:
    """1 / temperature, top-p, how far below the best logit min-p cuts, and top-k; [4] float32."""
    inverse = 1.0 if sampling.greedy else 1 / sampling.temperature
    floor = math.log(sampling.min_p) if sampling.min_p > 0 else -math.inf
    top_k = min(sampling.top_k or OFF, OFF)
    # A share that float32 rounds to 0 would leave not even the most likely token.
    return mx.array((inverse, max(sampling.top_p, 1e-30), floor, top_k), mx.float32)
