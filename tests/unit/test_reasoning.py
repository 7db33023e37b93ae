"""Which tokens are reasoning, whatever the tags are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macspec.text import Reasoning, opened

START, END = 90, 91
LONG_START, LONG_END = (80, 81, 82), (83, 81)


class Tags:
    """A tokenizer that knows tags and nothing else; ids from 10 to 12 are white space."""

    def __init__(
        self, start: Sequence[int] | None = (START,), end: Sequence[int] | None = (END,)
    ) -> None:
        self.think_start_tokens, self.think_end_tokens = start, end

    def decode(self, tokens: list[int]) -> str:
        return "".join("\n" if 10 <= token <= 12 else "x" for token in tokens)


def parts(tokenizer: Any, tokens: Sequence[int], *, begun: bool = False) -> list[str]:
    reasoning = Reasoning(tokenizer, begun=begun)
    decided = [part for token in tokens for part in reasoning.push(token)]
    return decided + reasoning.finish()


def short(found: list[str]) -> str:
    return "".join(part[0] for part in found)


def test_tags_of_one_token() -> None:
    assert short(parts(Tags(), [START, 1, 2, END, 3])) == "trrta"
    assert short(parts(Tags(), [1, START, 2])) == "atr"
    assert short(parts(Tags(), [1, END, 2])) == "aaa"
    assert short(parts(Tags(), [1, START, 2], begun=True)) == "rrr"


def test_tags_of_several_tokens_and_what_only_begins_like_one() -> None:
    long = Tags(LONG_START, LONG_END)
    assert short(parts(long, [*LONG_START, 1, *LONG_END, 2])) == "tttrtta"
    assert short(parts(long, [80, 81, 1])) == "aaa"
    assert short(parts(long, [80, *LONG_START, 1])) == "atttr"
    assert short(parts(long, [80, 81])) == "aa"


def test_without_tags_all_is_the_answer() -> None:
    assert short(parts(Tags(None, None), [START, 1, END])) == "aaa"
    assert short(parts(object(), [START, 1, END], begun=True)) == "aaa"


@given(st.lists(st.sampled_from([1, 80, 81, 82, 83]), max_size=30))
def test_every_token_has_one_part_and_a_tag_is_whole(tokens: list[int]) -> None:
    found = parts(Tags(LONG_START, LONG_END), tokens)
    assert len(found) == len(tokens)
    inside, at = False, 0
    while at < len(tokens):
        tag = LONG_END if inside else LONG_START
        if tuple(tokens[at : at + len(tag)]) == tag:
            assert found[at : at + len(tag)] == ["tag"] * len(tag)
            inside, at = not inside, at + len(tag)
        else:
            assert found[at] == ("reasoning" if inside else "answer")
            at += 1


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ([1, START], True),
        ([1, START, 10, 11], True),
        ([1, START, 10, END, 11], False),
        ([START, 1], False),
        ([START, 1, 10], False),
        ([], False),
    ],
)
def test_a_prompt_may_open_the_reasoning(prompt: list[int], expected: bool) -> None:
    assert opened(Tags(), prompt) is expected
    assert not opened(Tags(None, None), prompt)
