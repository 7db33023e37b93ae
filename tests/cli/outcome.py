"""What a command did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    status: int
    out: bytes
    err: str

    @property
    def error(self) -> str:
        """The only error line."""
        lines = [line for line in self.err.splitlines() if "error" in line]
        assert len(lines) == 1, self.err
        return lines[0]
