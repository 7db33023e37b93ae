"""The form of a conversation's own settings."""

from __future__ import annotations

import pytest
from hostile import TEXTS, harms
from screentext import Host, seen, until

from macspec.app.actions import SAMPLING
from macspec.app.screens.chatsettings import ChatSettingsForm
from macspec.config.schema import Config

GIVEN = ("Be brief.", {"temperature": 0.4, "of_a_newer_macspec": 1})


def form(given=GIVEN, **settings) -> ChatSettingsForm:
    return ChatSettingsForm(*given, Config(), **settings)


@pytest.mark.parametrize("size", [(120, 36), (80, 24), (60, 20), (40, 12)])
async def test_every_field_can_be_reached(size):
    app = Host()
    async with app.run_test(size=size) as pilot:
        await app.ask(form())
        await pilot.press("tab")
        for name in SAMPLING:
            assert app.focused is not None
            assert app.focused.id == name
            label = SAMPLING[name].label
            await until(pilot, lambda label=label: label in seen(app))
            await pilot.press("down")


async def test_what_is_left_alone_stays_to_the_last_bit():
    given = ("a\x1b[31mb\r\n", {"temperature": 0.1234567890123, "seed": 2**63})
    app = Host()
    async with app.run_test() as pilot:
        await app.ask(form(given))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: app.results)
        assert app.results == [given]


async def test_change_set_and_unset():
    app = Host()
    async with app.run_test() as pilot:
        await app.ask(form(focus="temperature"))
        await pilot.press("ctrl+u", "down", *"0.9", "down", *"40", "enter")
        await until(pilot, lambda: app.results)
        assert app.results == [("Be brief.", {"of_a_newer_macspec": 1, "top_p": 0.9, "top_k": 40})]


async def test_the_system_prompt_may_have_several_lines():
    app = Host()
    async with app.run_test() as pilot:
        await app.ask(form())
        await pilot.press("enter", *"Now", "ctrl+s")
        await until(pilot, lambda: app.results)
        assert app.results[0][0] == "Be brief.\nNow"


@pytest.mark.parametrize(
    ("name", "typed"), [("top_p", "5"), ("temperature", "hot"), ("top_k", "-1"), ("seed", "1.5")]
)
async def test_what_cannot_be_is_not_kept(name, typed):
    app = Host()
    async with app.run_test() as pilot:
        await app.ask(form(focus=name))
        await pilot.press("ctrl+u", *typed, "shift+tab", "ctrl+s")
        await until(pilot, lambda: f"{SAMPLING[name].label} must be" in seen(app))
        assert not app.results
        assert app.focused is not None
        assert app.focused.id == name


async def test_escape_asks_once_before_it_throws_away():
    app = Host()
    async with app.run_test() as pilot:
        await app.ask(form())
        await pilot.press(*"x", "escape")
        await until(pilot, lambda: "Esc again" in seen(app))
        assert not app.results
        await pilot.press("escape")
        await until(pilot, lambda: app.results)
        assert app.results == [None]


async def test_escape_without_changes_leaves_at_once():
    app = Host()
    async with app.run_test() as pilot:
        await app.ask(form())
        await pilot.press("escape")
        await until(pilot, lambda: app.results)
        assert app.results == [None]


async def test_a_hostile_system_prompt_is_shown_as_text_and_kept_as_it_is():
    system = "\n".join(text[:200] for text in TEXTS.values())
    given = (system, dict.fromkeys(SAMPLING, TEXTS["answerback"]))
    app = Host()
    async with app.run_test(size=(60, 150)) as pilot:
        await app.ask(form(given))
        app.screen.query_one("#system").styles.height = 120
        await until(pilot, lambda: "DROP TABLE" in seen(app))
        assert not harms(seen(app))
        for _ in SAMPLING:
            await pilot.press("tab", "ctrl+u")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: app.results)
        assert app.results == [(system, {})]
