"""Pictures of a report, as PNG and SVG. They need matplotlib, an extra."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler

from ..control.cost import EDGES
from ..errors import BadOptionError, brief
from ..plaintext import one_line
from .cells import Cell, Ratio
from .document import cells_of
from .report import Record
from .sweeps import Point, points_of

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442", "#000000")
"""Okabe and Ito's, distinguishable with colour blindness."""

LEAST_DRAFTED = 10
"""Tokens of which a share is worth drawing."""

SETTINGS: Any = {
    "axes.prop_cycle": cycler(color=COLOURS),
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "legend.frameon": False,
    "svg.hashsalt": "macspec",
    "text.parse_math": False,
}


def draw(record: Record, folder: Path) -> Iterator[Path]:
    """Every picture that a report has the numbers for, as files in a folder that exists.

    Raises:
        BadOptionError: one cannot be written.
    """
    with matplotlib.rc_context(SETTINGS):
        for name, make in PICTURES.items():
            figure = make(record)
            if figure is None:
                continue
            figure.supxlabel(one_line(_about(record)), fontsize=7, color="0.4")
            for ending, metadata in (("png", {}), ("svg", {"Date": None})):
                path = folder / f"{name}.{ending}"
                try:
                    figure.savefig(path, dpi=160, bbox_inches="tight", metadata=metadata)
                except OSError as error:
                    raise BadOptionError(f"cannot write {path}: {brief(error)}") from None
                yield path


def speedups(record: Record) -> Figure | None:
    """Speed-up by workload: a panel for each temperature, a bar for each arm."""
    cells = [it for it in cells_of(record) if it.speedup and it.arm != record["baseline"]]
    temperatures = sorted({cell.temperature for cell in cells})
    if not cells:
        return None
    groups, arms = _once(cell.group for cell in cells), _once(cell.arm for cell in cells)
    size = (max(5.0, 1.1 * len(groups) + 1.5), 2.6 * len(temperatures))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(temperatures), 1, squeeze=False, sharex=True)[:, 0]
    for panel, temperature in zip(panels, temperatures, strict=True):
        there = [cell for cell in cells if cell.temperature == temperature]
        _bars(panel, there, groups, arms)
        panel.axhline(1, color="0.5", linewidth=0.8)
        panel.set_title(f"temperature {temperature:g}", loc="left")
        panel.set_ylabel(f"times {one_line(record['baseline'])}")
    panels[0].legend(ncols=min(len(arms), 4), loc="lower right", bbox_to_anchor=(1, 1))
    return figure


def acceptance(record: Record) -> Figure | None:
    """How often drafted tokens are accepted, by position in the chain."""
    cells = [it for it in cells_of(record) if it.whole and _known_rates(it)]
    if not cells:
        return None
    panels_of = _once((cell.temperature, cell.group) for cell in cells)
    arms = _once(cell.arm for cell in cells)
    figure = Figure(figsize=(max(4.5, 3.2 * len(panels_of)), 3.0), layout="constrained")
    panels = figure.subplots(1, len(panels_of), squeeze=False, sharey=True)[0]
    for panel, (temperature, group) in zip(panels, panels_of, strict=True):
        for cell in cells:
            if (cell.temperature, cell.group) == (temperature, group):
                rates = _known_rates(cell)
                colour, places = f"C{arms.index(cell.arm)}", range(1, len(rates) + 1)
                label = one_line(cell.arm)
                panel.plot(places, rates, "o-", color=colour, label=label, markersize=3)
        panel.set_title(f"temperature {temperature:g}, {group}", loc="left")
        panel.set_xlabel("position in the chain")
        panel.set_ylim(0, 1.02)
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.legend()
    panels[0].set_ylabel("accepted / drafted")
    return figure


def cost_curve(record: Record) -> Figure | None:
    """What a pass costs by its rows, in plain steps."""
    costs = record["costs"]
    if not costs["passes"]:
        return None
    buckets: dict[int, dict[int, float]] = {}
    for rows, at, cost in sorted(costs["passes"]):
        buckets.setdefault(at, {1: 1.0})[rows] = cost
    figure = Figure(figsize=(5.0, 3.2), layout="constrained")
    panel = figure.subplots()
    for at, points in sorted(buckets.items()):
        panel.plot([*points], [*points.values()], "o-", label=_context(at), markersize=3)
    most = max(map(max, buckets.values()))
    panel.plot([1, most], [1, most], ":", color="0.6", label="one plain step a row")
    for name, step in costs["steps"].items():
        panel.axhline(step, linestyle="--", color="0.4", linewidth=0.8)
        panel.annotate(f"a step of {one_line(name)}", (most, step), ha="right", va="bottom")
    panel.set_ylim(0, 1.15 * max(cost for *_, cost in costs["passes"]))
    panel.set_xlabel("rows in one pass")
    panel.set_ylabel("plain steps")
    panel.set_title("cost of a verify pass", loc="left")
    panel.legend()
    return figure


