"""Key bindings: those of the actions, and the user's own from ``[keys]``."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from macspec.errors import BadOptionError, quoted

from .actions import ACTIONS, BY_GROUP, BY_ID, BY_SLASH, Situation

NAMED = {
    "escape": "Esc",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "pageup": "PageUp",
    "pagedown": "PageDown",
    **{
        name: name.capitalize()
        for name in ("enter", "tab", "space", "backspace", "delete", "insert", "home", "end")
    },
    **{f"f{number}": f"F{number}" for number in range(1, 25)},
}
"""Display names of keys that are not characters."""

MODIFIERS = {"ctrl": "Ctrl", "alt": "Alt", "shift": "Shift", "super": "Super", "meta": "Meta"}

TAKEN = {
    "ctrl+c": "it stops a reply and quits",
    "ctrl+i": "terminals send it as Tab",
    "ctrl+m": "terminals send it as Enter",
    "ctrl+j": "it starts a new line in the prompt, or sends it",
    "enter": "it sends the prompt, or starts a new line in it",
    "tab": "it moves to the next part of the screen",
    "shift+tab": "it moves to the previous part of the screen",
}
"""Keys that cannot be assigned, and why."""

FUNCTION = re.compile(r"f\d+")

SENT_BY_TERMINAL_APP = re.compile(r"[!-~]|ctrl\+[a-z]|escape|tab|enter|up|down|left|right")
"""Keys that macOS's Terminal delivers with its default settings."""


def everywhere(key: str) -> bool:
    """Whether a key works wherever the focus is, since it neither types nor moves in the prompt."""
    return key.startswith(("ctrl+", "alt+", "super+", "meta+")) or bool(FUNCTION.fullmatch(key))


def shown(key: str, *, short: bool = False) -> str:
    """A key's display name: Ctrl+G, or ^G if short."""
    *modifiers, last = key.split("+") if key != "+" else [key]
    if short and modifiers == ["ctrl"] and len(last) == 1:
        return f"^{last.upper()}"
    name = NAMED.get(last, last.upper() if modifiers else last)
    return "+".join([*(MODIFIERS[modifier] for modifier in modifiers), name])


class Keys:
    """The keys of every action.

    Args:
        own: ``[keys]`` of the settings: by action, keys separated by commas.

    Raises:
        BadOptionError: an action or a key is unknown, or two actions share a key.
    """

    def __init__(self, own: Mapping[str, str] | None = None) -> None:
        self._keys = {action.id: (*action.keys, *action.extra_keys) for action in ACTIONS}
        changed = {_action(name): (name, text) for name, text in (own or {}).items()}
        for id, (name, text) in changed.items():
            self._keys[id] = tuple(_key(name, part) for part in _parts(text))
        owners: dict[str, str] = {}
        for id, key in self:
            other = owners.setdefault(key, id)
            if other != id:
                mine, theirs = (id, other) if id in changed else (other, id)
                raise BadOptionError(
                    f"keys.{mine} in the settings: {key} is the key of {theirs}; choose another "
                    f"one, or change keys.{theirs} too"
                )

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Pairs of action and key."""
        return ((id, key) for id, keys in self._keys.items() for key in keys)

    def of(self, id: str) -> tuple[str, ...]:
        """The keys of an action, in order."""
        return self._keys[id]

    def shown(self, id: str, *, short: bool = False) -> str:
        """The display name of an action's first key."""
        return shown(self._keys[id][0], short=short)


def _action(name: str) -> str:
    """The id of the action with this id or slash command."""
    wanted = name.replace("-", "_")
    if wanted in BY_ID:
        return wanted
    if name in BY_SLASH:
        return BY_SLASH[name].id
    near = get_close_matches(name, [*BY_SLASH, *BY_ID], 1)
    hint = f"did you mean {near[0]}?" if near else "macspec chat --keys lists them"
    raise BadOptionError(f"keys.{name} in the settings: unknown action; {hint}")


