"""A paste stays a paste, whatever is in it and however it comes in."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import assume, given
from hypothesis import strategies as st
from textual import events

from macspec.app.driver import SafeParser

START, END = "\x1b[200~", "\x1b[201~"
HOSTILE = (
    "ls\x1b[31m red\x1b\x1b[20\x1b[0m\x00\x1b]0;title\x07 and so on, on and on\rrm -rf /\r\x1b"
)


def parsed(pieces: Sequence[str]) -> list[object]:
    parser = SafeParser()
    found: list[object] = []
    for piece in pieces:
        for event in parser.feed(piece):
            assert isinstance(event, events.Paste | events.Key), event
            found.append(event.text if isinstance(event, events.Paste) else (event.key,))
    return found


def cut(text: str, places: list[int]) -> list[str]:
    ends = sorted({place % len(text) for place in places} - {0})
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]


@given(st.lists(st.integers(min_value=0), max_size=12))
def test_no_key_comes_out_of_a_paste(places: list[int]) -> None:
    text = f"a{START}{HOSTILE}{END}\x1b[Ab{START}two{END}"
    assert parsed(cut(text, places)) == [("a",), HOSTILE, ("up",), ("b",), "two"]


@given(st.text(st.sampled_from("\x1b[201~\r a\x00"), max_size=30))
def test_every_paste_comes_through_as_it_is(text: str) -> None:
    assume((text + END).index(END) == len(text))
    assert parsed([START, text + END]) == [text]


def test_keys_are_what_they_were() -> None:
    assert parsed(["\x1b[13;2u", "a\x1b\rb", "\r", "\n", "\x1b[1;5D", "é"]) == [
        ("shift+enter",),
        ("a",),
        ("alt+enter",),
        ("b",),
        ("enter",),
        ("ctrl+j",),
        ("ctrl+left",),
        ("é",),
    ]
    assert list(SafeParser().feed("")) == []
