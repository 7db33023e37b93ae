"""Choices that are made on the screen, kept in the settings file."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from macspec.config import Effective
from macspec.config.effective import ENVIRONMENT
from macspec.config.schema import SETTINGS
from macspec.errors import BadOptionError


async def remember(settings: Effective, changes: Mapping[str, Any]) -> str | None:
    """Change the file that settings are from.

    Args:
        changes: by key, such as ``app.theme``; what the environment sets is left alone, since it
            would win at the next start.

    Returns:
        Why it could not be kept, in one line.
    """
    wanted = {
        key: value for key, value in changes.items() if settings.origins[key].rank < ENVIRONMENT
    }
    try:
        await asyncio.to_thread(_change, settings, wanted)
    except BadOptionError as error:
        return f"not remembered: {error}"
    return None


def _change(settings: Effective, changes: Mapping[str, Any]) -> None:
    from macspec.config.file import change_file

    for key, value in changes.items():
        change_file(settings.path, SETTINGS[key], value)
