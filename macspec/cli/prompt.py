"""The prompt: an argument, standard input, or both."""

from __future__ import annotations

import select
import sys

from ..errors import BadOptionError
from ..terminal import say
from .options import decoded

PATIENCE = 2.0
"""Seconds of silence on standard input before the user is told what is being waited for."""


def read_prompt(argument: str | None) -> str:
    """The whole prompt: the argument, an empty line, then what was piped in.

    One newline at the end of standard input is not part of the prompt.

    Raises:
        BadOptionError: the prompt is empty, or not UTF-8.
    """
    parts = [decoded(argument or ""), _piped(waiting=argument is not None)]
    prompt = "\n\n".join(part for part in parts if part)
    if not prompt.strip():
        raise BadOptionError(
            "the prompt is empty; give one as an argument or through standard input"
        )
    return prompt


def _piped(waiting: bool) -> str:
    """Standard input where it is not a terminal; ``waiting``: there is a prompt without it."""
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    if waiting:
        _say_if_silent()
    raw = sys.stdin.buffer.read()
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise BadOptionError(
            f"standard input is not UTF-8: byte 0x{raw[error.start]:02x} at position "
            f"{error.start}; convert it first, for example with iconv"
        ) from None
    return text.removesuffix("\n").removesuffix("\r")


def _say_if_silent() -> None:
    try:
        ready, _, _ = select.select([sys.stdin], [], [], PATIENCE)
    except (OSError, ValueError):
        return
    if not ready:
        say("reading standard input until it ends; add </dev/null to use the argument alone")
