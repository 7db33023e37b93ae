"""What widgets tell the app."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from textual.message import Message


@dataclass
class Tune(Message):
    """The user set something that holds from the next round on."""

    changes: Mapping[str, Any]
    """As ``EngineClient.tune`` takes them: method, depth, rule or fields of sampling."""
