"""``macspec history``: what it shows, writes, takes in and takes away."""

from __future__ import annotations

import io
import json
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hostile import TEXTS, harms

from macspec.store import GenerationMetadata, Store, store_path

DAY = r"\d{4}-\d\d-\d\d \d\d:\d\d"


pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def three(home: Path) -> None:
    """Three conversations; the second was changed last."""
    store = Store(store_path())
    for prompt in ("Apples?", "Pears?", "Plums?"):
        chat = store.new_chat()
        reply = store.reply(chat.id, store.add(chat.id, None, prompt).id)
        reply.append(f"{prompt[:-1]} are fruit.")
        reply.finish()
    store.add(2, store.chat(2).leaf, "Really?")
    store.close()


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("action", [[], ["list"]])
def test_the_list(macspec: Callable[..., Any], action: list[str]) -> None:
    lines = macspec("history", *action).out.decode()
    assert re.fullmatch(rf"2  {DAY}  Pears\?\n3  {DAY}  Plums\?\n1  {DAY}  Apples\?\n", lines)


@pytest.mark.usefixtures("three")
def test_the_list_for_programs(macspec: Callable[..., Any]) -> None:
    lines = macspec("history", "list", "--json", "--limit", "2").out.splitlines()
    chats = [json.loads(line) for line in lines]
    assert [(chat["id"], chat["title"], chat["messages"]) for chat in chats] == [
        (2, "Pears?", 3),
        (3, "Plums?", 2),
    ]


def test_nothing_yet(macspec: Callable[..., Any]) -> None:
    outcome = macspec("history")
    assert (outcome.status, outcome.out) == (0, b"")
    assert outcome.err == "macspec: no conversations yet\n"
    assert macspec("history", "list", "--json").err == ""
    assert "no conversation to show" in macspec("history", "show").error
    assert "nothing to restore" in macspec("history", "undo").error
    assert macspec("history", "export").out == b""


@pytest.mark.usefixtures("three")
def test_a_search(macspec: Callable[..., Any]) -> None:
    outcome = macspec("history", "search", "fruit", "pear")
    assert outcome.status == 0
    assert re.fullmatch(rf"2  {DAY}  Pears\?\n    Pears are fruit\.\n", outcome.out.decode())
    (line,) = macspec("history", "search", "--json", "fruit pear").out.splitlines()
    hit = json.loads(line)
    assert (hit["chat"]["id"], hit["role"]) == (2, "assistant")
    assert [text for text, match in hit["excerpt"] if match] == ["Pear", "fruit"]
    nothing = macspec("history", "search", "meat")
    assert (nothing.status, nothing.out) == (1, b"")
    assert nothing.err == "macspec: no conversation has meat\n"


@pytest.mark.usefixtures("three")
def test_one_is_shown(macspec: Callable[..., Any]) -> None:
    last = macspec("history", "show").out.decode()
    assert last == macspec("history", "show", "2").out.decode()
    assert re.findall(r"^#+ (\w+)", last, re.MULTILINE) == ["Pears", "You", "built", "You"]
    assert "Pears are fruit." in last


@pytest.mark.usefixtures("three")
def test_exports(macspec: Callable[..., Any], home: Path) -> None:
    shown = macspec("history", "show", "1").out
    assert macspec("history", "export", "1").out == shown
    both = macspec("history", "export", "1", "2").out
    assert both == shown + b"\n---\n\n" + macspec("history", "show", "2").out
    out = home / "all.json"
    outcome = macspec("history", "export", "--out", str(out))
    assert outcome.err == f"macspec: wrote 3 conversations to {out}\n"
    assert out.stat().st_mode & 0o777 == 0o600
    assert out.read_bytes() == macspec("history", "export", "--format", "json").out
    text = home / "one.md"
    macspec("history", "export", "1", "--out", str(text))
    assert text.read_bytes() == shown


@pytest.mark.usefixtures("three")
def test_an_export_overwrites_nothing(macspec: Callable[..., Any], home: Path) -> None:
    mine = home / "mine.md"
    mine.write_text("mine")
    assert "already exists" in macspec("history", "export", "--out", str(mine)).error
    assert mine.read_text() == "mine"
    assert "cannot write" in macspec("history", "export", "--out", str(home / "no" / "x")).error


@pytest.mark.usefixtures("three")
def test_an_import_elsewhere(
    macspec: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    data = macspec("history", "export", "--format", "json").out
    file = home / "all.json"
    file.write_bytes(data)
    outcome = macspec("history", "import", str(file))
    assert outcome.err == "macspec: added 0 conversations; 3 already here\n"
    monkeypatch.setenv("MACSPEC_HOME", str(home / "elsewhere"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert macspec("history", "import", "-").err == "macspec: added 3 conversations\n"
    assert len(macspec("history", "list").out.splitlines()) == 3
    store = Store(store_path())
    assert [turn.text for turn in store.thread(store.chats()[0].id)] == [
        "Pears?",
        "Pears are fruit.",
        "Really?",
    ]
    store.close()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"{}", "not a file of macspec history export"),
        (b"\xff", "is not UTF-8"),
        (b"{", "not valid JSON"),
        (None, "cannot read"),
    ],
)
def test_what_cannot_be_imported(
    macspec: Callable[..., Any], home: Path, data: bytes | None, says: str
) -> None:
    file = home / "in.json"
    if data is not None:
        file.write_bytes(data)
    outcome = macspec("history", "import", str(file))
    assert outcome.status == 2
    assert says in outcome.error
    assert str(file) in outcome.error


