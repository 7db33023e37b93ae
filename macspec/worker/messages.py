"""What front ends ask of an engine and how it answers, and how that crosses a pipe.

Messages travel as lines of JSON, ``[call, {name: fields}]``. Both ends run the same code, so fields
are known by their order; ``FORMAT`` is compared to be sure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import Any, get_args

from ..choices import Think
from ..events import Committed, Emitted, Event, Finished, ReplyStats, Seconds, TokenLogprob

GPU_LOST = 75
"""The exit status of an engine whose process can no longer use the GPU."""


@dataclass(frozen=True, slots=True)
class PairChoice:
    """Load a pair, or switch to it; the arguments of ``load_pair``."""

    target: str | None = None
    """A folder or a Hugging Face id; None: the built-in pair."""
    draft: str | None = None
    context: int | None = None
    kv_bits: int | None = None
    trust_remote_code: bool = False
    require_draft: bool = False
    learn: bool = True
    """Use and save learned costs, acceptance rates and past replies."""
    kernels: str = "auto"
    """auto, off or strict."""
    hosts: str | None = None
    """A file with the machines that the target is spread over; None: this one alone."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """What can be changed between any two rounds, as in ``Settings``."""

    method: str = "auto"
    depth: int | str = "auto"
    rule: str = "block"
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``Sampling``; the others have their defaults."""
    objective: str = "speed"


@dataclass(frozen=True, slots=True)
class ReplyRequest:
    """A conversation to answer; the arguments of ``Session.reply``."""

    messages: str | tuple[Mapping[str, str], ...]
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    raw: bool = False
    think: Think = None
    on_overflow: str = "drop"
    forced: tuple[int, ...] | None = None
    resume: bool = False
    learn: bool = True
    committed: Committed | None = None


@dataclass(frozen=True, slots=True)
class SharedReply:
    """A reply that takes turns with others by rounds; each conversation keeps a cache of its own.

    An event ``Queued`` says that the request is valid; what is wrong with it comes before.
    """

    request: ReplyRequest
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Of the engine's tuning, for this reply."""
    prediction: str = ""
    """A text that the reply will probably repeat in part."""
    logprobs: int | None = None
    """As in ``Session.reply``."""
    tools: str = ""
    """The tools that the model may call, as OpenAI describes them: a list in JSON; empty: none."""
    schema: str = ""
    """The JSON schema that the answer must have; empty: it may be anything."""


@dataclass(frozen=True, slots=True)
class Queued:
    """A shared reply was accepted and waits for its turn."""

    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model calls a tool."""

    name: str
    arguments: str
    """An object in JSON."""


@dataclass(frozen=True, slots=True)
class Tune:
    """Change only what is named, in ``sampling`` too."""

    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GetStatus:
    """Ask for the engine's state."""


@dataclass(frozen=True, slots=True)
class MeasureMargin:
    """Ask how close a choice of a reply was."""

    request: ReplyRequest
    """What the reply answered."""
    said: tuple[int, ...]
    """Tokens of the reply before the choice."""
    tokens: tuple[int, ...]
    """Tokens chosen there in different replies."""


@dataclass(frozen=True, slots=True)
class CountTokens:
    """Ask how long the prompt of a reply would be."""

    request: ReplyRequest
    """Ends with the message that is counted."""


@dataclass(frozen=True, slots=True)
class MeasuredEnergy:
    """Tell the engine what the decode of a reply took."""

    joules: float
    rounds: tuple[tuple[str | None, int, float], ...]
    """Drafter, depth, and the seconds that its rounds took together."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End another call: a reply keeps its text, a load leaves the old pair."""

    call: int


@dataclass(frozen=True, slots=True)
class Close:
    """Save what was learned and exit."""


@dataclass(frozen=True, slots=True)
class PairInfo:
    """A loaded pair; sizes in bytes."""

    target: str
    draft: str | None
    draft_off: str | None
    """Why the requested draft model is not used."""
    context: int
    weights: int
    planned: int
    """What the pair needs with a full context."""
    thinks: bool = True
    """Whether the target's chat template can switch reasoning."""
    rollback: str | None = None
    """How rows are taken back from the target's stateful layers; None: it has none."""
    efforts: tuple[str, ...] = ()
    """The efforts of reasoning that it knows."""
    head: str | None = None
    """The drafting method of its head; None: it has none."""


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """A step of loading; sizes in bytes."""

    stage: str
    """finding (where it is and whether it fits), downloading, reading (the weights), or checking
    (kernels, counted instead of bytes)."""
    done: int = 0
    total: int = 0
    """0: unknown."""
    model: str = ""
    """The model being downloaded."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The pair is ready. With ``kept_cache`` the conversation need not be read again."""

    pair: PairInfo
    kept_cache: bool = False


