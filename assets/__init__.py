"""What ships with macspec: the built-in pair, prompts to try a pair with, traces and curves."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

WORKLOADS = (
    "booking",
    "chat",
    "story",
    "maths",
    "code-edit",
    "summary",
    "retrieval",
    "json",
)


def folder() -> Path:
    """Where all of it lies."""
    return Path(str(files(__name__)))


def pocket() -> tuple[Path, Path]:
    """Folders of the built-in target and its draft model."""
    return folder() / "pocket" / "target", folder() / "pocket" / "draft"


def prompts() -> list[list[dict[str, str]]]:
    """Short conversations, each of which ends with a user's turn."""
    text = (folder() / "prompts" / "chat.json").read_text(encoding="utf-8")
    conversations: list[list[dict[str, str]]] = json.loads(text)
    return conversations


def prompt_files() -> dict[str, Path]:
    """The files of the benchmark's workloads, by name, in the order of the report."""
    return {name: folder() / "prompts" / f"{name}.toml" for name in WORKLOADS}
