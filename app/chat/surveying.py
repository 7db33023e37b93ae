"""What models are on this machine, asked of a process that may import MLX."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from macspec.models.findings import EVENTS, Fit, Found, Listed, Machine, Opened
from macspec.plaintext import one_line

from .children import PYTHON, Child

PROGRAM = (*PYTHON, "macspec.models.survey")


class Survey:
    """The models of the hub's cache and of some folders; filled by ``run``, as often as wanted.

    What was found before stays until something newer is known.

    Args:
        program: what looks.
    """

    def __init__(self, *, program: Sequence[str] = PROGRAM) -> None:
        self._program = program
        self.found: dict[str, Found] = {}
        """By name."""
        self.opened: dict[str, Opened] = {}
        self.fits: dict[tuple[str, str], Fit] = {}
        """By target and draft."""
        self.limit: int | None = None
        """Bytes for models; None while that is not known."""
        self.listed = False
        """Whether ``found`` is all that there is."""
        self.whole = False
        """Whether everything was opened and compared."""
        self.trouble = ""
        """Why the last survey came to nothing; neutral."""
        self._known: dict[str, str] = {}
        """Stamps, by name, of what was compared."""

    async def run(self, folders: Sequence[str]) -> AsyncIterator[None]:
        """Look again, and tell each time when more is known."""
        child = Child([*self._program, *folders])
        now: dict[str, Found] = {}
        self.trouble = ""
        async for record in child.records():
            event = _event(record)
            match event:
                case Found():
                    now[event.name] = event
                    continue
                case Listed():
                    self._list(now)
                    if self.whole:
                        child.end()
                case Machine():
                    self.limit = event.limit
                case Opened():
                    self.opened[event.name] = event
                case Fit():
                    self.fits[event.target, event.draft] = event
                case None:
                    self.trouble = one_line(str(record.get("message", "")))
            yield
        if child.complaint:
            self.trouble = child.complaint
        elif self.listed:
            self.whole = True
            self._known = {it.name: it.stamp for it in self.found.values()}
        yield

    def _list(self, now: dict[str, Found]) -> None:
        """Take over what lies where, and forget what is known of models that have changed."""
        stamps = {it.name: it.stamp for it in now.values()}
        self.found, self.listed = now, True
        self.whole = self.whole and stamps == self._known
        if not self.whole:
            same = {name for name, stamp in stamps.items() if self._known.get(name) == stamp}
            self.opened = {name: it for name, it in self.opened.items() if name in same}
            self.fits = {pair: it for pair, it in self.fits.items() if same.issuperset(pair)}


def _event(record: dict[str, Any]) -> Found | Listed | Machine | Opened | Fit | None:
    kind = EVENTS.get(str(record.pop("event", "")))
    try:
        return None if kind is None else kind(**record)
    except TypeError:
        return None
