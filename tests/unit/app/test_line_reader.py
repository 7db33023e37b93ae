"""Messages from a pipe, and their first words."""

from __future__ import annotations

import io
import sys

import pytest

from macspec.app.linereader import Reader
from macspec.errors import BadOptionError


@pytest.fixture
def piped(monkeypatch):
    def reader(data: bytes) -> Reader:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        return Reader()

    return reader


def messages(reader: Reader) -> list[str]:
    found = []
    while (text := reader.message()) is not None:
        found.append(text)
    return found


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\n\ntwo", ["one", "", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"a \\\nb \\\nc\nd\n", ["a \nb \nc", "d"]),
        (b"open \\\n", ["open "]),
        (b"open \\", ["open "]),
        ("Ünïcödé 👩‍👩‍👧\n".encode(), ["Ünïcödé 👩‍👩‍👧"]),
        (b"a\x1b[31mb\tc\n", ["a\x1b[31mb\tc"]),
        (b"x" * 200_000 + b"\n", ["x" * 200_000]),
    ],
)
def test_lines_are_messages(piped, data, expected):
    assert messages(piped(data)) == expected


def test_bytes_that_are_no_text_are_refused_with_their_place(piped):
    reader = piped(b"good\nb\xffd\nagain\n")
    assert reader.message() == "good"
    with pytest.raises(BadOptionError, match="byte 0xff at position 1"):
        reader.message()
    assert reader.message() == "again"


def test_a_pipe_is_asked_for_nothing(piped, capsys):
    reader = piped(b"one\n")
    assert not reader.interactive
    assert messages(reader) == ["one"]
    assert not reader.can_offer("anything")
    assert reader.typed == ""
    assert capsys.readouterr() == ("", "")


def test_without_standard_input_it_is_at_its_end(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    assert Reader().message() is None
