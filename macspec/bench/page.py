"""A report as a Markdown page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .record import cells_of
from .report import ALL, FORCED
from .tables import by_workload, limits, positions, summary, swept
from .words import head, notes


def page(record: Mapping[str, Any]) -> str:
    """The tables, and all that is said beside them."""
    cells = cells_of(record)
    parts = [
        "# macspec bench\n",
        f"{record['made']}\n",
        "```\n" + " ".join(record["command"]) + "\n```\n",
        "".join(f"- {line}\n" for line in head(record)),
    ]
    for group in (ALL, ALL + FORCED):
        parts += [table.markdown() for table in summary(cells, record["baseline"], group)]
    parts += [table.markdown() for table in by_workload(cells, record["baseline"])]
    parts += [table.markdown() for table in swept(record)]
    parts += [table.markdown() for table in positions(cells)]
    parts += [table.markdown() for table in limits(cells, record["baseline"])]
    parts.append("".join(f"- {line.strip()}\n" for line in notes(record) if line))
    return "\n".join(part for part in parts if part)
