"""The script that measures the transcript."""

from __future__ import annotations

from dataclasses import replace

from macspec.app.load import Load, conversation, pieces_of, scenarios, stream
from macspec.app.widgets.transcript import Transcript


def test_pieces_are_the_text_and_their_spans_add_up() -> None:
    turns = conversation(6, 500)
    assert [turn.role for turn in turns] == ["user", "assistant"] * 3
    for turn in turns[1::2]:
        assert len(turn.text) == sum(length for length, _ in turn.spans) == 500
        pieces = list(pieces_of(turn.text, 30))
        assert "".join(piece.text for piece in pieces) == turn.text
        assert all(sum(n for n, _ in piece.spans) == len(piece.text) for piece in pieces)


async def test_a_scenario_has_figures() -> None:
    text = conversation(2, 400)[1].text

    async def short(transcript: Transcript) -> None:
        await transcript.show(conversation(4, 300))
        await stream(transcript, text, 50, 0.0)
        assert transcript.list.entries[-1].answer.text == text

    app = Load({"short": short}, wait=0)
    figures = await app.run_async(headless=True, size=(80, 24))
    assert figures is not None
    [only] = figures
    assert only.seconds > 0
    assert only.core > 0
    assert only.worst >= only.p99 >= 0
    assert str(replace(only, name="short")).startswith("short ")


def test_the_scenarios_are_those_that_are_promised() -> None:
    names = list(scenarios(1))
    assert names[0] == "30 tok/s after 40 turns"
    assert any("200,000 characters" in name for name in names)
    assert any("line of 5,000" in name for name in names)