def _parts(text: str) -> list[str]:
    """Split at commas; a comma by itself is a key."""
    return [part for part in re.split(r"\s*(?<!^),\s*", text.strip()) if part] or [text]


def _key(name: str, text: str) -> str:
    """A key in the spelling of ``Action.keys``."""
    head, plus, last = text.rpartition("+") if text != "+" else ("", "", text)
    modifiers = head.lower().split("+") if plus else []
    key = last if len(last) == 1 and not modifiers else last.lower()
    whole = "+".join([*modifiers, key])
    if not all(modifier in MODIFIERS for modifier in modifiers) or not (
        key in NAMED or (len(key) == 1 and key.isprintable() and not key.isspace())
    ):
        raise BadOptionError(
            f"keys.{name} in the settings: {quoted(repr(text))} is not a key; use one such as "
            "ctrl+t, f2, left or a single character, or several separated by commas"
        )
    if whole in TAKEN:
        raise BadOptionError(
            f"keys.{name} in the settings: {whole} cannot be changed, because {TAKEN[whole]}"
        )
    return whole


KEYS, COMMAND = 6, 11
"""Widths of the columns before the description."""

HEADER = (
    "Keys with Ctrl (^) work everywhere; plain keys where the conversation or the panel "
    "has the focus (Tab goes there, Esc back). Ctrl+C twice quits. To change a key: "
    "macspec config set keys.COMMAND KEY"
)


def table(keys: Keys, width: int = 80) -> Iterator[str]:
    """The lines of the table, none longer than ``width``."""
    yield from textwrap.wrap(HEADER, width)
    for group, actions in BY_GROUP.items():
        yield ""
        yield group
        for action in actions:
            begin = f"  {names(keys, action.id):<{KEYS}}/{action.slash:<{COMMAND}} "
            yield from indented(begin, action.about, width)


def indented(begin: str, text: str, width: int) -> list[str]:
    """The lines of a text, the first after ``begin``, the others as far to the right."""
    return textwrap.wrap(text, width, initial_indent=begin, subsequent_indent=" " * len(begin))


def names(keys: Keys, id: str) -> str:
    """The first two keys of an action; those that every terminal delivers come first."""
    own = sorted(keys.of(id), key=lambda key: not SENT_BY_TERMINAL_APP.fullmatch(key))
    return " ".join(shown(key, short=True) for key in own[: max(len(BY_ID[id].keys), 1)][:2])


WRITING = (
    ("help", "help"),
    ("tuning", "depth"),
    ("method", "method"),
    ("tint", "tint"),
    ("models", "models"),
    ("chats", "chats"),
    ("new", "new"),
    ("palette", "all commands"),
)
"""Actions to hint at, each in a word, while the prompt has the focus."""

READING = (
    ("help", "help"),
    ("copy", "copy"),
    ("regenerate", "again"),
    ("edit", "edit"),
    ("fork", "fork"),
    ("older", "versions"),
    ("depth", "depth"),
    ("method", "method"),
    ("tint", "tint"),
)
"""The same while the transcript or the panel has the focus; plain keys work there."""


def hints(
    keys: Keys, situation: Situation, writing: bool, *, below: bool = False
) -> Sequence[tuple[str, str]]:
    """Keys and what they do, most important first; ``below``: there is new text out of view."""

    def key(id: str) -> str:
        plain = [key for key in keys.of(id) if len(key) == 1]
        if not writing and plain:
            return plain[0]
        return keys.shown(id, short=True)

    named = [(key(id), what) for id, what in (WRITING if writing else READING)]
    if below:
        named.insert(0, ("/follow" if writing else key("follow"), "↓ new text below"))
    if situation.busy:
        named.insert(0, (keys.shown("stop"), "stop"))
    elif not writing:
        named.insert(0, (keys.shown("stop"), "prompt"))
    return named
