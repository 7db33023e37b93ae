"""Conversations: what is kept, and trees of messages."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hostile import TEXTS
from hypothesis import given, settings
from hypothesis import strategies as st
from soundstore import check_sound

from macspec.errors import BadOptionError
from macspec.store import (
    ASSISTANT,
    COMPLETE,
    RAW,
    STOPPED,
    USER,
    GenerationMetadata,
    Message,
    Store,
)

MAKING = GenerationMetadata(
    model="/models/\udcff big",
    draft="org/small",
    sampling={"temperature": 0.7, "top_k": 40},
    rule="keyed",
    method="auto",
    depth=4,
    seed=2**64 - 1,
    stats={"tokens": 3, "acceptance": 0.1 + 0.2, "acceptance_by_position": [1.0, 0.5]},
    spans=[(3, "draft"), (2, None)],
)


def said(store: Store, chat: int, leaf: int | None = None) -> list[str]:
    return [message.text for message in store.thread(chat, leaf)]


def exchange(store: Store, chat: int, parent: int | None, prompt: str, answer: str) -> int:
    """A prompt and its reply; the reply's id."""
    asked = store.add(chat, parent, prompt)
    reply = store.reply(chat, asked.id)
    reply.append(answer)
    return reply.finish().id


def test_everything_comes_back(store: Store, opened: Callable[..., Store]) -> None:
    chat = store.new_chat(system="Be brief.", sampling={"temperature": 0.2})
    asked = store.add(chat.id, None, "Why?")
    reply = store.reply(chat.id, asked.id, GenerationMetadata(model="early"))
    reply.append("Because", "Let me see.")
    reply.append(".")
    reply.finish("length", MAKING)
    store.set_unsent(chat.id, "and then")

    other = opened()
    here = other.chat(chat.id)
    assert (here.system, here.sampling, here.unsent) == (
        "Be brief.",
        {"temperature": 0.2},
        "and then",
    )
    assert (here.title, here.messages, here.deleted) == ("Why?", 2, None)
    prompt, answer = other.thread(chat.id)
    assert (prompt.role, prompt.text, prompt.parent, prompt.metadata) == (USER, "Why?", None, None)
    assert (answer.role, answer.text, answer.reasoning) == (ASSISTANT, "Because.", "Let me see.")
    assert (answer.state, answer.reason, answer.metadata) == (COMPLETE, "length", MAKING)
    assert here.leaf == answer.id
    assert chat.made <= prompt.made <= answer.made <= here.changed


@pytest.mark.parametrize("name", TEXTS)
def test_nothing_of_a_text_is_lost(store: Store, opened: Callable[..., Store], name: str) -> None:
    text = TEXTS[name]
    chat = store.new_chat(system=text)
    asked = store.add(chat.id, None, text)
    reply = store.reply(chat.id, asked.id)
    reply.append(text, text)
    reply.finish("end", GenerationMetadata(model=text))
    store.rename(chat.id, f"A {text}")
    store.set_unsent(chat.id, text)
    here = opened().chat(chat.id)
    assert (here.title, here.system, here.unsent) == (f"A {text}", text, text)
    prompt, answer = opened().thread(chat.id)
    assert prompt.text == answer.text == answer.reasoning == text
    assert answer.metadata == GenerationMetadata(model=text)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters()), min_size=1, max_size=5))
def test_a_text_in_pieces_comes_back_whole(pieces: list[str]) -> None:
    store = Store(None)
    chat = store.new_chat()
    reply = store.reply(chat.id, store.add(chat.id, None, "?").id)
    for piece in pieces:
        reply.append(piece)
        reply.save()
        assert store.message(reply.id).text == reply.text
    assert reply.finish().text == "".join(pieces)


def test_what_is_known_later_is_kept_too(store: Store, opened: Callable[..., Store]) -> None:
    chat = store.new_chat()
    id = exchange(store, chat.id, None, "Why?", "Because.")
    metadata = replace(
        MAKING,
        reasoning_spans=[(3, None), (5, "ngram")],
        energy={"decode": {"joules_per_token": 1.5, "counted": ["gpu"]}},
    )
    assert store.set_metadata(id, metadata).metadata == metadata
    assert opened().message(id).metadata == metadata
    with pytest.raises(BadOptionError, match="no message 99"):
        store.set_metadata(99, metadata)