@pytest.mark.usefixtures("three")
def test_deletion_and_undo(macspec: Callable[..., Any]) -> None:
    outcome = macspec("history", "delete", "1", "2")
    assert outcome.err == (
        "macspec: deleted 2 conversations: 1 Apples?, 2 Pears? "
        "(macspec history undo restores them)\n"
    )
    assert len(macspec("history").out.splitlines()) == 1
    assert len(macspec("history", "list", "--deleted").out.splitlines()) == 2
    assert "restored 2 conversations" in macspec("history", "undo").err
    assert len(macspec("history").out.splitlines()) == 3
    assert macspec("history", "list", "--deleted").err.endswith("no deleted conversations\n")


@pytest.mark.usefixtures("three")
def test_deletion_for_good(macspec: Callable[..., Any]) -> None:
    assert "(for good)" in macspec("history", "delete", "1", "--for-good").err
    assert macspec("history", "undo").status == 2
    assert b"Apples" not in store_path().read_bytes()


@pytest.mark.usefixtures("three")
def test_renaming(macspec: Callable[..., Any]) -> None:
    assert macspec("history", "rename", "1", "Fruit \x1b[2J").status == 0
    assert "Fruit ␛[2J\n" in macspec("history").out.decode()
    assert "empty" in macspec("history", "rename", "1", " ").error


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    "arguments",
    [["show", "9"], ["export", "1", "9"], ["delete", "1", "9"], ["rename", "9", "x"]],
)
def test_what_is_not_there(macspec: Callable[..., Any], arguments: list[str]) -> None:
    outcome = macspec("history", *arguments)
    assert (outcome.status, outcome.out) == (2, b"")
    assert "there is no conversation 9" in outcome.error
    assert len(macspec("history").out.splitlines()) == 3


@pytest.mark.parametrize(
    "arguments",
    [["show", "x"], ["show", "0"], ["delete"], ["list", "--limit", "0"], ["search"], ["burn"]],
)
def test_wrong_arguments(macspec: Callable[..., Any], arguments: list[str]) -> None:
    outcome = macspec("history", *arguments)
    assert outcome.status == 2
    assert "see macspec history" in outcome.error


def test_a_damaged_file_is_told_and_changes_are_refused(macspec: Callable[..., Any]) -> None:
    store_path().parent.mkdir(parents=True)
    store_path().write_bytes(b"no database " * 1000)
    outcome = macspec("history")
    assert outcome.status == 0
    assert outcome.err.count("it is damaged") == len(outcome.err.splitlines()) == 1
    for change in (["undo"], ["delete", "1"], ["rename", "1", "x"], ["import", "/dev/null"]):
        outcome = macspec("history", *change)
        assert outcome.status == 2
        assert outcome.err.count("it is damaged") == 1


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a conversation for every hostile text, half of them deleted."""
    path = tmp_path_factory.mktemp("hostile") / "chats.db"
    store = Store(path)
    for text in TEXTS.values():
        chat = store.new_chat(system=text)
        reply = store.reply(chat.id, store.add(chat.id, None, f"p {text} after").id)
        reply.append(text, text)
        reply.finish("end", GenerationMetadata(model=text, draft=text))
        store.rename(chat.id, f"A {text}")
    store.delete(*(chat.id for chat in store.chats() if chat.id % 2 == 0))
    store.close()
    return path


@pytest.mark.parametrize(
    "command",
    ["list", "list --deleted", "search p", "search after", "show 1", "export", "undo", "delete 1"],
)
def test_hostile_text_is_shown_and_not_obeyed(
    macspec: Callable[..., Any], on_terminal: Callable[..., str], hostile: Path, command: str
) -> None:
    store_path().parent.mkdir(parents=True)
    shutil.copy(hostile, store_path())
    if command.split()[0] not in ("undo", "delete"):
        shown = on_terminal("history", *command.split())
        assert shown
        assert harms(shown) == []
    piped = macspec("history", *command.split())
    assert piped.status == 0
    assert harms(piped.out.decode()) == []
    assert harms(piped.err) == []


def test_hostile_text_is_exported_and_imported_whole(
    macspec: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    store = Store(store_path())
    for text in TEXTS.values():
        store.add(store.new_chat().id, None, text)
    store.close()
    file = home / "all.json"
    macspec("history", "export", "--out", str(file))
    assert harms(file.read_text()) == []
    monkeypatch.setenv("MACSPEC_HOME", str(home / "elsewhere"))
    macspec("history", "import", str(file))
    store = Store(store_path())
    texts = [store.messages(chat.id)[0].text for chat in store.chats()]
    store.close()
    assert sorted(texts) == sorted(TEXTS.values())


@pytest.mark.usefixtures("three")
def test_the_file_is_checked_and_repaired(macspec: Callable[..., Any]) -> None:
    outcome = macspec("history", "check")
    assert (outcome.status, outcome.out) == (0, b"")
    assert outcome.err == "macspec: the conversations are sound\n"
    with closing(sqlite3.connect(store_path())) as connection:
        connection.execute("UPDATE chats SET changed = 1e12, title = ? WHERE id = 2", ("\x1b[2J",))
        connection.commit()
    listed = macspec("history", "list")
    assert listed.status == 0
    assert "no date" in listed.out.decode()
    outcome = macspec("history", "check")
    assert outcome.status == 1
    assert outcome.out == b"changed of conversation 2 cannot be\n"
    outcome = macspec("history", "repair")
    assert outcome.status == 0
    assert "kept 3 conversations with 7 messages; the damaged file is now " in outcome.err
    assert macspec("history", "check").status == 0
    assert len(list(store_path().parent.glob("chats-damaged-*.db"))) == 1
