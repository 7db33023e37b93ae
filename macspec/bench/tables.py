"""The tables of a report, as text and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..plaintext import one_line
from .equality import Equality
from .report import ALL, FORCED, Cell
from .statistics import Ratio

DASH = "-"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells that are text already. The first column is aligned left, the others right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def text(self) -> str:
        """For a terminal; columns in which nothing is known are left out."""
        kept = [
            at
            for at in range(len(self.columns))
            if at == 0 or any(row[at] not in (DASH, "") for row in self.rows)
        ]
        whole = (self.columns, *self.rows)
        lines = [[row[at] for at in kept] for row in whole]
        widths = [max(len(line[at]) for line in lines) for at in range(len(kept))]
        made = [self.title] if self.title else []
        for first, *rest in lines:
            cells = [f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True)]
            made.append("  ".join([f"  {first:<{widths[0]}}", *cells]).rstrip())
        return "".join(f"{line}\n" for line in made)

    def markdown(self) -> str:
        """The same for a page."""
        lines = [self.columns, ("---", *["---:"] * (len(self.columns) - 1)), *self.rows]
        table = "".join(f"| {' | '.join(map(_escaped, line))} |\n" for line in lines)
        return f"**{_escaped(self.title)}**\n\n{table}" if self.title else table


def summary(cells: Sequence[Cell], group: str = ALL) -> Iterator[Table]:
    """A table for each temperature: all arms on one group of tasks."""
    columns = (
        "arm", "tok/s", "vs plain", "95 %", "tok/pass", "accepted", "TTFT ms", "ITL ms", "p95",
        "J/token", "equal",
    )  # fmt: skip
    for temperature in sorted({cell.temperature for cell in cells}):
        members = [it for it in cells if it.group == group and it.temperature == temperature]
        rows = tuple(
            (
                it.arm,
                number(it.decode_tokens_per_s, "{:.1f}"),
                number(None if it.speedup is None else it.speedup.value, "{:.2f}x"),
                interval(it.speedup),
                number(it.tokens_per_pass, "{:.2f}"),
                number(it.acceptance, "{:.2f}"),
                number(None if it.ttft_s is None else 1e3 * it.ttft_s, "{:.0f}"),
                number(it.itl_ms_median, "{:.1f}"),
                number(it.itl_ms_p95, "{:.1f}"),
                number(it.joules_per_token, "{:.3g}"),
                equal(it.equality),
            )
            for it in members
        )
        if rows:
            yield Table(_title(temperature, group), columns, rows)


def by_workload(cells: Sequence[Cell], baseline: str) -> Iterator[Table]:
    """A table for each temperature: speed-up and tokens per pass of every arm by workload."""
    for temperature in sorted({cell.temperature for cell in cells}):
        there = [it for it in cells if it.temperature == temperature]
        arms = [arm for arm in dict.fromkeys(it.arm for it in there) if arm != baseline]
        groups = list(dict.fromkeys(it.group for it in there))
        rows = tuple(
            (group, *(_pair(there, group, arm) for arm in arms))
            for group in groups
            if group not in (ALL, ALL + FORCED)
        )
        if len(rows) > 1 and arms:
            title = f"temperature {temperature:g}: times {baseline}, and tokens per pass"
            yield Table(title, ("workload", *arms), rows)


def number(value: float | None, form: str) -> str:
    """A value, or a dash where there is none."""
    return DASH if value is None else form.format(value)


def interval(ratio: Ratio | None) -> str:
    """The interval of a ratio."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return DASH
    return f"{ratio.low:.2f}-{ratio.high:.2f}"


def equal(equality: Equality) -> str:
    """How many replies are the baseline's; near ties and differences apart."""
    if equality.compared == 0:
        return DASH
    said = f"{equality.equal}/{equality.compared}"
    if equality.near_ties:
        said += f", {equality.near_ties} near"
    if equality.differ:
        said += f", {equality.differ} DIFFER"
    return said


def _pair(cells: Sequence[Cell], group: str, arm: str) -> str:
    found = next((it for it in cells if it.group == group and it.arm == arm), None)
    if found is None or found.speedup is None:
        return DASH
    return f"{found.speedup.value:.2f}x {number(found.tokens_per_pass, '{:.2f}')}"


def _title(temperature: float, group: str) -> str:
    tail = "" if group == ALL else f", {group}"
    return f"temperature {temperature:g}{tail}"


def _escaped(text: str) -> str:
    return one_line(text).replace("|", "\\|")
