"""Every error a user can meet. The message is one line: what is wrong, and what to do."""

from __future__ import annotations

from .plaintext import one_line

QUOTED = 200
"""Characters of another library's message that are repeated."""


class MacspecError(Exception):
    """Base of all errors whose message is meant for the user as it stands.

    Args:
        message: what is wrong and what to do; made a single line without control characters,
            since it may quote file names and other libraries.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class BadOptionError(MacspecError):
    """An option or setting has a value that cannot be used."""


class ModelNotFoundError(MacspecError):
    """A model is not on this machine and could not be fetched."""


class ModelBrokenError(MacspecError):
    """A model folder is incomplete, damaged or of a kind that cannot be loaded."""


class PairMismatchError(MacspecError):
    """Target and draft do not fit together and the user asked for exactly this draft."""


class OutOfMemoryError(MacspecError):
    """The pair with its caches does not fit into this machine's memory."""


class ContextOverflowError(MacspecError):
    """The prompt is longer than the target's context."""


class ServerError(MacspecError):
    """A server that is measured beside macspec does not answer, or not as it should."""


def brief(error: BaseException) -> str:
    """What another library's error says, in one line of at most ``QUOTED`` characters."""
    text = one_line(str(error)) or type(error).__name__
    return text if len(text) <= QUOTED else text[: QUOTED - 1] + "…"
