"""Titles: short, on one line, and nothing but text."""

from __future__ import annotations

import pytest
from hostile import TEXTS, harms

from macspec.store import Message
from macspec.store.titles import LONGEST, first_line, from_model, request


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Why?", "Why?"),
        ("\n \n  Why \t is it? \nBecause.", "Why is it?"),
        ("word " * 50, "word word word word word word word word word word word…"),
        ("x" * 100, "x" * (LONGEST - 1) + "…"),
        ("", ""),
    ],
)
def test_the_first_line_is_the_title(text: str, title: str) -> None:
    assert first_line(text) == title


@pytest.mark.parametrize("name", TEXTS)
def test_no_text_makes_a_harmful_title(name: str) -> None:
    for title in (first_line(TEXTS[name]), from_model(TEXTS[name])):
        assert len(title) <= LONGEST
        assert harms(title) == []


@pytest.mark.parametrize(
    ("reply", "title"),
    [
        ('"Blue sky"', "Blue sky"),
        ("Title: **Blue sky.**\nIt is short.", "Blue sky"),
        ("« Le ciel »", "Le ciel"),
        ("", ""),
    ],
)
def test_a_models_title_is_stripped(reply: str, title: str) -> None:
    assert from_model(reply) == title


def test_a_request_holds_what_was_said() -> None:
    turns = [Message(n, 1, None, ("user", "assistant")[n % 2], f"turn {n}") for n in range(6)]
    asked = request(turns)
    assert "Q: turn 0" in asked
    assert "A: turn 1" in asked
    assert "turn 5" not in asked
