"""What the values of conversations may be: of what is imported, and of what a file holds already.

A damaged or foreign file may hold anything in any column, and still must be listed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from ..config.schema import setting_of

LAST_TIME = 253_402_214_400.0
"""Seconds from 1970 to the last day of the year 9999; calendars end there."""

UNKNOWN_TIME = 0.0

LARGEST = 2**64
"""Of a number; arithmetic can take it."""


def is_time(value: object) -> bool:
    """Whether a number is a time, in seconds since 1970, that calendars have."""
    return type(value) in (int, float) and 0 <= value <= LAST_TIME  # type: ignore[operator]


def day(seconds: float) -> str:
    """A time for people."""
    if not is_time(seconds) or seconds == UNKNOWN_TIME:
        return "no date"
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def sampling(values: object) -> dict[str, Any]:
    """The entries that settings allow; the file may hold anything."""
    usable = {}
    for name, value in values.items() if isinstance(values, dict) else ():
        known = setting_of(f"sampling.{name}")
        with suppress(ValueError):
            if known is not None:
                known.kind.check(value)
                usable[name] = value
    return usable


def stored(value: Any) -> Any:
    """A value as SQLite can hold it: text with half a surrogate pair becomes a BLOB."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogatepass")
    return value


def restored(value: Any) -> Any:
    """The reverse of ``stored``, for any bytes."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return value.decode(errors="replace")


def text(value: Any) -> str:
    return "" if value is None else str(restored(value))


def time(value: Any) -> float:
    return value if is_time(value) else UNKNOWN_TIME


def optional(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


def whole(value: Any) -> int | None:
    return value if type(value) is int else None


def one_of(known: Sequence[str], default: str) -> Callable[[Any], str]:
    return lambda value: value if value in known else default


def document(value: Any) -> Any:
    """A column of JSON; None where it is none."""
    try:
        return json.loads(text(value), parse_constant=lambda name: None)
    except (ValueError, RecursionError):
        return None


def numbers(value: object, depth: int = 4) -> bool:
    """Whether a table holds only what a record of numbers may: nested no deeper than this, and
    with numbers that arithmetic can take."""
    match value:
        case dict() | list():
            inner = value.values() if isinstance(value, dict) else value
            return depth > 0 and all(numbers(each, depth - 1) for each in inner)
        case int() | float():
            return -LARGEST <= value <= LARGEST
    return True


def spans(value: object) -> bool:
    """Whether a list holds characters and drafters."""
    return isinstance(value, list) and all(map(_is_span, value))


def _is_span(value: object) -> bool:
    match value:
        case [int(length), None | str()]:
            return not isinstance(length, bool) and 0 <= length <= LARGEST
    return False


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_whole(value: object) -> bool:
    return type(value) is int and numbers(value)


def _is_table(value: object) -> bool:
    return isinstance(value, dict) and numbers(value)


METADATA: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("model", "draft", "rule", "method"), _is_text),
    "depth": lambda value: _is_text(value) or _is_whole(value),
    "seed": _is_whole,
    **dict.fromkeys(("sampling", "stats", "energy"), _is_table),
    **dict.fromkeys(("spans", "reasoning_spans"), spans),
}
"""What each field of ``GenerationMetadata`` may hold, in the file and in what is imported."""
