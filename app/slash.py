"""Slash commands: parsing and completion."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from macspec.errors import BadOptionError

from .actions import ACTIONS, BY_SLASH, Action, Offers, Situation


@dataclass(frozen=True, slots=True)
class Completion:
    """A completion. Its text is untrusted and shown as one neutral line."""

    text: str
    """Replaces what was typed from ``start`` on; after a final space or slash, more is expected."""
    label: str
    """Shown in the list."""
    about: str = ""
    """A short description."""
    start: int = 0
    """Index in the typed text."""
    whole: bool = False
    """Whether it is a command that can be carried out as it is."""
    by_enter: bool = True
    """Whether Enter takes it too; else only Tab, or Enter once it was gone to."""


Complete = Callable[[str], Sequence[Completion]]
"""Returns completions for the text before the cursor, best first; called at every key."""


COMMAND = re.compile(r"/([A-Za-z][\w-]*)(?:\s+(.*))?", re.DOTALL)

SEARCHED = 3
"""Letters from which on the descriptions of arguments are searched too."""


def parse(text: str) -> tuple[Action, str] | None:
    """The action and the argument of a command; None: it is a message for the model.

    A path such as /etc/hosts is a message, and so is a text that begins with a space;
    BadOptionError: the command is unknown, or takes no argument.
    """
    if text.strip() == "/" and not text[0].isspace():
        raise BadOptionError("write a command after the slash; /help lists them")
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
    return action, argument


def continuations(text: str, offers: Offers) -> Sequence[Completion]:
    """Completions of a line that begins a command: names, then arguments."""
    if not text.startswith("/") or "\n" in text:
        return ()
    name, space, argument = text[1:].partition(" ")
    if not space:
        return _names(name.lower(), offers.situation)
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
    more = " " * (" " in action.argument.strip("[]"))  # Such as the value after a name.
    return [
        Completion(f"/{name} {value}{more}", value, what, whole=not more)
        for value, what in (*begun, *about)
    ]


def _names(begun: str, situation: Situation) -> list[Completion]:
    """Commands that begin so; those that are possible now come first."""
    by_name = [action for action in ACTIONS if action.slash.startswith(begun)]
    by_alias = [
        action
        for action in ACTIONS
        if action not in by_name and any(alias.startswith(begun) for alias in action.aliases)
    ]
    return [
        Completion(
            f"/{action.slash} " if action.argument else f"/{action.slash}",
            action.usage,
            action.about,
            whole=bool(begun),
        )
        for action in sorted(
            (*by_name, *by_alias), key=lambda it: it.refusal(situation) is not None
        )
    ]
