"""Slash commands: what a line of the prompt asks for, and how it could go on."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from macspec.errors import BadOptionError

from .actions import ACTIONS, BY_SLASH, Action, Offers


@dataclass(frozen=True, slots=True)
class Completion:
    """One way to go on. All text is untrusted and is shown as a neutral line."""

    text: str
    """What takes the place of what was typed from ``start`` on; where a space or a slash ends it,
    more is expected to follow."""
    label: str
    """What the list shows."""
    about: str = ""
    """A few words beside it."""
    start: int = 0
    """Where in the typed text the part begins that is replaced."""


Complete = Callable[[str], Sequence[Completion]]
"""From the text before the cursor to its completions, best first; quick, since it is called at
every key."""


def nothing(typed: str) -> Sequence[Completion]:
    """No completions at all."""
    return ()


COMMAND = re.compile(r"/([A-Za-z][A-Za-z_-]*)(?:\s+(.*))?", re.DOTALL)

SEARCHED = 3
"""From so many letters on, what an argument stands for is searched too."""


@dataclass(frozen=True, slots=True)
class Command:
    """An action and what it shall be done with."""

    action: Action
    argument: str = ""


def parse(text: str) -> Command | None:
    """The command that a prompt is; None: it is for the model.

    A path such as /etc/hosts is no command, and nor is what begins with a space.

    Raises:
        BadOptionError: it looks like a command, and there is none of that name; or its argument
            is missing, or one too many.
    """
    found = COMMAND.fullmatch(text.rstrip())
    if found is None:
        return None
    name, argument = found[1].lower(), (found[2] or "").strip()
    action = BY_SLASH.get(name)
    if action is None:
        near = get_close_matches(name, BY_SLASH, 1)
        hint = f"did you mean /{near[0]}?" if near else "/help lists them"
        raise BadOptionError(
            f"unknown command /{name}; {hint} (put a space before the slash to send it as text)"
        )
    if argument and not action.argument:
        raise BadOptionError(f"/{action.slash} takes no argument")
    return Command(action, argument)


def continuations(text: str, offers: Offers) -> Sequence[Completion]:
    """How a line that begins a command could go on: names first, then arguments."""
    if not text.startswith("/") or "\n" in text:
        return ()
    name, space, argument = text[1:].partition(" ")
    if not space:
        return _names(name.lower())
    action = BY_SLASH.get(name.lower())
    if action is None or action.choices is None:
        return ()
    wanted = argument.lstrip().lower()
    choices = action.choices(offers)
    if any(value.lower() == wanted for value, _ in choices):
        return ()
    begun = [choice for choice in choices if choice[0].lower().startswith(wanted)]
    about = [
        choice
        for choice in choices
        if choice not in begun and len(wanted) >= SEARCHED and wanted in " ".join(choice).lower()
    ]
    return [Completion(f"/{name} {value}", value, what) for value, what in (*begun, *about)]


def _names(begun: str) -> list[Completion]:
    by_name = [action for action in ACTIONS if action.slash.startswith(begun)]
    by_alias = [
        action
        for action in ACTIONS
        if action not in by_name and any(alias.startswith(begun) for alias in action.aliases)
    ]
    return [
        Completion(
            f"/{action.slash} " if action.argument else f"/{action.slash}",
            f"/{action.slash} {action.argument}".rstrip(),
            action.about,
        )
        for action in (*by_name, *by_alias)
    ]
