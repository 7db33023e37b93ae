"""One step of a draft model: a token drawn on the GPU and, under the block rule, its distribution.

``draft_sample`` replaces these lines of a draft model's chain,

    scores = sampling.scores(logits)
    drawn = scores if noise is None else scores + rule.draft_noise(noise)[step]
    token, log_q = mx.argmax(drawn, axis=-1), scores

and its results are arrays on the device, so that the next step is built before this one has run.
Under match the noise is None, under keyed it is the target's, and neither keeps a distribution.

From a row that nothing can be drawn from (see ``accept``) comes token 0, and NaN for its
distribution, on which ``accept`` calls the pass broken.
"""

from __future__ import annotations

import mlx.core as mx

from macspec.noise import Noise
from macspec.sampling import Sampling

from .accept import (
    DRAW,
    PARTS,
    draw_launch,
    id_limits,
    noise_place,
    row_template,
    sampling_options,
    threads_for,
)
from .kernel import Kernel, Launch

SAMPLE = Kernel(
    "draft_sample",
    inputs=("logits", "place", "options", "limits"),
    outputs=("token", "log_q"),
    parts=PARTS,
)
KERNELS = (SAMPLE, DRAW)


def draft_sample(
    sampling: Sampling,
    logits: mx.array,
    noise: Noise | None,
    step: int,
    *,
    keeps_q: bool,
    size: int | None = None,
) -> tuple[mx.array, mx.array | None]:
    """Draw one token of a chain.

    Args:
        sampling: temperature and truncation; it has no bias and no penalties.
        logits: [1, W] of the draft model, of a type that ``supports`` passes.
        noise: the pass's noise; None takes the most likely token.
        step: of the chain, 0 the first.
        keeps_q: of the rule. True draws with noise of the draft's own, False with the target's.
        size: ids of the tokenizer; those from there on cannot occur. None: all of W.

    Returns:
        The token [1] uint32; and [1, W] float32, the normalised log-probabilities that it was drawn
        from, None unless it was drawn with ``keeps_q``. Not yet evaluated.
    """
    options = sampling_options(sampling)
    limits = id_limits(sampling.top_k, logits.shape[-1] if size is None else size)
    place = noise_place(noise, step)
    if noise is None or not keeps_q:
        depths = mx.array([0], mx.uint32)
        launch = draw_launch(logits, sampling, noise, broken=0)
        (token,) = DRAW((logits, depths, place, options, limits), launch)
        return token, None
    token, log_q = SAMPLE((logits, place, options, limits), sample_launch(logits, sampling))
    return token, log_q


def sample_launch(logits: mx.array, sampling: Sampling) -> Launch:
    """One threadgroup."""
    threads = threads_for(logits.shape[-1])
    return Launch(
        (threads, 1, 1),
        (threads, 1, 1),
        row_template(logits, sampling),
        ((1,), logits.shape),
        (mx.uint32, mx.float32),
    )
