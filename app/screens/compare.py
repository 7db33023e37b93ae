"""Comparing plain and speculative decoding on the last prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.worker import Worker

from macspec.errors import MacspecError

from ..chat.comparison import Comparison
from ..widgets.lines import LinesView
from .box import Box
from .comparelines import comparison_lines

PER_SECOND = 4
"""How often the screen is updated."""


class ComparisonView(LinesView):
    """A comparison, as far as it has come."""

    DEFAULT_CSS = "ComparisonView { height: auto; width: 1fr; }"

    def __init__(self) -> None:
        super().__init__()
        self._found = Comparison()

    def show(self, found: Comparison) -> None:
        self._found = found
        lines = comparison_lines(found, self.size.width)
        if len(lines) != len(self.lines):
            self.refresh(layout=True)
        self.show_lines(lines)

    def on_resize(self) -> None:
        self.show(self._found)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(comparison_lines(self._found, width))


class CompareScreen(Box[None]):
    """Runs a comparison and shows it. Esc stops the run, and then closes the screen.

    Args:
        run: snapshots, each of which replaces the one before. Closing it stops the run.
    """

    heading = "Plain against speculative"
    DEFAULT_CSS = """
    CompareScreen {
        & > #box { max-width: 88; height: auto; max-height: 40; }
        VerticalScroll {
            height: auto;
            max-height: 75vh;
            padding: 1 1 0 1;
            margin-bottom: 1;
            scrollbar-size-vertical: 1;
        }
        &.-tight > #box { height: 100%; max-height: 100%; }
        &.-tight VerticalScroll { height: 1fr; max-height: 100%; padding: 0; margin: 0; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Stop, then close"),
        Binding("q", "leave", show=False),
        Binding("down,j", "scroll(1)", show=False),
        Binding("up,k", "scroll(-1)", show=False),
    ]

    def __init__(self, run: AsyncIterator[Comparison]) -> None:
        super().__init__()
        self._run = run
        self._newest = Comparison()
        self._worker: Worker[None] | None = None
        self.finished = False
        """Whether the run has ended."""

    def inside(self) -> ComposeResult:
        with VerticalScroll(can_focus=False):
            yield ComparisonView()

    def on_mount(self) -> None:
        self.hint(("Esc", "stop"))
        self._worker = self._follow()
        self.set_interval(1 / PER_SECOND, self._show)

    @work(exit_on_error=False)
    async def _follow(self) -> None:
        try:
            async for found in self._run:
                self._newest = found
        except MacspecError as error:
            self.status(str(error), "error")
        finally:
            self._over()

    def _over(self) -> None:
        self.finished = True
        if self.is_mounted:
            self._show()
            self.hint(("Esc", "close"), ("↑ ↓", "scroll"))

    def _show(self) -> None:
        self.query_one(ComparisonView).show(self._newest)

    def action_leave(self) -> None:
        if self.finished or self._worker is None:
            self.dismiss(None)
        else:
            self._worker.cancel()

    def action_scroll(self, by: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=by, animate=False)
