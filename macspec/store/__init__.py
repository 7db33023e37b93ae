"""Conversations on disk."""

from __future__ import annotations

from .records import (
    ASSISTANT,
    BY_MODEL,
    BY_USER,
    COMPLETE,
    CUT_OFF,
    OPEN,
    RAW,
    STOPPED,
    USER,
    Chat,
    GenerationMetadata,
    Hit,
    Message,
)
from .store import Store, store_path
from .streaming import OpenReply

__all__ = [
    "ASSISTANT",
    "BY_MODEL",
    "BY_USER",
    "COMPLETE",
    "CUT_OFF",
    "OPEN",
    "RAW",
    "STOPPED",
    "USER",
    "Chat",
    "GenerationMetadata",
    "Hit",
    "Message",
    "OpenReply",
    "Store",
    "store_path",
]
