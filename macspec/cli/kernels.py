"""``macspec check --kernels``: the kernels that a pair could use, and what became of each."""

from __future__ import annotations

from collections.abc import Iterator

from ..device import on_metal
from ..models import Pair

DASH = "-"
HEAD = ("kernel", "variant", "proved", "speed")


def kernel_table(pair: Pair) -> Iterator[str]:
    """Aligned lines: of every variant whether it proved right here, and its speed beside MLX's.

    Without Metal nothing is tried, and a dash stands in both places.
    """
    from ..metal.dispatch import dispatch, needs

    if on_metal():
        chosen = dispatch(pair)
        outcomes, kept = chosen.outcomes, chosen.kept
    else:
        found, asked = needs(pair)
        outcomes, kept = dict.fromkeys(asked), tuple(found.kept)
    rows = [HEAD]
    for variant, outcome in outcomes.items():
        count = f"{variant.rows} row{'s' * (variant.rows > 1)}"
        proved, speed = DASH, DASH
        if outcome is not None:
            proved = "yes" if outcome.wrong is None else f"no: {outcome.wrong}"
            speed = DASH if outcome.speed is None else f"{outcome.speed:.2f}x"
        rows.append((variant.kernel, f"{variant.shape}, {count}", proved, speed))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False))
        yield "  ".join((*cells, row[3]))
    for line in kept:
        yield f"MLX's own: {line}"
    if not on_metal():
        yield f"{DASH}: there is no Metal here, so kernels are neither tried nor used"
