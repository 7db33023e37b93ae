"""How far a measurement is, on standard error."""

from __future__ import annotations

import shutil
import sys

from ..bench.run import Step
from ..plaintext import one_line
from ..terminal import say

STEP = 0.1
"""Share of a measurement between two lines where nothing can move."""

WIDTH = 24
"""Characters of the bar."""


class MeasureBar:
    """A line that moves on a terminal; one now and then elsewhere.

    Args:
        unit: what is counted.
    """

    def __init__(self, unit: str = "replies") -> None:
        self._unit = unit
        self._moves = sys.stderr is not None and sys.stderr.isatty()
        self._said = -STEP
        self._open = False

    def show(self, step: Step) -> None:
        """Show a step, over the last one."""
        share = step.done / step.total if step.total else 0.0
        if self._moves:
            width = shutil.get_terminal_size().columns - 1
            print(
                f"\r{line(step, width, self._unit):<{width}}", end="", file=sys.stderr, flush=True
            )
            self._open = True
        elif step.total and step.done and share - self._said >= STEP:
            self._said = share
            say(line(step, 100, self._unit))

    def end(self) -> None:
        """What follows goes to a line of its own."""
        if self._open:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r{'':<{width}}\r", end="", file=sys.stderr, flush=True)
            self._open = False


def line(step: Step, width: int, unit: str = "replies") -> str:
    """A step in one line of at most so many characters."""
    if not step.total or not step.done:
        return one_line(step.what)[:width]
    share = step.done / step.total
    bar = "━" * round(share * WIDTH) + "─" * (WIDTH - round(share * WIDTH))
    left = ""
    if step.seconds_left is not None:
        seconds = round(step.seconds_left)
        left = f"  {seconds // 60}:{seconds % 60:02} left"
    said = f"{bar} {share:4.0%}  {step.done} of {step.total} {unit}{left}"
    return f"{said}  {one_line(step.what)}"[:width]
