"""The list of conversations, by its keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile import TEXTS, harms
from screentext import Host, seen, until

from macspec.app.screens.box import Rows
from macspec.app.screens.conversations import Conversations
from macspec.store import GenerationMetadata, Store

SIZES = [(120, 36), (80, 24), (60, 20), (40, 12)]


@pytest.fixture
def store():
    store = Store(None)
    for title, reply in (
        ("Rain in Lisbon", "Take an umbrella."),
        ("[red]Markup[/red] is text", "It is."),
        ("Sums", "Twelve, with an umbrella on top."),
    ):
        chat = store.new_chat()
        prompt = store.add(chat.id, None, title)
        answer = store.reply(chat.id, prompt.id, GenerationMetadata(model="owner/Model-4bit"))
        answer.append(reply)
        answer.finish("end")
    yield store
    store.close()


def screen(store: Store, **settings) -> Conversations:
    return Conversations(store, **settings)


def listed(app: Host) -> int:
    return app.screen.query_one(Rows).option_count


@pytest.mark.parametrize("size", SIZES)
async def test_shows_what_there_is_at_every_size(store, size):
    app = Host()
    async with app.run_test(size=size) as pilot:
        await app.ask(screen(store))
        await until(pilot, lambda: "Sums" in seen(app))
        text = seen(app)
        assert "Conversations" in text
        assert "2 messages" in text
        assert "Enter open" in text
        if size[1] > 12:
            assert "[red]Markup[/red] is text" in text
            assert "owner/Model-4bit" in text


async def test_search_shows_the_place_and_enter_opens_it(store):
    app = Host()
    async with app.run_test() as pilot:
        await app.ask(screen(store))
        await pilot.press(*"umbrella")
        await until(pilot, lambda: listed(app) == 2)
        await until(pilot, lambda: "model: Take an umbrella." in seen(app))
        await pilot.press("enter")
        await until(pilot, lambda: app.results)
        assert store.chat(app.results[0]).title in ("Rain in Lisbon", "Sums")


async def test_what_was_found_is_marked_without_colour(store):
    app = Host()
    async with app.run_test() as pilot:
        await app.ask(screen(store, query="umbrella"))
        await until(pilot, lambda: listed(app) == 2)
        strips = app.screen._compositor.render_strips()
        marked = [
            segment.text
            for strip in strips
            for segment in strip
            if segment.style is not None and segment.style.reverse and "umb" in segment.text
        ]
        assert marked == ["umbrella", "umbrella"]


async def test_nothing_found(store):
    app = Host()
    async with app.run_test() as pilot:
        await app.ask(screen(store))
        await pilot.press(*"zebra")
        await until(pilot, lambda: listed(app) == 0)
        await until(pilot, lambda: "no matches" in seen(app))
        await pilot.press("enter")
        assert not app.results


async def test_an_empty_store_says_so():
    app = Host()
    async with app.run_test() as pilot:
        await app.ask(screen(Store(None)))
        await until(pilot, lambda: "no conversations yet" in seen(app))
        await pilot.press("down", "d", "r", "f", "e", "enter", "escape")
        await until(pilot, lambda: app.results)
        assert app.results == [None]


async def test_delete_and_undo(store):
    app = Host()
    async with app.run_test() as pilot:
        await app.ask(screen(store))
        await pilot.press("down", "d")
        await until(pilot, lambda: listed(app) == 2)
        await until(pilot, lambda: "deleted Sums; u restores it" in seen(app))
        await pilot.press("d")
        await until(pilot, lambda: listed(app) == 1)
        await pilot.press("u", "u")
        await until(pilot, lambda: listed(app) == 3)
        assert len(store.chats()) == 3
        await pilot.press("escape")
        await until(pilot, lambda: app.results)
        assert app.results == [None]


async def test_undo_without_a_deletion(store):
    app = Host()
    async with app.run_test() as pilot:
        await app.ask(screen(store))
        await pilot.press("down", "u")
        await until(pilot, lambda: "there is nothing to restore" in seen(app))


async def test_the_conversation_that_is_being_written_is_not_deleted(store):
    app = Host()
    async with app.run_test() as pilot:
        await app.ask(screen(store, current=store.chats()[0].id, busy=True))
        await pilot.press("down", "d")
        await until(pilot, lambda: "stop it first" in seen(app))
        assert len(store.chats()) == 3


async def test_rename(store):
    app = Host()
    async with app.run_test() as pilot:
        await app.ask(screen(store))
        await pilot.press("down", "r", "ctrl+u", "enter")
        await until(pilot, lambda: "the title is empty" in seen(app))
        await pilot.press(*"Ten", "enter")
        await until(pilot, lambda: "renamed" in seen(app))
        assert store.chats()[0].title == "Ten"


async def test_fork_is_chosen_and_opened(store):
    app = Host()
    async with app.run_test() as pilot:
        await app.ask(screen(store))
        await pilot.press("down", "down", "f")
        await until(pilot, lambda: listed(app) == 4)
        await until(pilot, lambda: "forked; Enter opens the copy" in seen(app))
        await pilot.press("enter")
        await until(pilot, lambda: app.results)
        (choice,) = app.results
        fork = store.chat(choice)
        assert fork.title == "[red]Markup[/red] is text (fork)"
        assert [turn.text for turn in store.thread(fork.id)][1] == "It is."


async def test_an_empty_conversation_is_not_forked(store):
    store.set_unsent(store.new_chat().id, "half a")
    app = Host()
    async with app.run_test() as pilot:
        await app.ask(screen(store))
        await pilot.press("down", "f")
        await until(pilot, lambda: "this conversation is empty" in seen(app))


async def test_export_never_overwrites(store, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken.md").write_text("mine")
    app = Host()
    async with app.run_test() as pilot:
        await app.ask(screen(store))
        await pilot.press("down", "e", "ctrl+u", *"taken.md", "enter")
        await until(pilot, lambda: "do the same again to replace it" in seen(app))
        await pilot.press("ctrl+u", *"new.md", "enter")
        await until(pilot, lambda: "wrote new.md" in seen(app))
        assert (tmp_path / "taken.md").read_text() == "mine"
        assert "Twelve, with an umbrella" in (tmp_path / "new.md").read_text()
        await pilot.press("J", "enter")
        await until(pilot, lambda: "wrote sums.json" in seen(app))
        assert '"format": "macspec conversations"' in (tmp_path / "sums.json").read_text()


async def test_letters_are_text_while_the_search_has_the_focus(store):
    app = Host()
    async with app.run_test() as pilot:
        await app.ask(screen(store))
        await pilot.press(*"dufer")
        await until(pilot, lambda: listed(app) == 0)
        assert len(store.chats()) == 3
        await pilot.press("ctrl+u", "down", "slash", "d")
        assert len(store.chats()) == 3


async def test_hostile_titles_and_texts_are_only_text():
    store = Store(None)
    texts = [text for text in TEXTS.values() if harms(text)]
    for text in texts:
        chat = store.new_chat()
        store.add(chat.id, None, f"word {text[:3000]}")
        store.rename(chat.id, f"A {text[:500]}")
    app = Host()
    async with app.run_test(size=(60, 4 * len(texts))) as pilot:
        await app.ask(screen(store, query="word"))
        app.screen.query_one("#box").styles.max_height = 1000
        await until(pilot, lambda: listed(app) == len(texts) and "␛" in seen(app))
        assert not harms(seen(app))
