"""What ships with macspec: the built-in pair, and prompts to try a pair with."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path


def pocket() -> tuple[Path, Path]:
    """Folders of the built-in target and its draft model."""
    folder = Path(str(files(__name__))) / "pocket"
    return folder / "target", folder / "draft"


def prompts() -> list[list[dict[str, str]]]:
    """Short conversations, each of which ends with a user's turn."""
    text = (files(__name__) / "prompts" / "chat.json").read_text(encoding="utf-8")
    conversations: list[list[dict[str, str]]] = json.loads(text)
    return conversations
