"""What a reply of ``macspec run`` took in energy, where its statistics are asked for."""

from __future__ import annotations

from typing import Any

from ..events import Event
from ..power import Meter, ReplyEnergy, ReplyWatch, choose, remembered_idle


class Gauge:
    """Measures one reply. Make it early: a source takes a moment to be found.

    Args:
        wanted: whether anything is to be measured.
        source: the setting ``power.source``.
    """

    def __init__(self, wanted: bool, source: str = "auto") -> None:
        self._meter = Meter(lambda: choose(source), idle=remembered_idle()) if wanted else None
        self._watch: ReplyWatch | None = None
        if self._meter is not None:
            self._meter.start()

    def begin(self) -> None:
        """The reply is asked for now."""
        if self._meter is not None:
            self._watch = ReplyWatch(self._meter)

    def see(self, event: Event) -> None:
        """Take the reply's next event."""
        if self._watch is not None:
            self._watch.see(event)

    def result(self) -> ReplyEnergy | None:
        """What it took, after seconds of waiting at most; None where nothing was wanted."""
        if self._watch is None:
            return None
        self._watch.end()
        self._watch.settle()
        return self._watch.result()

    def record(self) -> dict[str, Any] | None:
        """The same, ready for JSON."""
        result = self.result()
        return None if result is None else result.as_dict()

    def close(self) -> None:
        """End the measuring."""
        if self._meter is not None:
            self._meter.stop()
