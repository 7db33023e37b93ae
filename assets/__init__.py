"""What ships with macspec: the built-in pair, prompts to try a pair with, traces and curves."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

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


class Pocket(NamedTuple):
    """Folders of the built-in pair."""

    target: Path
    draft: Path
    head: Path


def folder() -> Path:
    """Where all of it lies."""
    return Path(str(files(__name__)))


def pocket() -> Pocket:
    """Where the built-in target, its draft model and its head lie."""
    return Pocket(*(folder() / "pocket" / name for name in Pocket._fields))


def prompts() -> list[list[dict[str, str]]]:
    """Short conversations, each of which ends with a user's turn."""
    text = (folder() / "prompts" / "chat.json").read_text(encoding="utf-8")
    conversations: list[list[dict[str, str]]] = json.loads(text)
    return conversations


def prompt_files() -> dict[str, Path]:
    """The files of the benchmark's workloads, by name, in the order of the report."""
    return {name: folder() / "prompts" / f"{name}.toml" for name in WORKLOADS}
