"""The conversations that ``macspec run`` began."""

from __future__ import annotations

from contextlib import suppress

from ..config.paths import data_folder
from ..io import write_atomic

ONE_SHOTS, KEPT_ONE_SHOTS = "one-shots", 500
"""The file of their uids, and how many it keeps."""


def one_shots() -> list[str]:
    """The uids of the newest conversations that ``macspec run`` began: the app opens none of them
    unasked."""
    try:
        return (data_folder() / "chats" / ONE_SHOTS).read_text().split()
    except OSError:
        return []


def add_one_shot(uid: str) -> None:
    """Note a conversation that ``macspec run`` began."""
    text = "\n".join([*one_shots()[1 - KEPT_ONE_SHOTS :], uid])
    with suppress(OSError):
        write_atomic(data_folder() / "chats" / ONE_SHOTS, f"{text}\n")
