"""What can be completed while somebody types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


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
