"""Which turns stay when a conversation does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macspec.errors import BadOptionError, ContextOverflowError
from macspec.models import Pair
from macspec.prompt import Message, Prompting, checked_messages, fit
from macspec.text import common_prefix

SYSTEM = {"role": "system", "content": "ss"}


def render(messages: Sequence[Message]) -> list[int]:
    """One token for each message and one for each letter of it."""
    return [0] * sum(1 + len(message["content"]) for message in messages)


def turn(user: int, assistant: int) -> list[dict[str, str]]:
    return [
        {"role": "user", "content": "u" * user},
        {"role": "assistant", "content": "a" * assistant},
    ]


def test_all_of_it_if_it_fits() -> None:
    messages = [SYSTEM, *turn(3, 3), *turn(3, 3)]
    assert fit(messages, render, 40, 10) == (render(messages), 0)


def test_the_oldest_whole_turns_go_and_the_system_prompt_stays() -> None:
    messages = [SYSTEM, *turn(9, 9), *turn(9, 9), *turn(1, 1), {"role": "user", "content": "x"}]
    tokens, dropped = fit(messages, render, 20, 4)
    assert dropped == 2
    assert tokens == render([SYSTEM, *messages[5:]])


def test_the_newest_turn_may_use_the_reserve() -> None:
    messages = [*turn(9, 9), {"role": "user", "content": "u" * 17}]
    assert fit(messages, render, 20, 10) == ([0] * 18, 1)
    with pytest.raises(ContextOverflowError, match="20 tokens"):
        fit([{"role": "user", "content": "u" * 19}], render, 20, 10)


def test_a_system_prompt_alone_can_be_too_long() -> None:
    with pytest.raises(ContextOverflowError):
        fit([{"role": "system", "content": "s" * 30}], render, 20, 10)


@given(
    sizes=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=8),
    last=st.integers(1, 12),
    context=st.integers(20, 80),
    reserve=st.integers(1, 19),
)
def test_nothing_is_dropped_without_need(
    sizes: list[tuple[int, int]], last: int, context: int, reserve: int
) -> None:
    turns = [turn(*size) for size in sizes] + [[{"role": "user", "content": "u" * last}]]
    whole = len(render([SYSTEM, *chain(*turns)]))
    tokens, dropped = fit([SYSTEM, *chain(*turns)], render, context, reserve)
    assert tokens == render([SYSTEM, *chain(*turns[dropped:])])
    assert len(tokens) < context
    assert len(tokens) <= context - reserve or dropped == len(turns) - 1
    if dropped:
        # One turn fewer would not have been enough, but for the rounding.
        longer = len(render([SYSTEM, *chain(*turns[dropped - 1 :])]))
        assert longer > context - reserve - context // 8
        assert whole > context - reserve


def test_the_cut_stays_for_some_turns() -> None:
    messages = [SYSTEM]
    cuts = []
    for _ in range(60):
        messages += turn(3, 4)
        cuts.append(fit([*messages, {"role": "user", "content": "x"}], render, 400, 40)[1])
    moved = sum(a != b for a, b in pairwise(cuts))
    assert cuts == sorted(cuts)
    assert 0 < moved <= 60 * 9 / 50


@pytest.mark.parametrize(
    "messages",
    [[], [{"role": "user"}], [{"content": "x"}], [{"role": "tool", "content": "x"}],
     [{"role": "user", "content": " \n"}]],
)  # fmt: skip
def test_messages_are_checked(messages: list[dict[str, str]]) -> None:
    with pytest.raises(BadOptionError):
        checked_messages(messages)


def test_boundaries_are_where_an_edit_and_the_next_turn_part(pocket: Pair) -> None:
    prompting = Prompting(pocket)
    chat = [
        {"role": "user", "content": "Say hello."},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "Now say goodbye."},
    ]
    later = [*chat, {"role": "assistant", "content": "Bye."}, {"role": "user", "content": "Why?"}]
    edited = [*chat[:-1], {"role": "user", "content": "What is this?"}]

    def tokens(messages: list[dict[str, str]]) -> list[int]:
        return prompting.chat(messages, 512, 32).tokens

    prompt = prompting.chat(chat, 512, 32, boundaries=True)
    parted = {common_prefix(prompt.tokens, tokens(other)) for other in (edited, later)}
    assert len(prompt.tokens) in parted
    assert set(prompt.boundaries) == {min(at, len(prompt.tokens) - 1) for at in parted}
    assert len(prompt.boundaries) == 2
    assert prompting.chat(chat, 512, 32).boundaries == ()
