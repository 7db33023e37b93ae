"""Every action with its keys and command, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from .actions import ACTIONS, BY_ID, GROUPS, Action
from .keys import SENT_BY_TERMINAL_APP, Keys, shown

KEYS, COMMAND = 6, 11
"""Columns of what stands before the sentence."""

HEADER = (
    "Keys with Ctrl (^) work everywhere; plain ones where the conversation or the panel has the "
    "focus (Tab goes there, Esc back). Ctrl+C twice leaves. Other keys: macspec config set "
    "keys.COMMAND KEY"
)


def table(keys: Keys, width: int = 80) -> Iterator[str]:
    """The lines of the table, none longer than ``width``."""
    yield from textwrap.wrap(HEADER, width)
    for group in GROUPS:
        yield ""
        yield group
        for action in ACTIONS:
            if action.group == group:
                yield from _row(keys, action, width)


def names(keys: Keys, id: str) -> str:
    """The first two keys of an action, rather those that every terminal delivers."""
    own = sorted(keys.of(id), key=lambda key: not SENT_BY_TERMINAL_APP.fullmatch(key))
    return " ".join(shown(key, short=True) for key in own[: max(len(BY_ID[id].keys), 1)][:2])


def _row(keys: Keys, action: Action, width: int) -> Iterator[str]:
    lines = textwrap.wrap(action.about, width - KEYS - COMMAND - 4)
    yield f"  {names(keys, action.id):<{KEYS}}/{action.slash:<{COMMAND}} {lines[0]}"
    for line in lines[1:]:
        yield " " * (KEYS + COMMAND + 4) + line
