"""What people say and what is answered, from the files in ``phrases``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "phrases"


def phrases(topic: str) -> dict[str, Any]:
    """The phrases of a topic, by name."""
    table: dict[str, Any] = json.loads((FOLDER / f"{topic}.json").read_text(encoding="utf-8"))
    return table
