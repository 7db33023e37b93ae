"""Text is only text: nothing a model writes is obeyed by a terminal."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macspec.plaintext import neutral, one_line, utf8

CORPUS = [
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x1b]52;c;aGVsbG8=\x1b\\",
    "\x1b]8;;http://example.org\x1b\\link\x1b]8;;\x1b\\",
    "\x1bP1$r0m\x1b\\",
    "\x1b_G;AAAA\x1b\\",
    "\x1b[2J\x1b[H",
    "\x1b[?1049h",
    "\x1bc",
    "\x9b31mred",
    "\x9d0;title\x9c",
    "\x90q\x9c",
    "bell\x07 back\x08 space",
    "over\rwritten",
    "\x0e\x0f shift",
    "\x7f\x00",
    "access \u202egnp.exe",
    "\u2066isolate\u2069 \u202aembed\u202c \u200emarks\u200f\u061c \u206a",
]


def harmful(character: str) -> bool:
    """By the Unicode database rather than by our own table."""
    if unicodedata.category(character) == "Cc":
        return character not in "\t\n"
    controls = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    return unicodedata.bidirectional(character) in controls or character in "\u200e\u200f\u061c"


@pytest.mark.parametrize("text", CORPUS)
def test_a_corpus_of_control_sequences_loses_its_power(text: str) -> None:
    shown = neutral(text)
    assert shown != text
    assert not any(map(harmful, shown))


@given(st.text() | st.text("\x1b[]\x07\x9b0m;\r\n\t\u202e", max_size=40), st.data())
def test_any_cut_into_deltas_shows_the_same_harmless_text(text: str, data: st.DataObject) -> None:
    places = st.lists(st.integers(0, len(text)), max_size=8)
    cuts = [0, *sorted(data.draw(places)), len(text)]
    deltas = [text[a:b] for a, b in pairwise(cuts)]
    shown = "".join(map(neutral, deltas))
    assert shown == neutral(text)
    assert not any(map(harmful, shown))


def test_every_harmful_character_of_unicode_is_covered() -> None:
    everything = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    assert not any(map(harmful, neutral(everything)))


def test_text_stays_as_it_is() -> None:
    text = "a\tb\nnaïve 中文 é שלום 👩\u200d🚀 می\u200cخواهم"
    assert neutral(text) == text


def test_what_is_taken_away_is_shown() -> None:
    assert neutral("\x1b[31m\x07") == "␛[31m␇"
    assert neutral("line\r\nline") == "line\nline"


def test_a_line_is_one_line() -> None:
    assert one_line("a\n  b\x1b[0m\r\n") == "a b␛[0m"


@given(st.text(st.characters()))
def test_any_string_can_be_written(text: str) -> None:
    assert utf8(text).decode() == "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) == "Cs" else c for c in text
    )
