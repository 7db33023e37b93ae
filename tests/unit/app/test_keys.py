"""Keys of one's own, and how keys are shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from macspec.app.actions import ACTIONS
from macspec.app.keys import Keys, everywhere, shown, table
from macspec.errors import BadOptionError


def test_without_own_keys_the_records_hold() -> None:
    keys = Keys()
    for action in ACTIONS:
        assert keys.of(action.id) == (*action.keys, *action.extra_keys)


def test_own_keys_take_the_place_of_the_usual_ones() -> None:
    keys = Keys({"tint": "F5, ctrl+e", "copy-code": ","})
    assert keys.of("tint") == ("f5", "ctrl+e")
    assert keys.of("copy_code") == (",",)
    assert keys.shown("tint") == "F5"


def test_an_action_is_named_by_its_command_too() -> None:
    assert Keys({"quit": "f10"}).of("leave") == ("f10",)


def test_keys_may_be_swapped() -> None:
    keys = Keys({"tint": "ctrl+l", "models": "ctrl+t"})
    assert (keys.of("tint"), keys.of("models")) == (("ctrl+l",), ("ctrl+t",))


@pytest.mark.parametrize(
    ("own", "line"),
    [
        ({"tnt": "f5"}, "keys.tnt in the settings: unknown action; did you mean tint?"),
        ({"tint": "hyper+t"}, "'hyper+t' is not a key"),
        ({"tint": "ctrl+"}, "'ctrl+' is not a key"),
        ({"tint": "shift"}, "'shift' is not a key"),
        ({"tint": "ctrl+c"}, "ctrl+c cannot be changed, because it stops a reply and quits"),
        ({"tint": "Enter"}, "enter cannot be changed"),
        ({"tint": "ctrl+l"}, "ctrl+l is the key of models; choose another one"),
        ({"models": "z"}, "keys.models in the settings: z is the key of reasoning"),
    ],
)
def test_a_mistake_is_told_in_a_line(own: dict[str, str], line: str) -> None:
    with pytest.raises(BadOptionError) as raised:
        Keys(own)
    assert line in str(raised.value)


@pytest.mark.parametrize(
    ("key", "long", "short"),
    [
        ("ctrl+g", "Ctrl+G", "^G"),
        ("escape", "Esc", "Esc"),
        ("+", "+", "+"),
        ("X", "X", "X"),
        ("x", "x", "x"),
        ("left", "←", "←"),
        ("alt+up", "Alt+↑", "Alt+↑"),
        ("f1", "F1", "F1"),
    ],
)
def test_how_keys_are_shown(key: str, long: str, short: str) -> None:
    assert (shown(key), shown(key, short=True)) == (long, short)


def test_which_keys_type_nothing() -> None:
    assert all(map(everywhere, ("ctrl+g", "f1", "alt+up")))
    assert not any(map(everywhere, ("g", "?", "left", "end", "escape", "+")))


def test_the_table_of_the_readme_is_this_one() -> None:
    text = (Path(__file__).parents[3] / "app" / "README.md").read_text(encoding="utf-8")
    shown = text.partition("$ macspec chat --keys\n")[2].partition("\n```")[0]
    assert shown == "\n".join(table(Keys()))