def sweep(record: Record) -> Figure | None:
    """Speed-up over what was swept, and what the controller chose."""
    points = points_of(record)
    if not points:
        return None
    temperatures = sorted({point.temperature for point in points})
    size = (max(5.0, 3.6 * len(temperatures)), 3.2)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(temperatures), squeeze=False, sharey=True)[0]
    for panel, temperature in zip(panels, temperatures, strict=True):
        there = [point for point in points if point.temperature == temperature]
        for number, series in enumerate(_once(point.series for point in there)):
            members = [point for point in there if point.series == series]
            _line(panel, members, f"C{number}", one_line(series))
        chosen = record["sweep"]["chosen"].get(f"{temperature:g}")
        if chosen is not None:
            _mark(panel, chosen)
        panel.axhline(1, color="0.5", linewidth=0.8)
        panel.set_title(f"temperature {temperature:g}", loc="left")
        panel.set_xlabel(record["sweep"]["over"])
        panel.legend()
    panels[0].set_ylabel(record["sweep"]["measure"])
    return figure


PICTURES: dict[str, Callable[[Record], Figure | None]] = {
    "speedup": speedups,
    "acceptance": acceptance,
    "cost-curve": cost_curve,
    "sweep": sweep,
}


def _known_rates(cell: Cell) -> list[float]:
    """The acceptance by position, where enough tokens were drafted."""
    known = [it for it in cell.drafted_by_position if it >= LEAST_DRAFTED]
    return list(cell.acceptance_by_position[: len(known)])


def _bars(panel: Axes, cells: Sequence[Cell], groups: Sequence[str], arms: Sequence[str]) -> None:
    width = 0.8 / len(arms)
    for number, arm in enumerate(arms):
        members = [(cell.group, cell.speedup) for cell in cells if cell.arm == arm and cell.speedup]
        places = [groups.index(group) + (number + 0.5) * width - 0.4 for group, _ in members]
        found = [speedup for _, speedup in members]
        values = [it.value for it in found]
        panel.bar(places, values, width * 0.95, color=f"C{number}", label=one_line(arm))
        _whiskers(panel, places, found, "0.2")
    panel.set_xticks(range(len(groups)), [one_line(group) for group in groups], rotation=25)
    for label in panel.get_xticklabels():
        label.set_horizontalalignment("right")


def _line(panel: Axes, points: Sequence[Point], colour: str, label: str) -> None:
    numeric = all(isinstance(point.x, int | float) for point in points)
    places = [point.x if numeric else one_line(str(point.x)) for point in points]
    values = [point.value for point in points]
    style = "o-" if numeric else "o"
    panel.plot(places, values, style, color=colour, label=label, markersize=4)
    _whiskers(panel, places, points, colour)
    if not numeric:
        panel.tick_params("x", rotation=25)


def _mark(panel: Axes, chosen: Mapping[str, Any]) -> None:
    """The controller's depths, and the speed that came of them."""
    panel.axhline(chosen["value"], linestyle="--", color="#d55e00", linewidth=1)
    panel.plot([chosen["x"]], [chosen["value"]], "*", color="#d55e00", markersize=11, label="auto")
    for depth, share in chosen["shares"]:
        panel.axvspan(depth - 0.5, depth + 0.5, color="#d55e00", alpha=0.3 * share, linewidth=0)


def _whiskers(
    panel: Axes, places: Sequence[float | str], found: Sequence[Ratio | Point], colour: str
) -> None:
    known = [
        (place, it.value, max(it.value - it.low, 0), max(it.high - it.value, 0))
        for place, it in zip(places, found, strict=True)
        if it.low is not None and it.high is not None
    ]
    if known:
        x, y, down, up = zip(*known, strict=True)
        panel.errorbar(x, y, (down, up), fmt="none", ecolor=colour, elinewidth=1, capsize=2)


def _context(at: int) -> str:
    low, high = (0, *EDGES)[at], (*EDGES, None)[at]
    return f"context over {low}" if high is None else f"context up to {high}"


def _about(record: Record) -> str:
    """What it was measured on, below every picture."""
    machine, models = record["machine"], record["models"]
    drafting = models["draft"] or models.get("head")
    draft = "no draft model" if drafting is None else drafting["name"]
    cut = ", interrupted" if record["ended"] == "interrupted" else ""
    return (
        f"{machine['chip']}, MLX {machine['versions']['mlx']} on {machine['backend']}; "
        f"{models['target']['name']} with {draft}; {record['made'][:10]}{cut}"
    )


def _once(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))
