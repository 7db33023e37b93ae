"""Two reports side by side, and where they disagree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..cli.table import DASH, Table, number
from ..plaintext import one_line
from .cells import Cell, Ratio
from .document import cells_of
from .report import Block, Record, ratio_columns

CALLED = ("A", "B")

SETUP = {
    "machine": ("chip", "cores", "memory_bytes", "backend", "system", "python", "versions"),
    "models": ("target", "draft", "head", "context", "kv_bits", "kernels"),
    "protocol": (
        "temperatures", "repeats", "seed", "end_of_text", "top_p", "top_k", "min_p",
    ),
}  # fmt: skip
"""What makes two reports measurements of the same thing."""


def blocks(one: Record, other: Record) -> Iterator[Block]:
    """What differed when the two were measured, their tables, and how many cells disagree."""
    if different := list(differences(one, other)):
        yield ["measured under different conditions", *(f"  {line}" for line in different)]
    else:
        yield ["measured under the same conditions, as far as the reports show"]
    yield from tables(one, other)
    count = disagreements(one, other)
    yield [f"{count} of the intervals do not overlap" if count else "no intervals disagree"]


def differences(one: Record, other: Record) -> Iterator[str]:
    """What was not the same when the two were measured, a line each."""
    for group, names in SETUP.items():
        for name in names:
            yield from _differ(f"{group}: {name}", one[group].get(name), other[group].get(name))
    if one["baseline"] != other["baseline"]:
        yield f"baseline: {one['baseline']} in A, {other['baseline']} in B"
    asked = [
        {it["id"]: (it["digest"], it["prompt_tokens"]) for it in record["questions"]}
        for record in (one, other)
    ]
    if asked[0] != asked[1]:
        same = sum(asked[1].get(name) == value for name, value in asked[0].items())
        yield f"prompts: {len(asked[0])} in A, {len(asked[1])} in B, {same} of them the same"
    for name, record in zip(CALLED, (one, other), strict=True):
        if record["ended"] == "interrupted":
            yield f"{name} was interrupted"


def tables(one: Record, other: Record) -> Iterator[Table]:
    """A table for each temperature: the speed-ups of both, and whether they agree."""
    cells = [_by_place(cells_of(record)) for record in (one, other)]
    places = dict.fromkeys([*cells[0], *cells[1]])
    baselines = {one["baseline"], other["baseline"]}
    columns = (
        "workload", "arm", "A", "95%", "B", "95%", "B/A", "agree", "tok/pass A", "tok/pass B",
    )  # fmt: skip
    for temperature in sorted({place[0] for place in places}):
        rows = [
            _row(place, cells[0].get(place), cells[1].get(place))
            for place in places
            if place[0] == temperature and place[2] not in baselines
        ]
        if rows:
            yield Table(f"temperature {temperature:g}", columns, tuple(rows), left=2)


def disagreements(one: Record, other: Record) -> int:
    """How many cells have intervals in both that do not meet."""
    cells = [_by_place(cells_of(record)) for record in (one, other)]
    return sum(
        agree(a.speedup, cells[1][place].speedup) is False
        for place, a in cells[0].items()
        if place in cells[1]
    )


def agree(one: Ratio | None, other: Ratio | None) -> bool | None:
    """Whether two intervals meet; None where one is missing."""
    if one is None or one.low is None or one.high is None:
        return None
    if other is None or other.low is None or other.high is None:
        return None
    return one.low <= other.high and other.low <= one.high


def _by_place(cells: Sequence[Cell]) -> dict[tuple[float, str, str], Cell]:
    return {(cell.temperature, cell.group, cell.arm): cell for cell in cells}


def _row(place: tuple[float, str, str], a: Cell | None, b: Cell | None) -> tuple[str, ...]:
    one, other = (None if cell is None else cell.speedup for cell in (a, b))
    both = None if one is None or other is None else other.value / one.value
    return (
        one_line(place[1]),
        one_line(place[2]),
        *ratio_columns(one),
        *ratio_columns(other),
        number(both, "{:.2f}"),
        {None: DASH, True: "yes", False: "NO"}[agree(one, other)],
        number(None if a is None else a.tokens_per_pass, "{:.2f}"),
        number(None if b is None else b.tokens_per_pass, "{:.2f}"),
    )


def _differ(name: str, one: Any, other: Any) -> Iterator[str]:
    """What is not the same, of two dictionaries each entry for itself."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys([*one, *other]):
            yield from _differ(f"{name} {key}", one.get(key), other.get(key))
    elif one != other:
        yield one_line(f"{name}: {one} in A, {other} in B")
