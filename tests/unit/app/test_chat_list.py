"""Conversations as the list shows them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest
from hostile import TEXTS, harms
from hypothesis import given
from hypothesis import strategies as st

from macspec.app.chat.chatlist import (
    Exports,
    file_name,
    find_chats,
    shortened,
    trimmed,
    when,
)
from macspec.errors import BadOptionError
from macspec.store import GenerationMetadata, Store, title_of

NOW = datetime(2026, 11, 21, 15, 0)


@pytest.fixture
def store():
    store = Store(None)
    yield store
    store.close()


def said(store: Store, text: str, *, model: str | None = "owner/name", reply: str = "Yes.") -> int:
    chat = store.new_chat()
    prompt = store.add(chat.id, None, text)
    answer = store.reply(chat.id, prompt.id, GenerationMetadata(model=model))
    answer.append(reply)
    answer.finish("end")
    return chat.id


def test_the_model_is_that_of_the_last_reply(store):
    id = said(store, "One", model=None)
    assert find_chats(store)[0].model == "built-in"
    prompt = store.add(id, store.chat(id).leaf, "again")
    store.reply(id, prompt.id, GenerationMetadata(model="/models/Small-4bit")).finish("end")
    row = find_chats(store)[0]
    assert row.model == "Small-4bit"
    assert row.about == "4 messages · Small-4bit"


def test_a_conversation_with_something_unsent_and_no_reply(store):
    chat = store.new_chat()
    store.set_unsent(chat.id, "half a")
    (row,) = find_chats(store)
    assert (title_of(row.chat), row.about) == ("Untitled", "0 messages · unsent text")


def test_finding_says_where_and_who(store):
    said(store, "Rain tomorrow", reply="Take an\numbrella along.")
    (row,) = find_chats(store, "umbrella")
    assert row.who == "model"
    assert row.excerpt == (("Take an ", False), ("umbrella", True), (" along.", False))
    (row,) = find_chats(store, "rain")
    assert row.excerpt == (("Rain", True), (" tomorrow", False))
    assert not row.who
    assert not find_chats(store, "zebra")
    assert len(find_chats(store, "  ")) == 1


def test_export_by_the_name(store, tmp_path):
    id = said(store, "Question")
    assert "# Question" in Exports(store).write(id, str(tmp_path / "a.md")).read_text()
    whole = json.loads(Exports(store).write(id, str(tmp_path / "a.JSON")).read_text())
    assert whole["chats"][0]["title"] == "Question"
    assert (tmp_path / "a.md").stat().st_mode & 0o777 == 0o600
    for name, wrong in (
        ("a.md", "do the same again"),
        ("no/where.md", "cannot write"),
    ):
        with pytest.raises(BadOptionError, match=wrong):
            Exports(store).write(id, str(tmp_path / name))
    exports = Exports(store)
    with pytest.raises(BadOptionError, match="do the same again to replace it"):
        exports.write(id, str(tmp_path / "a.md"))
    store.rename(id, "Anew")
    assert "# Anew" in exports.write(id, str(tmp_path / "a.md")).read_text()
    with pytest.raises(BadOptionError, match="cannot write"):
        Exports(store).write(id, "nul\0")


def test_searching_holds_no_writer_up(tmp_path, monkeypatch):
    store = Store(tmp_path / "folder" / "chats.db")
    id = said(store, "needle")
    inside = []

    def search(connection, query, limit):
        inside.append(store.add(id, store.chat(id).leaf, "written meanwhile").id)
        return []

    monkeypatch.setattr("macspec.store.store.search", search)
    assert store.search("needle") == []
    assert store.message(inside[0]).text == "written meanwhile"
    store.close()


@pytest.mark.parametrize(
    ("ago", "said"),
    [
        (timedelta(minutes=1), "today 14:59"),
        (timedelta(hours=20), "yesterday 19:00"),
        (timedelta(days=3), "Wed 15:00"),
        (timedelta(days=7), "2026-11-14"),
        (timedelta(days=-2), "2026-11-23"),
    ],
)
def test_when(ago, said):
    assert when((NOW - ago).timestamp(), NOW.timestamp()) == said


def test_a_time_that_is_none():
    assert when(1e300, NOW.timestamp()) == "no date"


@given(st.lists(st.tuples(st.text(max_size=30), st.booleans())), st.integers(2, 20))
def test_the_first_match_stays_and_little_stands_before_it(excerpt, lead):
    pieces = trimmed(tuple(excerpt), lead)
    assert [it for it in pieces if it[1]] == [it for it in excerpt if it[1]]
    if any(match for _, match in excerpt):
        before = next(n for n, (_, match) in enumerate(pieces) if match)
        assert len("".join(text for text, _ in pieces[:before])) <= lead


@given(st.text(max_size=80))
def test_file_names_are_plain(title):
    name = file_name(title, ".md")
    assert name.endswith(".md")
    assert not set(name) & set("/\\\0\n\x1b :")
    assert 4 <= len(name) <= 43


def test_a_file_that_is_there_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.md").touch()
    assert file_name("Notes", ".md") == "notes-2.md"


def test_shortened():
    assert shortened("short") == "short"
    assert shortened("x" * 40) == "x" * 31 + "…"


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_rows_are_neutral(store, text):
    id = said(store, f"word {text[:2000]}", model=text[:60] or None, reply=f"word {text[:2000]}")
    for row in (*find_chats(store), *find_chats(store, "word")):
        pieces = "".join(piece for piece, _ in row.excerpt)
        assert not harms(title_of(row.chat) + row.about + pieces)
        assert "\n" not in title_of(row.chat) + row.about + pieces
    assert file_name(title_of(store.chat(id)), ".md")
    assert store.chat(id)
