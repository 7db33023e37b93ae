"""Every error shown to a user. The message is one line: what is wrong, and what to do."""

from __future__ import annotations

from .plaintext import one_line

QUOTED = 200
"""Most characters quoted of another library's message."""

LONGEST = 1000
"""Most characters of a message; of a longer one the middle is left out."""


class MacspecError(Exception):
    """Base of all errors shown to the user; a message may quote file names and other libraries."""

    def __init__(self, message: str) -> None:
        text = one_line(message)
        if len(text) > LONGEST:
            text = f"{text[: LONGEST // 2]}…{text[-LONGEST // 2 :]}"
        super().__init__(text)


class BadOptionError(MacspecError):
    """An option or setting has a value that cannot be used."""


class ModelNotFoundError(MacspecError):
    """A model is not on this machine and could not be downloaded."""


class ModelBrokenError(MacspecError):
    """A model folder is incomplete, damaged or of a kind that cannot be loaded."""


class PairMismatchError(MacspecError):
    """Target and requested draft are incompatible."""


class OutOfMemoryError(MacspecError):
    """The pair with its caches does not fit into this machine's memory."""


class ContextOverflowError(MacspecError):
    """The prompt is longer than the target's context."""


class HostError(MacspecError):
    """A machine of a group cannot take part, or do its part."""


class EngineError(MacspecError):
    """The engine's process refused something, or was lost."""


class GpuLostError(MacspecError):
    """The GPU computes nothing more for this process."""

    def __init__(self) -> None:
        super().__init__(
            "the GPU no longer works for this process after a fault: start macspec again"
        )


class ServerError(MacspecError):
    """A server measured beside macspec does not answer, or gives a bad answer."""


def cause(error: BaseException) -> str:
    """Why something failed, in one line: of an OSError without its number and path."""
    return (error.strerror if isinstance(error, OSError) else None) or brief(error)


def brief(error: BaseException) -> str:
    """Another library's error message in one line of at most ``QUOTED`` characters."""
    return _shortened(one_line(str(error)[: 4 * QUOTED])) or type(error).__name__


def frames(error: BaseException) -> str:
    """The traceback of an error without its message, which may quote the chat."""
    import traceback  # only after a fault

    return f"{''.join(traceback.format_tb(error.__traceback__))}{type(error).__name__}"


def quoted(value: object) -> str:
    """A value of a file in one line of at most ``QUOTED`` characters."""
    text = value if isinstance(value, str) else repr(value)
    return _shortened(one_line(text[: 4 * QUOTED]))


NO_MEMORY = ("alloc", "Insufficient Memory", "out of memory")
"""What MLX's errors say then: of an allocation, of Metal, of CUDA."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the system or the device refused memory."""
    refused = isinstance(error, RuntimeError) and any(it in str(error) for it in NO_MEMORY)
    return refused or isinstance(error, MemoryError)


def known_failure(error: BaseException) -> str | None:
    """What to say of a failure that is no bug: no memory, or a library in Rust that gave up."""
    if is_out_of_memory(error):
        advice = "close other programs, or choose a shorter context or a smaller model"
        return f"not enough memory ({brief(error)}): {advice}"
    if is_panic(error):
        advice = "choose another copy of the model, or change the text"
        return f"a library gave up on this model or text ({brief(error)}): {advice}"
    return None


def is_panic(error: BaseException) -> bool:
    """Whether a library in Rust gave up; that is no ``Exception`` of Python's."""
    return type(error).__name__ == "PanicException"


def _shortened(text: str) -> str:
    return text if len(text) <= QUOTED else text[: QUOTED - 1] + "…"
