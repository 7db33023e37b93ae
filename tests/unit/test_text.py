"""From token ids to text: characters, stop strings, reasoning, and who wrote what."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from mlx_lm.tokenizer_utils import (
    BPEStreamingDetokenizer,
    NaiveStreamingDetokenizer,
    SPMStreamingDetokenizer,
    _byte_decoder,
)

from macspec.events import Text
from macspec.models import Pair
from macspec.parts import PartReader, format_of
from macspec.text import Piece, TextStream, Written, joined

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


class Bytes:
    """A tokenizer whose tokens are any bytes, of the kind that a detokenizer of mlx-lm is for."""

    def __init__(self, tokens: Sequence[bytes], kind: type, cleans: bool = False) -> None:
        self.tokens, self.kind, self.cleans = tokens, kind, cleans
        self.detokenizer = kind(self)

    def __len__(self) -> int:
        return len(self.tokens)

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [self._written(self.tokens[id]) for id in ids]

    def encode(self, text: str, **_: Any) -> list[int]:
        return [len(self.tokens)]

    def decode(self, ids: list[int]) -> str:
        if ids == [len(self.tokens)]:  # whether it cleans up, is the question
            return "a," if self.cleans else "a ,"
        return b"".join(self.tokens[id] for id in ids).decode(errors="replace")

    def _written(self, token: bytes) -> str:
        if self.kind is BPEStreamingDetokenizer:
            characters = {byte: character for character, byte in _byte_decoder().items()}
            return "".join(characters[byte] for byte in token)
        try:
            return token.decode().replace(" ", "\u2581")
        except UnicodeDecodeError:
            assert len(token) == 1
            return f"<0x{token[0]:02X}>"


@settings(max_examples=400, deadline=None)
@given(
    text=st.text(st.sampled_from("ab é😀中 \n"), min_size=1, max_size=10).map(
        lambda text: f"x{text}x"
    ),
    cuts=st.sets(st.integers(1, 40)),
    stops=st.lists(st.sampled_from(["ab", "é😀", "中 ", "b\nb", "x"]), max_size=2),
    kind=st.sampled_from(
        [BPEStreamingDetokenizer, SPMStreamingDetokenizer, NaiveStreamingDetokenizer]
    ),
    cleans=st.booleans(),
)
def test_every_character_is_its_own_token_s(
    text: str, cuts: set[int], stops: list[str], kind: Any, cleans: bool
) -> None:
    """Also where it was held back, as the beginning of a stop string or of a character."""
    raw = text.encode()
    borders = [0, *sorted(cut for cut in cuts if cut < len(raw)), len(raw)]
    tokens = [raw[start:end] for start, end in pairwise(borders)]
    if kind is SPMStreamingDetokenizer:  # it knows whole characters and single bytes
        tokens = [part for token in tokens for part in whole_or_bytes(token)]
    if kind is NaiveStreamingDetokenizer:  # it loses what follows a line break in a token
        assume(not any(b"\n" in token[:-1] for token in tokens))
    stream = TextStream(Bytes(tokens, kind, cleans), stops)
    pieces: list[Piece] = []
    for number in range(len(tokens)):
        pieces += stream.push(number, str(number))
        if stream.stopped:
            break
    pieces += stream.finish()
    assert all(sum(length for length, _ in piece.spans) == len(piece.text) for piece in pieces)
    found = [
        int(who or -1) for piece in pieces for length, who in piece.spans for _ in [0] * length
    ]
    assert shown(pieces) == stream.text
    assert text.startswith(stream.text)
    assert found == writers(tokens, text)[: len(stream.text)]


def whole_or_bytes(token: bytes) -> list[bytes]:
    try:
        token.decode()
    except UnicodeDecodeError:
        return [bytes([byte]) for byte in token]
    return [token]


def writers(tokens: Sequence[bytes], text: str) -> list[int]:
    """For each character the token that brought its last byte."""
    ends = list(accumulate(map(len, tokens)))
    reached = accumulate(len(character.encode()) for character in text)
    return [bisect_left(ends, at) for at in reached]


class Tagged(Bytes):
    """With tags of one token and of two."""

    think_start_tokens, think_end_tokens = (0,), (1, 2)


def stream_of(tokenizer: Any) -> TextStream:
    return TextStream(tokenizer, parts=PartReader(format_of(tokenizer)))


def test_parts_are_told_apart_and_tags_keep_their_line_breaks() -> None:
    words = [b"<think>", b"</", b"think>", b"\n", b"so", b" what", b"Yes", b".\n", b"\n\nNo"]
    stream = stream_of(Tagged(words, BPEStreamingDetokenizer))
    order = [0, 3, 4, 1, 5, 1, 2, 3, 3, 8, 7, 6]
    pieces = joined([piece for id in order for piece in stream.push(id)] + stream.finish())
    assert [(piece.part, piece.text) for piece in pieces] == [
        ("tag", "<think>\n"),
        ("reasoning", "so</ what"),
        ("tag", "</think>\n\n\n\n"),
        ("answer", "No.\nYes"),
    ]
    assert shown(pieces) == stream.text


def test_a_tag_that_is_cut_short_is_text() -> None:
    words = [b"<think>", b"</", b"think>", b"so"]
    stream = stream_of(Tagged(words, BPEStreamingDetokenizer))
    first = [piece for id in (0, 3, 1) for piece in stream.push(id, "draft")]
    assert [piece.text for piece in joined(first)] == ["<think>", "so"]
    (last,) = stream.finish()
    assert (last.part, last.text, last.spans) == ("reasoning", "</", [(2, "draft")])


class Thorough(TextStream):
    """One that takes no short way."""

    def _ordinary(self, segment: str, parts: Sequence[str]) -> bool:
        return False


WORDS = [
    b"<think>",
    b"</",
    b"think>",
    b"\n",
    b" so",
    b"\n\nNo",
    b"\xf0\x9f",
    b"\x98\x80",
    b" ",
    b"",
]


@settings(max_examples=400, deadline=None)
@given(
    order=st.lists(st.integers(0, len(WORDS) - 1), max_size=20),
    stops=st.lists(st.sampled_from(["so", "\nNo", "</so", "😀 "]), max_size=1),
    tagged=st.sampled_from([Bytes, Tagged]),
    kind=st.sampled_from([BPEStreamingDetokenizer, NaiveStreamingDetokenizer]),
    cleans=st.booleans(),
)
@example(order=[0, 3, 4], stops=[], tagged=Tagged, kind=BPEStreamingDetokenizer, cleans=False)
def test_the_short_way_gives_what_the_long_one_does(
    order: list[int], stops: list[str], tagged: Any, kind: Any, cleans: bool
) -> None:
    streams = []
    for kind_of in (TextStream, Thorough):
        tokenizer = tagged(WORDS, kind, cleans)
        streams.append(kind_of(tokenizer, stops, PartReader(format_of(tokenizer))))
    for number, id in enumerate(order):
        short, long = (stream.push(id, str(number)) for stream in streams)
        assert short == long
        assert streams[0].part == streams[1].part
    short, long = (stream.finish() for stream in streams)
    assert (short, streams[0].text) == (long, streams[1].text)


spans = st.lists(st.tuples(st.integers(1, 5), st.sampled_from([None, "draft", "ngram"])))
texts = st.builds(
    lambda spans, part: Text("x" * sum(n for n, _ in spans), (), tuple(spans), part),
    spans,
    st.sampled_from(["answer", "reasoning", "tag"]),
)


@given(st.lists(texts))
def test_characters_add_up_part_by_part(events: list[Text]) -> None:
    written, answer, reasoning = Written(), "", ""
    for event in events:
        more, thought = written.take(event)
        answer, reasoning = answer + more, reasoning + thought
    assert written.characters == sum(len(event.delta) for event in events)
    for found, text in ((written.spans, answer), (written.reasoning_spans, reasoning)):
        assert found is not None
        assert sum(length for length, _ in found) == len(text)
        assert all(one[1] != other[1] for one, other in pairwise(found))


def test_what_is_not_known_of_a_part_is_not_known_of_the_whole() -> None:
    written = Written()
    written.take(Text("ab", (), ((2, None),)))
    written.take(Text("cd", (), ()))
    written.take(Text("ef", (), ((2, None),)))
    written.take(Text("gh", (), ((2, "draft"),), "reasoning"))
    assert written.spans is None
    assert written.reasoning_spans == [(2, "draft")]
    resumed = Written(None, [(4, None)])
    resumed.take(Text("ab", (), ((2, None),)))
    resumed.take(Text("cd", (), ((2, None),), "reasoning"))
    assert (resumed.spans, resumed.reasoning_spans) == (None, [(6, None)])
