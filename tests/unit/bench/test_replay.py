"""The user's own chats as tasks: what was said before a reply, and nothing of what came after."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from macspec.bench.tasks import SLACK, replayed
from macspec.errors import BadOptionError
from macspec.prompt import Message
from macspec.store import Store


def words(messages: Sequence[Message]) -> int:
    return sum(len(message["content"].split()) for message in messages)


@pytest.fixture
def store() -> Store:
    """Two chats, the second one with a branch, and a raw one."""
    store = Store(None, clock=iter(range(1, 1000)).__next__)
    talk(store, "You are brief.", ("one two", "three four five"), ("six", "seven"))
    chat = talk(store, "", ("eight", "nine"))
    asked = store.thread(chat)[0]
    other = store.reply(chat, asked.id)
    other.append("ten eleven")
    other.finish("end")
    raw = store.new_chat()
    text = store.add(raw.id, None, "Once upon", "raw")
    reply = store.reply(raw.id, text.id)
    reply.append("a time")
    reply.finish("end")
    return store


def talk(store: Store, system: str, *turns: tuple[str, str]) -> int:
    chat = store.new_chat(system=system)
    at = None
    for asked, said in turns:
        reply = store.reply(chat.id, store.add(chat.id, at, asked).id)
        reply.append(said)
        at = reply.finish("end").id
    return chat.id


def test_each_reply_is_asked_for_again(store: Store) -> None:
    it = replayed(store, count=words, room=1000)
    raw, branch, last, first = it
    assert raw.raw
    assert [turn["content"] for turn in raw.messages] == ["Once upon"]
    assert [turn["content"] for turn in branch.messages] == ["eight"]
    assert [(turn["role"], turn["content"]) for turn in last.messages] == [
        ("system", "You are brief."),
        ("user", "one two"),
        ("assistant", "three four five"),
        ("user", "six"),
    ]
    assert [turn["content"] for turn in first.messages] == ["You are brief.", "one two"]
    assert first.max_tokens == 3 + SLACK
    assert {task.source for task in it} == {"replay"}
    assert {task.forced for task in it} == {None}
    assert len({task.id for task in it}) == 4
    assert all(task.digest is None for task in it)


def test_how_many(store: Store) -> None:
    assert len(replayed(store, count=words, room=1000, most=2)) == 2


def test_what_does_not_fit_is_counted(store: Store) -> None:
    it = replayed(store, count=words, room=8 + SLACK)
    assert len(it) == 3
    with pytest.raises(BadOptionError, match="fits the context of 3 positions"):
        replayed(store, count=words, room=3)


def test_what_is_no_reply_is_passed_over() -> None:
    store = Store(None)
    with pytest.raises(BadOptionError, match="no stored chats"):
        replayed(store, count=words, room=100)
    chat = talk(store, "", ("a", "  "))
    store.add(chat, store.thread(chat)[-1].id, "and?")
    store.reply(chat, store.thread(chat)[-1].id).append("not over")
    deleted = talk(store, "", ("b", "c"))
    store.delete(deleted)
    with pytest.raises(BadOptionError, match="no stored chats"):
        replayed(store, count=words, room=100)
