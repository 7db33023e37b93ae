"""How a model is written down, so that it is found again."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def lasting(model: str | None) -> str | None:
    """A folder by its whole path, so that the model is found from anywhere; an id as it is."""
    if model is not None:
        with suppress(OSError, ValueError):
            if Path(model).is_dir():
                return str(Path(model).resolve())
    return model
