"""Heads that lie in folders of their own: where macspec keeps them, and what they were made for.

Needs no MLX.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config.paths import data_folder
from .catalog import plain_name

if TYPE_CHECKING:
    from ..heads import HeadFiles  # imports MLX

MADE_FOR = "made_for"
"""In the config.json of a head that macspec took from a checkpoint: the checkpoint's id."""

LABELS = {"mtp": "MTP", "eagle": "EAGLE-3", "dflash": "DFlash", "dspark": "DSpark"}

_NAMED = re.compile(r"(.+?)[-_.](?:mtp|assistant)(?=[-_.]|$).*", re.IGNORECASE)


def heads_folder() -> Path:
    """Where heads are kept that were taken from checkpoints."""
    return data_folder() / "heads"


def kept_heads() -> list[Path]:
    """Their folders, by name."""
    return sorted(it.parent for it in heads_folder().glob("*/config.json"))


def label(kind: str) -> str:
    """What people call a head, by its drafting method."""
    return f"{LABELS.get(kind, kind)} head"


def made_for(files: HeadFiles) -> str | None:
    """The target that a head's files or its name tell; None where they do not."""
    own = files.config.get(MADE_FOR)
    if isinstance(own, str):
        return own
    verifier = _table(_table(files.config.get("speculators_config")).get("verifier"))
    if isinstance(named := verifier.get("name_or_path"), str):
        return named
    found = _NAMED.fullmatch(files.name.rstrip("/").rpartition("/")[2])
    return found[1] if found else None


def made_for_another(files: HeadFiles, target: str) -> str | None:
    """The target that it was made for, where that is not this one in some precision."""
    own = made_for(files)
    return None if own is None or plain_name(own) == plain_name(target) else own


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
