"""The comparison on Spec-Bench as tables, and in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .cells import Ratio
from .promptfile import MT_BENCH
from .report import Table, interval, model_words, number
from .specfile import cells_of
from .specrows import LEAST, SpecCell

COLUMNS = (
    "task", "mlx-lm tok/s", "mlx-lm speculative tok/s", "tok/pass", "macspec tok/s", "tok/pass",
    "vs mlx-lm", "95 %", "vs mlx-lm speculative", "95 %",
)  # fmt: skip


def tables(document: Mapping[str, Any]) -> Iterator[Table]:
    """A table for each temperature."""
    cells = cells_of(document)
    for temperature in sorted({cell.temperature for cell in cells}):
        there = [cell for cell in cells if cell.temperature == temperature]
        rows = tuple(map(_row, there))
        yield Table(f"temperature {temperature:g}", COLUMNS, rows)


def head(document: Mapping[str, Any]) -> Iterator[str]:
    """What was measured on what."""
    machine, plan, models = document["machine"], document["plan"], document["models"]
    versions = machine["versions"]
    yield (
        f"{machine['chip']}, {machine['cores']} cores, MLX {versions['mlx']} on "
        f"{machine['backend']}, mlx-lm {versions['mlx-lm']}, macspec {versions['macspec']}; "
        f"target {model_words(models['target'])}, draft {model_words(models['draft'])}"
    )
    minutes = sum(run.get("seconds", 0) for run in document["runs"]) / 60
    yield (
        f"{plan['tasks']} questions a task, both turns of those of {MT_BENCH}; replies of at most "
        f"{plan['max_tokens']} tokens, repeats: {plan['repeats']}, "
        f"{plan['repeats'] * plan['draws']} where replies are drawn, measured in {minutes:.0f} min"
    )
    if not document["complete"]:
        yield "NOT COMPLETE: the same command goes on"


def notes(document: Mapping[str, Any]) -> Iterator[str]:
    """How to read the tables."""
    depths = ", ".join(map(str, document["plan"]["depths"]))
    yield (
        "tok/s of decode, and tok/pass: all replies of a task together; @ is mlx-lm's "
        f"num_draft_tokens, for each cell the fastest of {depths} on these very questions"
    )
    yield "vs: ratio of decode speeds, paired by question, with its 95 % bootstrap interval"
    if any(question["forced"] for question in document["questions"]):
        yield (
            "forced: decoded along the recorded answer, which this target cannot write: it holds "
            "for look-ups and costs, not for a draft model's guesses"
        )


def verdict(cells: Sequence[SpecCell]) -> Iterator[str]:
    """What holds and what does not, cell by cell."""
    slower = [cell for cell in cells if not cell.not_slower]
    behind = [cell for cell in cells if cell.temperature > 0 and not cell.leads]
    yield (
        f"the interval over plain begins at {LEAST:g} or above in {len(cells) - len(slower)} of "
        f"{len(cells)} cells{_named(slower)}"
    )
    above = sum(cell.temperature > 0 for cell in cells)
    yield (
        f"ahead of mlx-lm's speculation in tokens per pass and speed in {above - len(behind)} of "
        f"{above} cells above temperature 0{_named(behind)}"
    )


def _row(cell: SpecCell) -> tuple[str, ...]:
    return (
        f"{cell.task} (forced)" if cell.forced else cell.task,
        f"{cell.plain.tokens_per_s:.1f}",
        f"{cell.rival.tokens_per_s:.1f} @{cell.depth}",
        f"{cell.rival.tokens_per_pass:.2f}",
        f"{cell.ours.tokens_per_s:.1f}",
        f"{cell.ours.tokens_per_pass:.2f}",
        *_ratio(cell.over_plain),
        *_ratio(cell.over_rival),
    )


def _ratio(ratio: Ratio | None) -> tuple[str, str]:
    return number(None if ratio is None else ratio.value, "{:.2f}x"), interval(ratio)


def _named(cells: Sequence[SpecCell]) -> str:
    if not cells:
        return ""
    return f"; not in {', '.join(f'{cell.task} at {cell.temperature:g}' for cell in cells)}"
