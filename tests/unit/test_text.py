"""Text comes in whole characters, and stop strings may span tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macspec.models import Pair
from macspec.text import Piece, TextStream

SAMPLES = [
    "plain words, and more",
    "emoji 😀👩‍👩‍👧‍👦 and flags 🇫🇷",
    "你好，世界。今日は",
    "combining e\u0301 a\u0308\u0323 नमस्ते",
    "tabs\tand\nnew lines\n\n  indented",
]


def ids_of(pair: Pair, text: str) -> list[int]:
    tokenizer: Any = pair.target.tokenizer
    return list(tokenizer.encode(text, add_special_tokens=False))


def shown(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


@pytest.mark.parametrize("text", SAMPLES)
def test_no_half_character_is_emitted(pocket: Pair, text: str) -> None:
    stream = TextStream(pocket.target.tokenizer)
    pieces = [shown(stream.push(token)) for token in ids_of(pocket, text)]
    assert not any("\ufffd" in piece for piece in pieces)
    assert "".join(pieces) + shown(stream.finish()) == text == stream.text


def test_an_unfinished_character_shows_as_one_replacement_at_the_end(pocket: Pair) -> None:
    stream = TextStream(pocket.target.tokenizer)
    tokens = ids_of(pocket, "ok 😀")
    pieces = [shown(stream.push(token)) for token in tokens[:-1]]
    assert "".join(pieces).strip() == "ok"
    assert shown(stream.finish()).strip("\ufffd ") == ""


@settings(max_examples=200, deadline=None)
@given(
    words=st.lists(st.sampled_from(["a", "b", "ab", "aab", " ", "\n", "é", "😀"]), max_size=14),
    stops=st.lists(st.sampled_from(["ab", "aab", "b a", "\n\n", "é😀", "aaab"]), max_size=3),
)
def test_stop_strings_cut_where_the_whole_text_would(
    pocket: Pair, words: list[str], stops: list[str]
) -> None:
    tokens = ids_of(pocket, "".join(words))
    whole = TextStream(pocket.target.tokenizer)
    text = "".join(shown(whole.push(token)) for token in tokens) + shown(whole.finish())
    stream = TextStream(pocket.target.tokenizer, stops)
    said = ""
    for token in tokens:
        said += shown(stream.push(token))
        if stream.stopped:
            break
    said += shown(stream.finish())
    # The earliest end decides; of those that end together the earliest start.
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    expected = {text[:start] for _, start in ends} or {text}
    assert said in expected
    assert stream.stopped == bool(ends)
