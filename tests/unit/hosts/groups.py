"""Groups of ranks on this machine, and tiny targets that two or three of them can share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tinymodels import saved

SHAPE: dict[str, Any] = {
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "head_dim": 16,
    "hidden_size": 96,
    "linear_num_key_heads": 6,
    "linear_num_value_heads": 6,
    "tie_word_embeddings": True,
}
"""What two and three ranks can divide; a tied output, as the vocabulary has no third."""

FIVE: dict[str, Any] = {
    "hidden_size": 160,
    "num_attention_heads": 5,
    "num_key_value_heads": 5,
    "head_dim": 32,
    "num_hidden_layers": 3,
}
"""What two ranks cannot divide."""


def hosts_file(folder: Path, count: int, **more: Any) -> Path:
    """A group of so many ranks on this machine; more keys for each."""
    path = folder / f"hosts-{count}.json"
    host = {"ssh": "127.0.0.1", "ips": ["127.0.0.1"], **more}
    path.write_text(json.dumps([host] * count))
    return path


def shared_target(folder: Path, name: str, **changes: Any) -> Path:
    """A target of that architecture in a folder."""
    path = folder / name
    return path if path.exists() else saved(name, path, **{**SHAPE, **changes})
