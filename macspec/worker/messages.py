"""What a front end asks of an engine, and what it answers beside the events of a reply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..events import Event, Finished
from ..stats import SessionStats


@dataclass(frozen=True, slots=True)
class PairChoice:
    """Which models to load; the arguments of ``load_pair``."""

    target: str | None = None
    """A folder or a Hugging Face id; None: the built-in pair."""
    draft: str | None = None
    context: int | None = None
    kv_bits: int | None = None
    trust_remote_code: bool = False
    require_draft: bool = False
    learn: bool = True
    """Use and keep what sessions learn about costs, and past replies to draft from."""
    kernels: str = "auto"
    """auto, off or strict."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """What can be changed between any two rounds, as ``macspec.settings.Settings``."""

    method: str = "auto"
    depth: int | str = "auto"
    rule: str = "block"
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``macspec.sampling.Sampling``; what is not named has its default."""


@dataclass(frozen=True, slots=True)
class ReplyRequest:
    """A conversation to answer; the arguments of ``Session.reply``."""

    messages: str | tuple[Mapping[str, str], ...]
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    raw: bool = False
    think: bool | None = None
    on_overflow: str = "drop"
    forced: tuple[int, ...] | None = None
    resume: bool = False
    learn: bool = True


@dataclass(frozen=True, slots=True)
class Load:
    """Load a pair, or switch to it."""

    choice: PairChoice


@dataclass(frozen=True, slots=True)
class Tune:
    """Change what is named; of ``sampling`` too only the fields that are named."""

    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Unload:
    """Let go of the pair."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask how things are."""


@dataclass(frozen=True, slots=True)
class Weigh:
    """Ask how close a choice was: the one after the first tokens of a reply."""

    request: ReplyRequest
    """What the reply answered."""
    said: tuple[int, ...]
    """Tokens of the reply before the choice."""
    tokens: tuple[int, ...]
    """Those that were chosen there, one way and another."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End another call: a reply keeps what it has, a load leaves the old pair."""

    call: int


@dataclass(frozen=True, slots=True)
class Close:
    """Keep what was learned, and exit."""


@dataclass(frozen=True, slots=True)
class PairInfo:
    """What a front end shows of a loaded pair; sizes in bytes."""

    target: str
    draft: str | None
    draft_off: str | None
    """Why there is no draft model, if one was asked for."""
    context: int
    target_parameters: int
    draft_parameters: int | None
    weights: int
    caches: int
    """Planned for the whole context."""
    buffers: int
    limit: int
    """What this machine gives, less what other engines had planned at that time."""
    thinks: bool = True
    """Whether the target's chat template has a switch for reasoning."""

    @property
    def planned(self) -> int:
        """Bytes that the pair needs once its context is full."""
        return self.weights + self.caches + self.buffers


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """A step of loading."""

    stage: str
    """finding (where it is, and whether it fits), downloading, or reading (the weights)."""
    done: int = 0
    """Bytes."""
    total: int = 0
    """Bytes; 0 where that is not known."""
    model: str = ""
    """The model that is downloaded."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The pair is there. With ``kept_cache`` the conversation need not be read again."""

    pair: PairInfo
    seconds: float
    kept_cache: bool = False


@dataclass(frozen=True, slots=True)
class Unloaded:
    """The pair is gone."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """What holds from the next round on."""

    tuning: Tuning


@dataclass(frozen=True, slots=True)
class Status:
    """How things are; sizes in bytes."""

    pid: int
    pair: PairInfo | None
    tuning: Tuning
    why: str
    """Why the newest round drafted as it did, or not at all; before the first one, what is known of
    it."""
    stats: SessionStats
    """Totals since the pair was loaded."""
    cached_tokens: int
    memory: int
    """In use by arrays."""
    memory_peak: int
    memory_limit: int
    kernels: str = ""
    """Whose kernels compute, and why, in half a sentence; empty while no pair is loaded."""
    plain_seconds: float | None = None
    """What a plain round takes, by the cost curve; None while that is not known."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """How close a choice was."""

    gap: float
    """Best score less the lowest one of the tokens."""
    epsilon: float
    """Scores that are no further apart may swap places by rounding."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A call came to nothing, or a reply was broken off."""

    kind: str
    """refused (nothing has changed), error (an unforeseen one; the engine goes on), crashed (the
    engine is gone, the next call starts it again) or stopped (as was asked)."""
    message: str
    """One line: what is wrong, and what to do."""


Command = Load | ReplyRequest | Tune | Unload | Ask | Weigh | Stop | Close

Answer = Event | LoadProgress | Loaded | Unloaded | Tuned | Status | Weighed | Failed

ENDS: dict[type[Command], type[Answer]] = {
    Load: Loaded,
    ReplyRequest: Finished,
    Tune: Tuned,
    Unload: Unloaded,
    Ask: Status,
    Weigh: Weighed,
}
"""What answers a command in the end, if not ``Failed``."""
