"""How far something is, on a terminal and elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from macspec.terminal import ProgressLine


class Stderr(io.StringIO):
    """Standard error that says whether it is a terminal."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.isatty = lambda: terminal  # type: ignore[method-assign]


def shown(
    monkeypatch: pytest.MonkeyPatch, percents: list[int], *, terminal: bool, keep: bool = True
) -> str:
    """What standard error gets of a line with these percents, ended twice."""
    stream = Stderr(terminal)
    monkeypatch.setenv("COLUMNS", "12")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        line = ProgressLine()
        for it in percents:
            line.show(lambda width, it=it: f"{it}% of it"[:width], it / 100, "it")
        line.end(keep=keep)
        line.end(keep=keep)
    return stream.getvalue()


@pytest.mark.parametrize(("keep", "end"), [(True, "\n"), (False, f"\r{'':<11}\r")])
def test_a_terminal_has_one_line_that_is_redrawn(
    monkeypatch: pytest.MonkeyPatch, keep: bool, end: str
) -> None:
    text = shown(monkeypatch, [10, 9], terminal=True, keep=keep)
    assert text == f"\r{'10% of it':<11}\r{'9% of it':<11}{end}"


def test_elsewhere_a_line_is_written_at_every_tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, [3, 9, 10, 15, 19, 21, 100], terminal=False)
    assert text == "".join(f"macspec: {it}% of it\n" for it in (10, 21, 100))