@dataclass(frozen=True, slots=True)
class Tuned:
    """What applies from the next round on."""

    tuning: Tuning


@dataclass(frozen=True, slots=True)
class Status:
    """The engine's state; sizes in bytes."""

    pair: PairInfo | None
    tuning: Tuning
    why: str
    """Why the newest round drafted as it did, or not at all; before the first round, what is known
    about it."""
    cached_tokens: int
    memory: int
    """Used by arrays."""
    memory_limit: int
    kernels: str = ""
    """Which kernels are used and why; empty while no pair is loaded."""
    plain_seconds: float | None = None
    """Seconds of a plain round at this context, by the rounds of this session; None: unknown."""


@dataclass(frozen=True, slots=True)
class ScoreMargin:
    """How close a choice was."""

    margin: float
    """The best score minus the lowest score of the tokens."""
    tolerance: float
    """Rounding may reorder scores that are no further apart."""


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """How long a prompt would be, in tokens."""

    message: int
    """Of its last message."""
    whole: int
    """With everything before it."""
    least: int
    """With nothing before it but the system prompt: what must be below ``context``."""
    context: int

    @property
    def too_long(self) -> bool:
        return self.least >= self.context

    @property
    def left(self) -> int:
        """What the context has for the message, before older turns are left out."""
        return max(self.context - (self.whole - self.message), 0)


@dataclass(frozen=True, slots=True)
class Failed:
    """A call failed, or a reply was cut off."""

    kind: str
    """refused (nothing has changed), error (an unexpected one; the engine keeps working), crashed
    (the engine is lost, the next call restarts it) or stopped (on request)."""
    message: str
    """What is wrong and what to do, in one line."""
    error: str = ""
    """The class of a refusal's error."""


Command = (
    PairChoice
    | ReplyRequest
    | SharedReply
    | Tune
    | GetStatus
    | MeasureMargin
    | CountTokens
    | MeasuredEnergy
    | Stop
    | Close
)

Answer = (
    Event
    | Queued
    | ToolCall
    | LoadProgress
    | Loaded
    | Tuned
    | Status
    | ScoreMargin
    | PromptTokens
    | Failed
)

Report = Callable[[Answer], None]
"""Takes the events of a load as they happen."""

ENDS: dict[type[Command], type[Answer]] = {
    PairChoice: Loaded,
    ReplyRequest: Finished,
    SharedReply: Finished,
    Tune: Tuned,
    GetStatus: Status,
    MeasureMargin: ScoreMargin,
    CountTokens: PromptTokens,
    MeasuredEnergy: Status,
}
"""What a command's call ends with, if not ``Failed``."""

TOP = (*get_args(Command), *get_args(Answer))
NESTED = (Committed, Emitted, TokenLogprob, ReplyStats, Seconds, PairInfo, Tuning)

_FIELDS = {kind: tuple(field.name for field in fields(kind)) for kind in (*TOP, *NESTED)}
_KINDS = {kind.__name__: kind for kind in _FIELDS}

FORMAT = sha256(
    repr([(name, _FIELDS[kind]) for name, kind in _KINDS.items()]).encode()
).hexdigest()[:16]
"""A hash that changes with every message and field."""


def encode(call: int, message: Any) -> bytes:
    """A message as one ASCII line, newline included."""
    line = json.dumps([call, message], default=_packed, separators=(",", ":"))
    return line.encode() + b"\n"


def decode(line: bytes) -> tuple[int, Any]:
    """The call and the message of a line; ValueError, LookupError or TypeError if it is none."""
    call, message = json.loads(line, object_hook=_unpacked)
    if not isinstance(message, TOP):
        raise ValueError("not a message")
    return call, message


def _packed(value: Any) -> dict[str, list[Any]]:
    kind = type(value)
    return {kind.__name__: [getattr(value, name) for name in _FIELDS[kind]]}


def _unpacked(value: dict[str, Any]) -> Any:
    """A message by its class; other objects are plain mappings."""
    kind = _KINDS.get(next(iter(value), "")) if len(value) == 1 else None
    return value if kind is None else kind(*map(_frozen, *value.values()))


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