def test_families_are_the_versions_of_every_message(store: Store) -> None:
    chat, other = store.new_chat(), store.new_chat()
    first = exchange(store, chat.id, None, "a", "b")
    exchange(store, other.id, None, "x", "y")
    asked = store.message(first).parent
    assert asked is not None
    second = store.reply(chat.id, asked)
    second.finish()
    families = store.families(chat.id)
    assert families == {None: [asked], asked: [first, second.id]}
    for id in (asked, first):
        assert store.siblings(id) == families[store.message(id).parent]


def test_earlier_prompts_of_all_conversations(store: Store) -> None:
    one, two, gone = store.new_chat(), store.new_chat(), store.new_chat()
    for number, chat in enumerate((one, two, gone, one)):
        store.add(chat.id, None, f"prompt {number}")
    store.add(one.id, None, "raw text", RAW)
    store.add(one.id, None, "x" * 21)
    store.delete(gone.id)
    assert store.prompts(10, longest=20) == ["prompt 0", "prompt 1", "prompt 3"]
    assert store.prompts(2) == ["prompt 3", "x" * 21]
    half = store.add(two.id, None, "half \ud83d")
    assert store.prompts(1) == [half.text]


def test_a_reply_can_have_siblings(store: Store) -> None:
    chat = store.new_chat()
    first = exchange(store, chat.id, None, "Why?", "Because.")
    prompt = store.thread(chat.id)[0].id
    again = store.reply(chat.id, prompt)
    again.append("Who knows.")
    second = again.finish("interrupted").id
    assert store.siblings(first) == [first, second]
    assert said(store, chat.id) == ["Why?", "Who knows."]
    assert store.message(second).state == STOPPED
    store.set_leaf(chat.id, first)
    assert said(store, chat.id) == ["Why?", "Because."]


def test_a_prompt_can_be_edited_and_walked_back_to(store: Store) -> None:
    chat = store.new_chat()
    start = exchange(store, chat.id, None, "Hi", "Hello")
    old = exchange(store, chat.id, start, "Tea?", "Gladly.")
    older = exchange(store, chat.id, old, "Milk?", "No.")
    new = exchange(store, chat.id, start, "Coffee?", "Black.")
    assert said(store, chat.id) == ["Hi", "Hello", "Coffee?", "Black."]
    tea, coffee = store.siblings(store.thread(chat.id)[2].id)
    assert store.newest_leaf(tea) == older
    assert store.newest_leaf(coffee) == new
    store.set_leaf(chat.id, store.newest_leaf(tea))
    assert said(store, chat.id) == ["Hi", "Hello", "Tea?", "Gladly.", "Milk?", "No."]


def test_first_prompts_are_siblings_too(store: Store) -> None:
    one, other = store.new_chat(), store.new_chat()
    first = store.add(one.id, None, "a")
    store.add(other.id, None, "elsewhere")
    second = store.add(one.id, None, "b")
    assert store.siblings(first.id) == [first.id, second.id]


def test_a_fork_is_a_copy_of_the_path(store: Store) -> None:
    chat = store.new_chat(system="Be brief.", sampling={"top_k": 2})
    start = exchange(store, chat.id, None, "Hi", "Hello")
    exchange(store, chat.id, start, "Tea?", "Gladly.")
    fork = store.fork(start)
    assert said(store, fork.id) == ["Hi", "Hello"]
    assert (fork.system, fork.sampling, fork.title) == ("Be brief.", {"top_k": 2}, "Hi (fork)")
    assert fork.uid != chat.uid
    exchange(store, fork.id, fork.leaf, "Coffee?", "Black.")
    assert said(store, chat.id) == ["Hi", "Hello", "Tea?", "Gladly."]


def test_conversations_are_listed_by_their_last_change(store: Store) -> None:
    first, second, unused, unsent = (store.new_chat() for _ in range(4))
    exchange(store, first.id, None, "a", "b")
    exchange(store, second.id, None, "c", "d")
    store.add(first.id, store.chat(first.id).leaf, "e")
    store.set_unsent(unsent.id, "begun")
    listed = [chat.id for chat in store.chats()]
    assert listed == [first.id, second.id, unsent.id]
    assert unused.id not in listed
    assert [chat.id for chat in store.chats(1)] == [first.id]
    last = store.last_chat()
    assert last is not None
    assert last.id == first.id


def test_what_was_continued_raw_is_no_conversation_to_go_on_with(store: Store) -> None:
    assert store.last_chat() is None
    chat, raw = store.new_chat(), store.new_chat()
    exchange(store, chat.id, None, "a", "b")
    store.add(raw.id, None, "Once upon", RAW)
    last = store.last_chat()
    assert last is not None
    assert last.id == chat.id


