"""The list of ``macspec models``: what is here, what fits this machine, what can be fetched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..models.catalog import CONTEXT, Entry, best
from ..models.machine import pressure, unified_memory
from ..models.memory import gigabytes
from ..models.progress import size
from ..models.scan import FoundModel, MachineMemory, OpenedModel, PairFit, scan
from ..plaintext import one_line
from ..terminal import Output


def list_models(known: Sequence[Entry], as_json: bool) -> None:
    """Print the machine, the models at hand, which can draft for which, and the catalogue.

    Args:
        known: the catalogue.
        as_json: one JSON object a line, with the sizes in bytes.
    """
    output, limit = Output(), 0
    found: dict[str, FoundModel] = {}
    opened: dict[str, OpenedModel] = {}
    fits: list[PairFit] = []
    for event in scan():
        match event:
            case FoundModel():
                found[event.name] = event
            case MachineMemory():
                limit = event.limit
                _show_machine(output, event, as_json)
            case OpenedModel():
                opened[event.name] = event
            case PairFit():
                fits.append(event)
    _show_models(output, found.values(), opened, as_json)
    if not as_json:
        output.text("\ndrafts for them\n" if len(opened) > 1 else "")
    for fit in sorted(fits, key=lambda it: (it.target.lower(), it.draft.lower())):
        if as_json:
            output.json({"match": asdict(fit)})
        else:
            verdict = "fits" if fit.reason is None else f"no: {fit.reason}"
            output.text(one_line(f"  {fit.target} + {fit.draft}: {verdict}") + "\n")
    names = {it.name for it in found.values() if it.missing is None}
    _show_catalogue(output, known, names, limit, best(unified_memory(), limit), as_json)


def _show_machine(output: Output, machine: MachineMemory, as_json: bool) -> None:
    now = pressure()
    if as_json:
        record = {**asdict(machine), "pressure": now.level, "free": now.free}
        output.json({"machine": record})
    else:
        output.text(
            f"this machine: {gigabytes(machine.memory)} of memory, {gigabytes(machine.limit)} of "
            f"it for models; pressure {now}\n\nin the hub's cache\n"
        )


def _show_models(
    output: Output, found: Iterable[FoundModel], opened: Mapping[str, OpenedModel], as_json: bool
) -> None:
    rows = _Rows()
    for model in found:
        it = opened.get(model.name)
        memory, fits = (None, None) if it is None else (it.memory, it.fits)
        reason = model.missing or (it.reason if it else None)
        if as_json:
            record = {"name": model.name, "size": model.size, "memory": memory, "fits": fits}
            output.json({"model": {**record, "folder": model.folder, "reason": reason}})
        else:
            needs = (
                "-" if it is None or memory is None else f"{gigabytes(memory)} at {it.positions}"
            )
            rows.add(model.name, size(model.size), needs, _verdict(fits), reason or "")
    if not as_json:
        output.text(rows.text() or "  nothing yet\n")


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
        if not self._rows:
            return ""
        widths = [max(map(len, column)) for column in zip(*self._rows, strict=True)]
        lines = (
            "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
            for row in self._rows
        )
        return "".join(line.rstrip() + "\n" for line in lines)
