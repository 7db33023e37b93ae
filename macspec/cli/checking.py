"""The line that shows how far a self-check of kernels is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..metal.self_check import Checking
from ..terminal import ProgressLine, interruptible


@contextmanager
def shown_check() -> Iterator[Callable[[Checking], None]]:
    """Shows each step that it is given, on standard error; Ctrl-C ends the check."""
    bar = ProgressLine()

    def show(step: Checking) -> None:
        line = f"checking kernels on this Mac: {step.done} of {step.total}"
        bar.show(lambda width: line[:width], step.done / step.total)

    with interruptible():
        yield show
    bar.end(keep=False)
