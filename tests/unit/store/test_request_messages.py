"""What the engine is asked about the path of a conversation."""

from __future__ import annotations

from typing import Any

from macspec.store.records import ASSISTANT, USER, Message, request_messages


def path(*turns: tuple[str, str] | tuple[str, str, str]) -> list[Message]:
    return [
        Message(number, 1, None, role, text, *reasoning)
        for number, (role, text, *reasoning) in enumerate(turns, 1)
    ]


def asked(*turns: Any, **options: Any) -> list[tuple[str, ...]]:
    return [tuple(message.values()) for message in request_messages(path(*turns), **options)]


def test_reasoning_stands_beside_the_answer() -> None:
    assert asked((USER, "Why?"), (ASSISTANT, "So.", "Hm."), (USER, "How?"), system="Be brief.") == [
        ("system", "Be brief."),
        ("user", "Why?"),
        ("assistant", "So.", "Hm."),
        ("user", "How?"),
    ]


def test_roles_alternate_where_a_reply_has_no_answer() -> None:
    interrupted = (ASSISTANT, "", "Hm.")
    assert asked((USER, "Why?"), interrupted, (USER, "How?"), (ASSISTANT, "So.")) == [
        ("user", "Why?\n\nHow?"),
        ("assistant", "So."),
    ]


def test_a_reply_that_is_resumed_comes_last_even_without_an_answer() -> None:
    (resumed,) = path((ASSISTANT, "", "Hm."))
    assert asked((USER, "Why?"), resumed=resumed) == [("user", "Why?"), ("assistant", "", "Hm.")]
