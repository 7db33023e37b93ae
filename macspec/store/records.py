"""What the store holds: conversations, and their messages as a tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

USER, ASSISTANT, RAW = "user", "assistant", "raw"
ROLES = (USER, ASSISTANT, RAW)
"""``raw`` is a text that was continued as it stands, without a chat template."""

OPEN, COMPLETE, STOPPED, CUT_OFF = "open", "complete", "stopped", "cut off"
STATES = (OPEN, COMPLETE, STOPPED, CUT_OFF)
"""A reply is open while it streams; the user stops it, and a crash cuts it off."""

FIRST_LINE, BY_MODEL, BY_USER = "first line", "model", "user"
TITLED = (FIRST_LINE, BY_MODEL, BY_USER)
"""Who made a title; a later one overrules an earlier one."""


@dataclass(frozen=True, slots=True)
class GenerationMetadata:
    """How a reply was made. What is not known is None."""

    model: str | None = None
    """The target as the user named it: an absolute folder, or an id; None: the built-in pair's."""
    draft: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    rule: str | None = None
    """The acceptance rule."""
    method: str | None = None
    depth: int | str | None = None
    seed: int | None = None
    stats: Mapping[str, Any] | None = None
    """``ReplyStats.as_dict()``."""
    spans: Sequence[tuple[int, str | None]] | None = None
    """Who wrote the text, in order: characters, and the drafter or None for the target."""
    reasoning_spans: Sequence[tuple[int, str | None]] | None = None
    """The same of the reasoning."""
    energy: Mapping[str, Any] | None = None
    """``ReplyEnergy.as_dict()``."""


@dataclass(frozen=True, slots=True)
class Message:
    """A turn. Siblings have one parent: other replies to a prompt, or other forms of it."""

    id: int
    chat: int
    parent: int | None
    role: str
    """One of ``ROLES``."""
    text: str
    reasoning: str = ""
    state: str = COMPLETE
    """One of ``STATES``."""
    reason: str | None = None
    """Why a reply ended: end, stop, length, context or interrupted; None if it did not."""
    made: float = 0.0
    """Seconds since 1970."""
    metadata: GenerationMetadata | None = None
    """None where no model wrote it."""


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation."""

    id: int
    uid: str
    """Stays the same through export and import."""
    title: str
    """As it was given; for people pass it through ``plaintext.one_line``."""
    titled: str
    """One of ``TITLED``."""
    system: str
    sampling: Mapping[str, Any]
    """What this conversation sets; the rest is as in the settings."""
    unsent: str
    """What was typed into the prompt and not sent."""
    leaf: int | None
    """The last message of the path that is shown; None while there are no messages."""
    made: float
    """Seconds since 1970."""
    changed: float
    deleted: float | None = None
    """When it was deleted; None while it is not."""
    imported: int | None = None
    """The last message that came from a file: to it and those before, nobody here can testify."""
    messages: int = 0
    """How many there are, on all paths."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A conversation in which something was found."""

    chat: Chat
    message: int | None
    """The best message; None: it is the title that matches."""
    role: str
    """The role of that message; empty for a title."""
    excerpt: Sequence[tuple[str, bool]]
    """Pieces of its text, each with whether it matches. Untrusted, as all stored text."""
