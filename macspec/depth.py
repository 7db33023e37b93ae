"""How deep to draft, and with what."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import BadOptionError

MAX_DEPTH = 32
"""Deepest chain: 33 rows in one pass."""

AUTO_DEPTH = 3
"""What ``auto`` means: on most chips a pass of up to 4 rows costs little more than one of 1."""

METHODS = ("auto", "draft", "ngram", "off")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a round drafts with and how deep; depth 0 is plain decoding."""

    drafter: str | None
    depth: int


PLAIN = Plan(None, 0)


def checked_depth(depth: int | str) -> int | str:
    """The depth as given.

    Raises:
        BadOptionError: neither ``auto`` nor 0 to ``MAX_DEPTH``.
    """
    if depth == "auto" or (
        isinstance(depth, int) and not isinstance(depth, bool) and 0 <= depth <= MAX_DEPTH
    ):
        return depth
    raise BadOptionError(f"depth is {depth}; it must be auto or 0 to {MAX_DEPTH}")


def checked_method(method: str) -> str:
    """The method as given.

    Raises:
        BadOptionError: there is no such method.
    """
    if method in METHODS:
        return method
    raise BadOptionError(f"method is {method!r}; it must be one of {', '.join(METHODS)}")