def test_a_title_of_the_user_stays(store: Store) -> None:
    chat = store.new_chat()
    store.add(chat.id, None, "\n\n  The first line \nand more")
    assert store.chat(chat.id).title == "The first line"
    assert store.rename(chat.id, "By me").title == "By me"
    exchange(store, chat.id, None, "Another first line", "")
    assert store.chat(chat.id).title == "By me"


def test_deletion_can_be_undone_step_by_step(store: Store, opened: Callable[..., Store]) -> None:
    chats = [store.new_chat() for _ in range(3)]
    for chat in chats:
        exchange(store, chat.id, None, f"pear {chat.id}", "b")
    one, two, three = (chat.id for chat in chats)
    store.delete(one)
    store.delete(two, three)
    assert store.chats() == []
    assert store.search("pear") == []
    assert store.last_chat() is None
    assert {chat.id for chat in store.deleted_chats()} == {one, two, three}
    other = opened()
    assert {chat.id for chat in other.undo()} == {two, three}
    assert {chat.id for chat in other.undo()} == {one}
    with pytest.raises(BadOptionError, match="nothing to restore"):
        other.undo()
    assert {chat.id for chat in store.chats()} == {one, two, three}


def test_what_was_deleted_long_ago_is_removed(opened: Callable[..., Store], path: Path) -> None:
    now, day = 1_000_000_000.0, 86400.0
    store = opened(clock=lambda: now)
    chat, kept = store.new_chat(), store.new_chat()
    exchange(store, chat.id, None, "secretword", "")
    exchange(store, kept.id, None, "stays", "")
    store.delete(chat.id)
    opened(clock=lambda: now + 29 * day)
    assert store.chat(chat.id).deleted == now
    store.close()
    late = opened(clock=lambda: now + 31 * day)
    with pytest.raises(BadOptionError):
        late.chat(chat.id)
    assert said(late, kept.id) == ["stays", ""]
    late.close()
    assert b"secretword" not in path.read_bytes()


def test_purging_leaves_nothing_on_the_disk(store: Store, path: Path) -> None:
    chat = store.new_chat()
    exchange(store, chat.id, None, "secretword", "secretword too " * 1000)
    store.purge(chat.id)
    store.close()
    assert b"secretword" not in path.read_bytes()
    check_sound(path)


def test_an_id_is_not_given_twice(store: Store) -> None:
    chat = store.new_chat()
    store.purge(chat.id)
    assert store.new_chat().id > chat.id


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.chat(99),
        lambda store: store.thread(99),
        lambda store: store.add(99, None, "x"),
        lambda store: store.add(1, 99, "x"),
        lambda store: store.add(2, 1, "x"),
        lambda store: store.reply(99, 1),
        lambda store: store.resume(99),
        lambda store: store.resume(1),
        lambda store: store.message(99),
        lambda store: store.siblings(99),
        lambda store: store.newest_leaf(99),
        lambda store: store.fork(99),
        lambda store: store.rename(99, "x"),
        lambda store: store.set_system(99, "x"),
        lambda store: store.set_leaf(1, 99),
        lambda store: store.set_leaf(2, 1),
        lambda store: store.set_leaf(99, None),
        lambda store: store.delete(1, 99),
        lambda store: store.purge(1, 99),
    ],
)
def test_what_does_not_exist_is_refused_and_changes_nothing(
    store: Store, ask: Callable[[Store], object]
) -> None:
    one, two = store.new_chat(), store.new_chat()
    store.add(one.id, None, "a")
    before = [store.chat(one.id), store.chat(two.id), *store.messages(one.id)]
    with pytest.raises(BadOptionError):
        ask(store)
    assert [store.chat(one.id), store.chat(two.id), *store.messages(one.id)] == before
    assert store.trouble is None


def test_a_long_conversation(store: Store) -> None:
    length = 5_000
    turns = [Message(n, 0, n - 1 if n else None, USER, f"turn {n}") for n in range(length)]
    chat = replace(store.new_chat(), uid="", leaf=length - 1)
    (added,) = store.import_chats([(chat, turns)])
    assert added is not None
    assert said(store, added.id) == [turn.text for turn in turns]
    assert store.newest_leaf(store.thread(added.id)[0].id) == added.leaf
    store.purge(added.id)
    assert store.chats() == []


def test_files_are_the_users_alone(path: Path, opened: Callable[..., Store]) -> None:
    path.parent.mkdir(parents=True)
    path.parent.chmod(0o755)
    path.touch(0o644)
    store = opened()
    exchange(store, store.new_chat().id, None, "a", "b")
    reply = store.reply(1, 1)
    files = list(path.parent.iterdir())
    assert {file.suffix for file in files} == {".db", ".db-wal", ".db-shm", ".writer"}
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    reply.finish()


