"""What is asked in a measurement."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from ..conversation import Message

OWN = "macspec"
"""The source of the tasks that ship."""

REPLAY = "replay"
"""The source of tasks from this user's own chats."""


@dataclass(frozen=True, slots=True)
class Task:
    """One prompt, and how far it is answered."""

    id: str
    """Unique within its source. It tells nothing of the text."""
    workload: str
    """The kind of task; the report has a row for each."""
    messages: tuple[Message, ...]
    """The conversation up to the user's turn that is answered, each with role and content."""
    max_tokens: int
    """Longest reply."""
    forced: str | None = None
    """The recorded answer that is decoded along, whatever the target says; None: it writes."""
    language: str = "en"
    """Of the reply: its code in ISO 639, ``und`` where nobody knows."""
    source: str = OWN
    """``OWN``, ``REPLAY`` or a file's name."""
    raw: bool = False
    """The only message is a text to continue as it is, without a chat template."""
    then: tuple[str, ...] = ()
    """The user's later turns, each to be asked after the reply to the one before."""

    @property
    def kind(self) -> str:
        """The workload, and whether it is forced."""
        return f"{self.workload} (forced)" if self.forced is not None else self.workload

    @property
    def digest(self) -> str | None:
        """Tells whether two reports asked the same; None for a user's own chats."""
        if self.source == REPLAY:
            return None
        whole = [list(map(dict, self.messages)), self.max_tokens, self.forced, self.raw, self.then]
        text = json.dumps(whole, sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]
