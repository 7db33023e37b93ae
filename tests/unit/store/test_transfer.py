"""Out as JSON and in again: the same conversations, or a refusal, whatever the file."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hostile import TEXTS, VALUES, harms
from hypothesis import given, settings
from hypothesis import strategies as st
from soundstore import show_everything

from macspec.errors import BadOptionError
from macspec.store import CUT_OFF, GenerationMetadata, Store
from macspec.store.transfer import VERSION, from_json, to_json


def exported(store: Store) -> str:
    return to_json((chat, store.messages(chat.id)) for chat in store.chats())


def without_ids(text: str) -> Any:
    """What an export says, whatever the ids."""
    document = json.loads(text)
    for chat in document["chats"]:
        places = {message["id"]: n for n, message in enumerate(chat["messages"])}
        chat["leaf"] = places.get(chat["leaf"])
        for message in chat["messages"]:
            message["id"] = places[message["id"]]
            message["parent"] = places.get(message["parent"])
    return document


def full_store() -> Store:
    """A tree with every kind of thing in it."""
    store = Store(None)
    chat = store.new_chat(system="Be brief.", sampling={"temperature": 0.1})
    asked = store.add(chat.id, None, "Pears?")
    for text in TEXTS.values():
        reply = store.reply(chat.id, asked.id)
        reply.append(text, text[:100])
        reply.finish(
            "interrupted",
            GenerationMetadata(
                "m",
                None,
                {"top_k": 1},
                "block",
                "auto",
                3,
                2**64 - 1,
                {"a": [1.5]},
                [(1, "n")],
                [(2, None)],
                {"decode": {"rails": {"gpu": 1.5}, "counted": ["gpu"]}},
            ),
        )
    store.set_leaf(chat.id, asked.id)
    store.set_unsent(chat.id, "\x1b[2J")
    raw = store.new_chat()
    store.add(raw.id, None, "Once upon", "raw")
    return store


def test_a_round_trip_keeps_everything() -> None:
    text = exported(full_store())
    assert text.isascii()
    assert harms(text) == []
    store = Store(None)
    store.new_chat()  # so that ids differ
    added = store.import_chats(from_json(text))
    assert all(chat is not None for chat in added)
    assert without_ids(exported(store)) == without_ids(text)


def test_what_is_here_already_is_not_added_again() -> None:
    store = full_store()
    text = exported(store)
    assert store.import_chats(from_json(text)) == [None, None]
    one, other = store.chats()
    store.delete(one.id)
    assert store.import_chats(from_json(text)) == [None, None]
    assert store.chat(one.id).deleted is None
    store.add(other.id, other.leaf, "more")
    added = [chat for chat in store.import_chats(from_json(text)) if chat is not None]
    assert len(added) == 1
    assert added[0].uid != other.uid
    assert len(store.chats()) == 3


def test_a_reply_that_was_streaming_comes_back_cut_off() -> None:
    store = Store(None)
    chat = store.new_chat()
    reply = store.reply(chat.id, store.add(chat.id, None, "a").id)
    reply.append("b")
    reply.save()
    other = Store(None)
    other.import_chats(from_json(exported(store)))
    assert other.messages(1)[1].state == CUT_OFF
    assert other.import_chats(from_json(exported(store))) == [None]


MINIMAL: dict[str, Any] = {
    "format": "macspec conversations",
    "version": 1,
    "chats": [
        {
            "made": 1,
            "messages": [
                {"id": 7, "role": "user", "text": "a", "made": 1},
                {"id": 8, "parent": 7, "role": "assistant", "text": "b", "made": 2.5},
            ],
        }
    ],
}


def test_the_least_that_can_be_imported() -> None:
    store = Store(None)
    (chat,) = store.import_chats(from_json(json.dumps(MINIMAL)))
    assert chat is not None
    assert [turn.text for turn in store.thread(chat.id)] == ["a", "b"]
    assert len(chat.uid) == 32


@pytest.mark.parametrize("ids", [(0, 1), (-5, -4), (2**70, 2**71), (9, 3)])
def test_ids_of_a_file_are_only_its_own(ids: tuple[int, int]) -> None:
    document = copy.deepcopy(MINIMAL)
    first, second = document["chats"][0]["messages"]
    first["id"], second["id"], second["parent"] = ids[0], ids[1], ids[0]
    document["chats"][0]["leaf"] = ids[1]
    store = Store(None)
    (chat,) = store.import_chats(from_json(json.dumps(document)))
    assert chat is not None
    assert [turn.id for turn in store.thread(chat.id)] == [1, 2]
    assert (chat.leaf, chat.imported) == (2, 2)


def changed(**fields: Any) -> Any:
    document = copy.deepcopy(MINIMAL)
    document.update(fields)
    return document


def with_chat(**fields: Any) -> Any:
    document = copy.deepcopy(MINIMAL)
    document["chats"][0].update(fields)
    return document


def with_message(**fields: Any) -> Any:
    document = copy.deepcopy(MINIMAL)
    document["chats"][0]["messages"][1].update(fields)
    return document


deep: Any = 1
for _ in range(50):
    deep = {"a": deep}


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "not an object"),
        ({}, "history export"),
        (changed(format="other"), "history export"),
        (changed(version=VERSION + 1), "newer macspec"),
        (changed(version="1"), "version"),
        (changed(version=True), "version"),
        (changed(chats={}), "^chats is"),
        (changed(chats=[1]), r"^chats\[0\] is not an object"),
        (with_chat(title=5), "title"),
        (with_chat(titled="nobody"), "titled"),
        (with_chat(made="now"), "made"),
        (with_chat(made=10**400), "made"),
        (with_chat(changed=-1e300), "changed"),
        (with_chat(sampling=[]), "sampling"),
        (with_chat(sampling=deep), "sampling"),
        (with_chat(leaf=9), "leaf"),
        (with_chat(messages=[], leaf=1), "leaf"),
        (with_message(id="8"), "id"),
        (with_message(id=7), "id"),
        (with_message(parent=8), "parent"),
        (with_message(parent=9), "parent"),
        (with_message(role="tool"), "role"),
        (with_message(text=None), "text"),
        (with_message(state="done"), "state"),
        (with_message(reason="ünd"), "reason"),
        (with_message(making=[]), "making"),
        (with_message(making={"seed": 1.5}), "seed"),
        (with_message(making={"spans": [[1]]}), "spans"),
        (with_message(making={"spans": [["1", None]]}), "spans"),
        (with_message(making={"spans": [[1, 2]]}), "spans"),
        (with_message(making={"stats": deep}), "stats"),
    ],
)
def test_what_is_damaged_is_refused_with_its_place(document: Any, says: str) -> None:
    with pytest.raises(BadOptionError, match=says):
        from_json(json.dumps(document))


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, '{"a": NaN}', "1" * 10_000, "\ufeff{}", "null"]
)
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(BadOptionError):
        from_json(text)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [path] * bool(path) + [p for key, each in inner for p in places(each, (*path, key))]


def made_here() -> Any:
    """The document of a real export with every field."""
    source = Store(None)
    chat = source.new_chat(sampling={"temperature": 0.1})
    reply = source.reply(chat.id, source.add(chat.id, None, "a").id)
    reply.append("b")
    stats = {"tokens": 2, "ttft_s": 0.1, "seconds": {"decode": 1.0}, "earlier": [{"tokens": 1}]}
    energy = {"decode": {"joules": 1.0, "tokens": 2, "counted": ["gpu"]}}
    metadata = GenerationMetadata(
        "m", "d", {"top_k": 1}, "block", "auto", 3, 5, stats, [(1, None)], [(0, "d")], energy
    )
    reply.finish("end", metadata)
    return json.loads(exported(source))


@pytest.mark.parametrize("count", [30, pytest.param(1500, marks=pytest.mark.slow)])
def test_whatever_is_changed_it_is_refused_or_stops_no_listing(count: int) -> None:
    random, document = Random(count), made_here()
    taken = 0
    for _ in range(count):
        hostile = copy.deepcopy(document)
        for _ in range(random.randint(1, 3)):
            if not places(hostile):
                break
            *path, last = random.choice(places(hostile))
            holder = hostile
            for key in path:
                holder = holder[key]
            if random.random() < 0.2:
                del holder[last]
            else:
                holder[last] = copy.deepcopy(random.choice(VALUES))
        try:
            chats = from_json(json.dumps(hostile))
        except BadOptionError:
            continue
        store = Store(None)
        store.import_chats(chats)
        show_everything(store)
        taken += 1
    assert 0 < taken < count


EXPORT = json.dumps(made_here()).encode()


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_bytes_that_are_changed_are_refused_or_stop_no_listing(data: st.DataObject) -> None:
    text = bytearray(EXPORT)
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        chats = from_json(text.decode(errors="replace"))
    except BadOptionError:
        return
    store = Store(None)
    store.import_chats(chats)
    show_everything(store)


@pytest.mark.parametrize("changed", [1e12, -1e12, 253402300800, -62135596801])
def test_a_date_that_no_calendar_has_is_refused(changed: float) -> None:
    with pytest.raises(BadOptionError, match=r"chats\[0\].changed is missing or invalid"):
        from_json(json.dumps(with_chat(changed=changed)))


def test_a_file_with_too_many_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("macspec.store.transfer.MOST_VALUES", 5)
    with pytest.raises(BadOptionError, match="over 5 values"):
        from_json("[" * 6)


def test_all_or_nothing(path: Path) -> None:
    store = Store(path)
    document = copy.deepcopy(MINIMAL)
    document["chats"].append({"made": 1, "messages": "none"})
    with pytest.raises(BadOptionError):
        store.import_chats(from_json(json.dumps(document)))
    assert store.chats() == []
    store.close()
