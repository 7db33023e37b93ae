"""A download from the hub in a process of its own, so that neither screen nor engine wait for it.

What arrived stays when it is cancelled or breaks, and the next download goes on from there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from macspec.models.progress import size
from macspec.plaintext import one_line

from .children import PYTHON, Child

PROGRAM = (*PYTHON, "macspec", "models", "pull", "--json")

ASKING, FETCHING, WAITING, DONE, CANCELLED, FAILED = (
    "asking the hub",
    "fetching",
    "waiting",
    "done",
    "cancelled",
    "failed",
)
ENDED = (DONE, CANCELLED, FAILED)


class Download:
    """Models on their way from the hub; ``run`` it once.

    Args:
        names: ids on the hub.
        program: what fetches them.
    """

    def __init__(self, names: Sequence[str], *, program: Sequence[str] = PROGRAM) -> None:
        self.names = tuple(names)
        self.state = ASKING
        """One of the constants above."""
        self.message = ""
        """Why it waits or failed, and what to do; neutral."""
        self.done = 0
        """Bytes that are here."""
        self.total = 0
        """Bytes of all of it; 0 where that is not known yet."""
        self.rate = 0.0
        """Bytes per second, over the last seconds."""
        self._present = 0
        self._parts: dict[str, int] = {}
        self._whole = 0
        self._cancelled = False
        self._child = Child([*program, *names])

    @property
    def active(self) -> bool:
        """Whether it is under way."""
        return self.state not in ENDED

    async def run(self) -> AsyncIterator[None]:
        """Fetch, and tell each time when something has changed; never raises for the hub's sake."""
        async for record in self._child.records():
            self._take(record)
            yield
        if self.active:
            self.state = CANCELLED if self._cancelled else FAILED
            self.message = self._child.complaint or "the download ended unexpectedly: try again"
            if self._whole == len(self.names):
                self.state, self.message = DONE, ""
        yield

    def cancel(self) -> None:
        """Have it end; what arrived stays for the next time."""
        self._cancelled = True
        self._child.end()

    def line(self) -> str:
        """How it is, in one line."""
        names = " and ".join(one_line(name).rpartition("/")[2] for name in self.names)
        if self.state == FAILED:
            return self.message
        if self.state == CANCELLED:
            return f"cancelled; the {size(self.done)} that arrived are kept: {names}"
        if self.state == DONE:
            return f"here ({size(self.total)}): {names}"
        if self.state == WAITING:
            return f"{self.message}: {names}"
        if not self.total:
            return f"asking the hub: {names}"
        parts = [f"{self.done / self.total:.0%} of {size(self.total)}"]
        if self.rate > 0:
            parts += [f"{size(self.rate)}/s", f"{_span((self.total - self.done) / self.rate)} left"]
        return f"{', '.join(parts)}: {names}"

    def _take(self, record: dict[str, Any]) -> None:
        kind = record.get("event")
        if kind == "listed":
            self.total, self._present = int(record["total"]), int(record["present"])
            self.done, self.state = self._present, FETCHING
        elif kind == "progress":
            self.state, self.message = FETCHING, ""
            self.rate = float(record["rate"])
            self._count(str(record["model"]), int(record["done"]))
        elif kind == "retrying":
            self.state = WAITING
            why = one_line(str(record["reason"]))
            self.message = f"the connection broke ({why}): again in {record['seconds']:g} s"
        elif kind == "pulled":
            self._whole += 1
            self._count(str(record["model"]), int(record["total"]))

    def _count(self, model: str, done: int) -> None:
        self._parts[model] = done
        self.done = min(max(self._present, sum(self._parts.values())), self.total)


def _span(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
