"""What ``macspec bench`` prints and writes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..bench import compare, document
from ..bench.cells import ALL, FORCED
from ..bench.report import by_workload, head, limits, notes, page, positions, summary, swept
from ..errors import BadOptionError, brief


class Files:
    """Where a report goes.

    Args:
        path: of the JSON file; the others lie beside it.
        plot: whether pictures are wanted.

    Raises:
        BadOptionError: nothing can be written there.
    """

    def __init__(self, path: Path, *, plot: bool) -> None:
        self._path, self._plot = path, plot
        there = next(it for it in path.parents if it.exists())
        if path.is_dir() or not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            raise BadOptionError(f"cannot write {path}: choose another place with --out")

    def write(self, found: Mapping[str, Any]) -> Iterator[str]:
        """Write everything.

        Yields:
            A line on what was written, or why it was not.

        Raises:
            BadOptionError: it cannot be written.
        """
        document.save(self._path, found)
        yield f"report: {self._path}"
        beside = self._path.with_suffix(".md")
        try:
            beside.write_text(page(found), encoding="utf-8")
        except OSError as error:
            raise BadOptionError(f"cannot write {beside}: {brief(error)}") from None
        yield f"tables: {beside}"
        if self._plot:
            yield from _pictures(found, self._path)


def told(found: Mapping[str, Any]) -> str:
    """A report for a terminal."""
    cells = document.cells_of(found)
    parts = ["".join(f"{line}\n" for line in head(found))]
    for group in (ALL, ALL + FORCED):
        parts += [table.text() for table in summary(cells, found["baseline"], group)]
    parts += [table.text() for table in by_workload(cells, found["baseline"])]
    parts += [table.text() for table in swept(found)]
    parts += [table.text() for table in positions(cells)]
    parts += [table.text() for table in limits(cells, found["baseline"])]
    parts.append("".join(f"{line}\n" for line in notes(found)))
    return "\n".join(part for part in parts if part)


def _pictures(found: Mapping[str, Any], path: Path) -> Iterator[str]:
    try:
        from ..bench.plots import draw
    except ImportError:
        yield "no pictures without matplotlib: pip install 'macspec[plots]' adds it"
        return
    for picture in draw(found, path.parent):
        yield f"picture: {picture}"


def compared(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Two reports for a terminal."""
    different = list(compare.differences(one, other))
    parts = [
        "measured under the same conditions, as far as the reports tell\n"
        if not different
        else "not the same\n" + "".join(f"  {line}\n" for line in different)
    ]
    parts += [table.text() for table in compare.tables(one, other)]
    count = compare.disagreements(one, other)
    parts.append(f"{count} of the intervals do not meet\n" if count else "no intervals disagree\n")
    return "\n".join(parts)
