"""Messages as lines of JSON: strings, numbers and lists of them, never arrays.

A line is ``[call, name, fields]``. Both ends run the same code, so fields go by their order;
``FORMAT`` tells whether they do.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from hashlib import sha256
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ..events import (
    Emitted,
    Finished,
    Notice,
    Prefilled,
    Prefilling,
    ReplyStats,
    Round,
    Seconds,
    Text,
)
from ..stats import SessionStats
from . import messages

TOP = (
    *(messages.Load, messages.ReplyRequest, messages.Tune, messages.Unload),
    *(messages.Ask, messages.Weigh, messages.Stop, messages.Close),
    *(Prefilling, Prefilled, Text, Round, Notice, Finished),
    *(messages.LoadProgress, messages.Loaded, messages.Unloaded, messages.Tuned),
    *(messages.Status, messages.Weighed, messages.Failed),
)
NESTED = (
    *(Emitted, ReplyStats, Seconds, SessionStats),
    *(messages.PairChoice, messages.PairInfo, messages.Tuning),
)

Message = TypeVar("Message")

_FIELDS = {kind: tuple(field.name for field in fields(kind)) for kind in (*TOP, *NESTED)}
_KINDS = {kind.__name__: kind for kind in TOP}

FORMAT = sha256(
    repr([(kind.__name__, names) for kind, names in _FIELDS.items()]).encode()
).hexdigest()[:16]
"""Changes with every message and field."""


def encode(call: int, message: Any) -> bytes:
    """One line, in ASCII, its newline included."""
    line = [call, type(message).__name__, _packed(message)]
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> tuple[int, Any]:
    """The call and the message of a line.

    Raises:
        ValueError, LookupError, TypeError: it is none that ``encode`` makes.
    """
    call, name, packed = json.loads(line)
    return call, _BUILD[_KINDS[name]](packed)


def _packed(value: Any) -> Any:
    names = _FIELDS.get(type(value))
    if names is not None:
        return [_packed(getattr(value, name)) for name in names]
    if type(value) is tuple:
        return [_packed(item) for item in value]
    return value


def _builder(kind: Any) -> Callable[[Any], Any]:
    """What makes an instance of a dataclass of its packed fields."""
    hints = get_type_hints(kind)
    parts = [_converter(hints[name]) for name in _FIELDS[kind]]
    plain = all(part is None for part in parts)

    def build(packed: Any) -> Any:
        if plain:
            return kind(*packed)
        return kind(
            *(
                value if part is None else part(value)
                for part, value in zip(parts, packed, strict=True)
            )
        )

    return build


def _converter(hint: Any) -> Callable[[Any], Any] | None:
    """What makes a value of a type of its packed form; None where they are the same."""
    if hint in _FIELDS:
        return lambda packed: _BUILD[hint](packed)
    if get_origin(hint) is tuple:
        item = _converter(get_args(hint)[0])
        return tuple if item is None else lambda packed: tuple(map(item, packed))
    if get_origin(hint) in (Union, UnionType):
        parts = [part for part in map(_converter, get_args(hint)) if part is not None]
        if not parts:
            return None
        # The only unions here are with None and with a string, which are packed as they are.
        (part,) = parts
        return lambda packed: packed if isinstance(packed, NoneType | str) else part(packed)
    return None


_BUILD = {kind: _builder(kind) for kind in (*TOP, *NESTED)}
