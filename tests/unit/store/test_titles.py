"""Titles: short, on one line, and nothing but text."""

from __future__ import annotations

import pytest
from hostile import TEXTS, harms

from macspec.store.records import TITLE_LENGTH, first_line


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Why?", "Why?"),
        ("\n \n  Why \t is it? \nBecause.", "Why is it?"),
        ("word " * 50, "word word word word word word word word word word word…"),
        ("x" * 100, "x" * (TITLE_LENGTH - 1) + "…"),
        ("", ""),
    ],
)
def test_the_first_line_is_the_title(text: str, title: str) -> None:
    assert first_line(text) == title


@pytest.mark.parametrize("name", TEXTS)
def test_no_text_makes_a_harmful_title(name: str) -> None:
    title = first_line(TEXTS[name])
    assert len(title) <= TITLE_LENGTH
    assert harms(title) == []
