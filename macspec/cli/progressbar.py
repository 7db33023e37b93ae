"""A download on standard error: a line that moves on a terminal, one now and then elsewhere."""

from __future__ import annotations

import shutil
import sys

from ..models.progress import Progress, size
from ..plaintext import one_line
from ..terminal import say

STEP = 0.1
"""Share of a download between two lines where nothing can move."""


class ProgressBar:
    """Shows how far a model is."""

    def __init__(self) -> None:
        self._moves = sys.stderr is not None and sys.stderr.isatty()
        self._said: dict[str, float] = {}
        self._open = False

    def show(self, progress: Progress) -> None:
        """Show a step, over the last one."""
        share = progress.done / progress.total if progress.total else 1.0
        if self._moves:
            width = shutil.get_terminal_size().columns - 1
            line = f"\r{_line(progress, share, width):<{width}}"
            print(line, end="", file=sys.stderr, flush=True)
            self._open = True
        elif share - self._said.get(progress.model, 0.0) >= STEP:
            self._said[progress.model] = share
            say(_line(progress, share, 200))

    def end(self) -> None:
        """What follows goes to a line of its own."""
        if self._open:
            print(file=sys.stderr, flush=True)
            self._open = False


def _line(progress: Progress, share: float, width: int) -> str:
    numbers = f"{share:4.0%}  {size(progress.done)} of {size(progress.total)}"
    if progress.rate > 0:
        left = round((progress.total - progress.done) / progress.rate)
        numbers += f"  {size(progress.rate)}/s  {left // 60}:{left % 60:02} left"
    room = max(width - len(numbers) - 2, 8)
    name = one_line(progress.model)
    name = name if len(name) <= room else f"…{name[-room + 1 :]}"
    return f"{name}  {numbers}"[:width]
