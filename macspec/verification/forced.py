"""Forced: a recorded answer takes the place of the target's choice, for measuring.

The pass costs what it costs, and drafters see text that no model at hand could write. What is
measured holds for look-ups and for the controller; it says nothing about a draft model.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from .match import first_mismatch
from .rule import Verdict


def forced(answer: Sequence[int], drafted: mx.array, verdict: Verdict) -> Verdict:
    """The verdict as if the target had chosen ``answer``.

    Args:
        answer: what follows from this pass on; shorter than the K + 1 rows only at its end.
        drafted: [K] uint32.
        verdict: the real one, which is computed all the same.
    """
    rows = drafted.shape[0] + 1
    chosen = [*answer[:rows], *[answer[-1]] * (rows - len(answer))]
    (drawn,) = mx.depends([mx.array(chosen, mx.uint32)], [verdict.accepted, verdict.token])
    return first_mismatch(drawn, drafted)
