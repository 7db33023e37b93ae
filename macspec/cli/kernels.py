"""``macspec check --kernels``: the kernels that a pair could use, and their self-check."""

from __future__ import annotations

from collections.abc import Iterator

from ..device import on_metal
from ..models import Pair

DASH = "-"
HEAD = ("kernel", "variant", "self-check", "speed")


def kernel_table(pair: Pair) -> Iterator[str]:
    """Aligned lines: of every variant the outcome of its self-check and its speed relative to MLX.

    Without Metal nothing is checked: both columns hold a dash.
    """
    from ..metal.dispatch import checked_kernels
    from ..metal.variants import variants_for

    if on_metal():
        chosen = checked_kernels(pair)
        outcomes, kept = chosen.outcomes, chosen.unsupported
    else:
        found, asked = variants_for(pair)
        outcomes, kept = dict.fromkeys(asked), tuple(found.unsupported)
    rows = [HEAD]
    for variant, outcome in outcomes.items():
        count = f"{variant.rows} row{'s' * (variant.rows > 1)}"
        checked, speed = DASH, DASH
        if outcome is not None:
            checked = "passed" if outcome.failure is None else f"FAILED: {outcome.failure}"
            speed = DASH if outcome.speed is None else f"{outcome.speed:.2f}x"
        rows.append((variant.kernel, f"{variant.shape}, {count}", checked, speed))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False))
        yield "  ".join((*cells, row[3]))
    for line in kept:
        yield f"MLX's own: {line}"
    if not on_metal():
        yield f"{DASH}: Metal is not available here, so kernels are neither checked nor used"
