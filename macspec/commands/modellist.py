"""The list of ``macspec models``: what is here, what fits this machine, what can be fetched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..device import prepare
from ..models.catalog import CONTEXT, Entry, best
from ..models.inventory import held
from ..models.machine import pressure, unified_memory
from ..models.matches import candidate, matches
from ..models.memory import device_limit, gigabytes, plan
from ..models.progress import size
from ..plaintext import one_line
from .output import Output


def list_models(known: Sequence[Entry], as_json: bool) -> None:
    """Print the machine, the models at hand, which can draft for which, and the catalogue.

    Args:
        known: the catalogue.
        as_json: one JSON object a line, with the sizes in bytes.
    """
    prepare()
    memory, limit = unified_memory(), device_limit()
    proposal = best(memory, limit)
    output, rows = Output(), _Rows()
    candidates = []
    if as_json:
        now = pressure()
        machine = {"memory": memory, "limit": limit, "pressure": now.level, "free": now.free}
        output.json({"machine": machine})
    else:
        output.text(
            f"this machine: {gigabytes(memory)} of memory, {gigabytes(limit)} of it for models; "
            f"pressure {pressure()}\n\nin the hub's cache\n"
        )
    for model in (here := held()):
        opened = None if model.missing else candidate(model.name, model.folder)
        if opened is not None:
            candidates.append(opened)
        needs, cost = None, None if opened is None else opened.footprint
        if cost is not None:
            needs = plan(cost, None, min(CONTEXT, cost.context), None, limit)
        reason = model.missing or (opened.reason if opened else None)
        if as_json:
            fits = None if needs is None else needs.fits
            memory_used = None if needs is None else needs.total
            record = {"name": model.name, "size": model.size, "memory": memory_used, "fits": fits}
            output.json({"model": {**record, "folder": str(model.folder), "reason": reason}})
        else:
            memory_text = "-" if needs is None else f"{gigabytes(needs.total)} at {needs.context}"
            verdict = "" if needs is None else "fits" if needs.fits else "too large"
            rows.add(model.name, size(model.size), memory_text, verdict, reason or "")
    if not as_json:
        output.text(rows.text() if here else "  nothing yet\n")
        output.text("\ndrafts for them\n" if len(candidates) > 1 else "")
    for match in matches(candidates):
        if as_json:
            output.json({"match": asdict(match)})
        else:
            verdict = "fits" if match.reason is None else f"no: {match.reason}"
            output.text(one_line(f"  {match.target} + {match.draft}: {verdict}") + "\n")
    names = {model.name for model in here if model.missing is None}
    _show_catalogue(output, known, names, limit, proposal, as_json)


def _show_catalogue(
    output: Output,
    known: Sequence[Entry],
    here: set[str],
    limit: int,
    proposal: Entry | None,
    as_json: bool,
) -> None:
    rows = _Rows()
    for pair in known:
        fits = pair.fits(limit)
        if as_json:
            record: dict[str, Any] = {**asdict(pair), "fits": fits, "proposed": pair == proposal}
            record |= {"date": str(pair.date), "loaded": pair.loaded and str(pair.loaded)}
            output.json({"pair": record})
            continue
        rows.add(
            pair.name,
            "-" if pair.download is None else f"{pair.download:.1f} GB",
            "-" if pair.memory_8k is None else f"{pair.memory_8k:.1f} GB at {CONTEXT}",
            "here" if here.issuperset(pair.models) else _verdict(fits),
            " + ".join(pair.models),
        )
    if as_json:
        return
    output.text(f"\npairs to fetch\n{rows.text()}")
    untried = [pair for pair in known if pair.loaded is None]
    if untried:
        output.text(
            "  nobody has loaded "
            + ("these" if len(untried) == len(known) else ", ".join(it.name for it in untried))
            + " with macspec yet; their sizes are computed\n"
        )
    if proposal is not None:
        output.text(f"for this machine: macspec models pull {proposal.name}\n")


def _verdict(fits: bool | None) -> str:
    return "" if fits is None else "fits" if fits else "too large"


class _Rows:
    """Cells in columns."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, ...]] = []

    def add(self, *cells: str) -> None:
        self._rows.append(tuple(map(one_line, cells)))

    def text(self) -> str:
        """The rows, indented, each column but the last as wide as its widest cell."""
        widths = [max(map(len, column)) for column in zip(*self._rows, strict=True)]
        lines = (
            "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
            for row in self._rows
        )
        return "".join(line.rstrip() + "\n" for line in lines)
