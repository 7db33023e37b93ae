"""The one table of actions: what its keys and commands promise."""

from __future__ import annotations

import pytest

from macspec.app.actions import (
    ACTIONS,
    BY_SLASH,
    DEPTHS,
    GROUPS,
    METHODS,
    REASONS,
    RULES,
    SAMPLING,
    Action,
    Situation,
)
from macspec.app.keys import SENT_BY_TERMINAL_APP, TAKEN, Keys
from macspec.app.panel.sliders import SLIDERS
from macspec.choices import HEADS
from macspec.choices import METHODS as ENGINE_METHODS
from macspec.config.schema import SETTINGS


class Nothing:
    """Offers that has nothing to offer."""

    situation = Situation()

    def themes(self) -> list[tuple[str, str]]:
        return []

    models = chats = themes


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.id)
def test_every_action_has_a_key_that_macos_terminal_delivers(action: Action) -> None:
    assert action.keys
    for key in action.keys:
        assert SENT_BY_TERMINAL_APP.fullmatch(key), key


def test_no_two_actions_share_a_key() -> None:
    keys = [key for _, key in Keys()]
    assert len(keys) == len(set(keys))
    assert not set(keys) & set(TAKEN)


def test_no_two_commands_share_a_name() -> None:
    names = [name for action in ACTIONS for name in (action.slash, *action.aliases)]
    assert len(names) == len(set(names)) == len(BY_SLASH)
    assert len({action.id for action in ACTIONS}) == len(ACTIONS)


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.id)
def test_every_action_says_what_it_does(action: Action) -> None:
    assert action.title
    assert action.about.endswith(".")
    assert "\n" not in action.about
    assert action.group in GROUPS
    assert set(action.needs) <= set(REASONS)
    if action.choices is not None:
        assert action.argument
        assert all(len(choice) == 2 for choice in action.choices(Nothing()))


def test_groups_stand_together() -> None:
    order = [GROUPS.index(action.group) for action in ACTIONS]
    assert order == sorted(order)


def test_what_can_be_chosen_is_what_the_settings_allow() -> None:
    assert tuple(METHODS) == tuple(ENGINE_METHODS)
    assert set(SLIDERS["method"].words) == set(METHODS) - {*HEADS, "draft"}
    SETTINGS["speculation.rule"].kind.check(next(iter(RULES)))
    assert all(SETTINGS["speculation.rule"].kind.check(rule) for rule in RULES)
    for depth in DEPTHS:
        SETTINGS["speculation.depth"].kind.from_text(depth)
    assert {f"sampling.{name}" for name in SAMPLING} == {
        key for key in SETTINGS if key.startswith("sampling.")
    }


def test_a_refusal_says_what_is_missing() -> None:
    regenerate = next(action for action in ACTIONS if action.id == "regenerate")
    assert regenerate.refusal(Situation()) == "this conversation is empty"
    assert regenerate.refusal(Situation(turns=True, busy=True)) == REASONS["idle"]
    assert regenerate.refusal(Situation(turns=True)) is None
