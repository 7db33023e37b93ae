"""The pair that words of a command stand for."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from macspec.config.schema import BUILT_IN, NONE
from macspec.errors import BadOptionError
from macspec.models.catalog import Entry, find


def named_pair(argument: str, known: Sequence[Entry]) -> tuple[str | None, str | None]:
    """A pair of the catalogue by its name, or a target and perhaps a draft, folders or ids.

    Args:
        known: the catalogue.

    Returns:
        The target, None for the built-in pair, and the draft, None for none.

    Raises:
        BadOptionError: they name no pair.
    """
    try:
        words = shlex.split(argument)
    except ValueError:
        words = []
    if not 1 <= len(words) <= 2:
        raise BadOptionError("name a pair, or a target and a draft with a space between")
    target, draft = os.path.expanduser(words[0]), words[-1] if len(words) == 2 else None
    if target == BUILT_IN:
        return None, None
    if "/" not in target and not os.path.isdir(target):
        entry = find(target, known)
        target, draft = entry.target, draft or entry.draft
    return target, None if draft in (None, NONE) else os.path.expanduser(draft)
