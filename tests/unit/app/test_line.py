"""Line mode: Ctrl+C between two messages."""

from __future__ import annotations

import pytest
from conversing import conversation_with
from scripted import ScriptedEngine

from macspec.app.line import LineMode
from macspec.worker import PairChoice


@pytest.mark.parametrize(("typed", "status"), [(False, 130), (True, 0)])
def test_ctrl_c_before_the_prompt_is_there(
    monkeypatch: pytest.MonkeyPatch, typed: bool, status: int
) -> None:
    def interrupt(text: str = "", *_: object) -> None:
        if text == "" or "again" in text:
            raise KeyboardInterrupt

    engine = ScriptedEngine("Yes.", instant=True)
    mode = LineMode(conversation_with(engine), [PairChoice("owner/target", None)])
    monkeypatch.setattr(mode.reader, "interactive", True)
    # The first one where it reads, the second while it says that one more quits; or one alone.
    monkeypatch.setattr(mode.reader if typed else mode, "message" if typed else "_next", interrupt)
    monkeypatch.setattr(mode.view, "status", interrupt)
    assert mode.run() == status