def test_a_new_folder_is_the_users_alone(path: Path, opened: Callable[..., Store]) -> None:
    opened()
    for folder in (path.parent, path.parent.parent):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_threads_share_a_store(store: Store) -> None:
    def write(number: int) -> None:
        chat = store.new_chat()
        for turn in range(10):
            exchange(store, chat.id, store.chat(chat.id).leaf, f"{number} {turn}", "x")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(chat.messages for chat in store.chats()) == [20] * 4


WRITER = """
import sys
from pathlib import Path
from macspec.store import Store

store = Store(Path(sys.argv[1]), patience=60)
chat = store.new_chat()
for turn in range(15):
    asked = store.add(chat.id, store.chat(chat.id).leaf, f"{sys.argv[2]} {turn}")
    with store.reply(chat.id, asked.id) as reply:
        reply.append("said ")
        reply.save()
        reply.append(sys.argv[2])
        reply.finish()
assert store.trouble is None, store.trouble
store.close()
"""


def test_processes_share_a_store_from_its_first_moment(path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(path)]
    processes = [subprocess.Popen([*command, str(number)]) for number in range(4)]
    assert [process.wait(timeout=240) for process in processes] == [0] * 4
    store = Store(path)
    chats = store.chats()
    assert len(chats) == 4
    for chat in chats:
        number = said(store, chat.id)[0].split()[0]
        expected = [text for turn in range(15) for text in (f"{number} {turn}", f"said {number}")]
        assert said(store, chat.id) == expected
    store.close()
    assert sorted(file.name for file in path.parent.iterdir()) == ["chats.db"]
    check_sound(path)


class Tree:
    """What the store should hold, in plain Python."""

    def __init__(self) -> None:
        self.parent: dict[int, int | None] = {}
        self.text: dict[int, str] = {}
        self.leaf: dict[int, int | None] = {}
        self.chat: dict[int, int] = {}

    def add(self, chat: int, id: int, parent: int | None, text: str) -> None:
        self.parent[id], self.text[id], self.chat[id], self.leaf[chat] = parent, text, chat, id

    def path(self, at: int | None) -> list[str]:
        return [] if at is None else [*self.path(self.parent[at]), self.text[at]]


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_sequence_of_operations_keeps_the_tree(data: st.DataObject) -> None:
    store, tree = Store(None), Tree()
    deleted: list[list[int]] = []
    clock = iter(range(1, 1000))
    store = Store(None, clock=lambda: float(next(clock)))

    def some(values: Any) -> Any:
        return data.draw(st.sampled_from(sorted(values)))

    def living() -> list[int]:
        gone = {id for ids in deleted for id in ids}
        return [id for id in tree.leaf if id not in gone]

    for _ in range(data.draw(st.integers(1, 25))):
        step = data.draw(st.sampled_from(["chat", "say", "stand", "fork", "delete", "undo"]))
        if step == "chat" or not living():
            tree.leaf[store.new_chat().id] = None
        elif step == "say":
            chat = some(living())
            inside = [id for id, owner in tree.chat.items() if owner == chat]
            parent = data.draw(st.sampled_from([None, *inside]))
            text = data.draw(st.text(max_size=5))
            tree.add(chat, store.add(chat, parent, text).id, parent, text)
        elif step == "stand" and tree.chat:
            id = some(tree.chat)
            tree.leaf[tree.chat[id]] = id
            store.set_leaf(tree.chat[id], id)
        elif step == "fork" and tree.chat:
            id = some(tree.chat)
            new, parent = store.fork(id), None
            for message in store.messages(new.id):
                tree.add(new.id, message.id, parent, message.text)
                parent = message.id
            assert said(store, new.id) == tree.path(id)
        elif step == "delete":
            deleted.append([some(living())])
            store.delete(*deleted[-1])
        elif step == "undo" and deleted:
            assert [chat.id for chat in store.undo()] == deleted.pop()

    for chat, leaf in tree.leaf.items():
        assert said(store, chat) == tree.path(leaf)
        inside = [id for id, owner in tree.chat.items() if owner == chat]
        assert [message.id for message in store.messages(chat)] == sorted(inside)
    for id, parent in tree.parent.items():
        same = [each for each in tree.parent if tree.parent[each] == parent]
        assert store.siblings(id) == [each for each in same if tree.chat[each] == tree.chat[id]]
    listed = {chat.id for chat in store.chats()}
    assert listed == {id for id in living() if id in tree.chat.values()}
