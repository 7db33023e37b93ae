"""What a user can send from a Mac: every variant's self-check, its speed, and what was expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from .estimates import CHIPS, expected
from .outcomes import Outcome, machine
from .variants import Variant

FORMAT = 1


def report(
    outcomes: Mapping[Variant, Outcome | None], kept: Sequence[str], target: str, draft: str | None
) -> dict[str, Any]:
    """A document for JSON.

    Args:
        outcomes: of every variant; None: it was not checked.
        kept: why places keep MLX's kernels.
        target, draft: names of the models.
    """
    here = machine()
    chip = CHIPS.get(here["chip"])
    variants = []
    for variant, outcome in outcomes.items():
        estimate = None if chip is None else round(expected(variant, chip), 2)
        variants.append(
            {
                "kernel": variant.kernel,
                "shape": str(variant.shape),
                "rows": variant.rows,
                **_found(outcome),
                "expected_speed": estimate,
            }
        )
    device = {name: value for name, value in mx.device_info().items() if name != "device_name"}
    return {
        "format": FORMAT,
        "machine": {**here, **device},
        "target": target,
        "draft": draft,
        "variants": variants,
        "left_to_mlx": list(kept),
    }


def _found(outcome: Outcome | None) -> dict[str, Any]:
    if outcome is None:
        return {"verdict": "unchecked"}
    verdict = "failed" if outcome.failure else "faster" if outcome.faster else "not faster"
    return {
        "verdict": verdict,
        "failure": outcome.failure,
        "seconds": outcome.seconds,
        "mlx_seconds": outcome.mlx_seconds,
        "speed": outcome.speed,
        "least_speed": outcome.least,
    }
