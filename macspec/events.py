"""What a reply emits, in the order it happens, and its numbers at the end. Needs no MLX."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Emitted:
    """One token of the reply and where it came from."""

    id: int
    drafter: str | None
    """The drafter whose guess was accepted; None for the target's own token."""


@dataclass(frozen=True, slots=True)
class Prefilling:
    """A chunk of a long prompt has been read."""

    done: int
    """Prompt tokens in the caches of all models that read the prompt."""
    total: int


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The prompt has been read and the first token chosen."""

    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens that were still in the target's cache."""
    seconds: float
    """From the call of ``reply`` to the first token."""
    dropped_messages: int = 0
    """Oldest messages left out to fit the context, system turns not counted."""
    seed: int = 0
    """Of the reply's noise."""


@dataclass(frozen=True, slots=True)
class Committed:
    """What a reply has committed and shown, for another process to go on from."""

    tokens: tuple[Emitted, ...]
    seed: int


@dataclass(frozen=True, slots=True)
class Text:
    """New text in one part of the reply; a round with text in several parts emits several."""

    delta: str
    """Empty while a character, a stop string or a tag is incomplete."""
    tokens: tuple[Emitted, ...]
    """All of the round, in its first text."""
    spans: tuple[tuple[int, str | None], ...] = ()
    """Who wrote ``delta``: a number of characters, and the drafter whose accepted guess they are or
    None for the target's own. They add up to it; held-back text comes from earlier rounds."""
    part: str = "answer"
    """answer, reasoning, or tag: the marker between the two, with the line breaks after it."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token of the reply and the target's own log-probabilities there: of the model's
    distribution, before bias, penalties, temperature and truncation."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()
    """The most likely tokens there, best first."""


@dataclass(frozen=True, slots=True)
class Round:
    """One verify pass: what was drafted, what was accepted, and the time it took."""

    tokens: tuple[int, ...]
    drafter: str | None
    depth: int
    """The planned depth; ``drafted`` is what the drafter delivered."""
    drafted: int
    accepted: int
    seconds: float
    """Wall time since the previous round's tokens were known; for the first, since the call."""
    idle_seconds: float
    """How long the device was idle between that moment and the next dispatch."""
    expected: float = 1.0
    """Tokens that the round was expected to yield."""
    why: str = ""
    """The reason for drafter and depth, in one sentence."""
    branched: bool = False
    """Whether one token of the chain had a sibling, which was verified too."""
    cost: float = 1.0
    """Plain steps that the round was expected to take."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """Of the answer's tokens, where they were asked for."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """Where the time went. With one synchronisation a round, the device's share cannot be split
    into draft and verify; the bench's profile adds synchronisations to measure that."""

    wall: float
    """From the call of ``reply`` to the last token."""
    prefill: float
    """Of that, up to the first token."""
    decode: float
    """The rest."""
    device_idle: float
    """Of decode: the device was idle because the host was between two rounds."""


@dataclass(frozen=True, slots=True)
class ReplyStats:
    """The numbers of one reply; None where there is nothing to measure."""

    prompt_tokens: int
    cached_tokens: int
    tokens: int
    """Tokens emitted, the end-of-turn token included."""
    passes: int
    """Verify passes; the prompt's last pass is the first."""
    drafted: int
    """Drafted tokens that were verified."""
    accepted: int
    acceptance: float | None
    """accepted / drafted."""
    acceptance_by_position: tuple[float, ...]
    """For each position in the chain: accepted / drafted there."""
    tokens_per_pass: float | None
    ttft_s: float | None
    """Time to first token."""
    itl_ms_median: float | None
    """Inter-token latency: a round's wall time shared by its tokens, decode only."""
    itl_ms_p95: float | None
    decode_tokens_per_s: float | None
    """Tokens after the first pass's, over decode seconds."""
    prefill_tokens_per_s: float | None
    """Prompt tokens that were not cached, over TTFT."""
    predicted_speedup: float | None
    """Over plain decoding, as the controller expected: expected tokens / expected plain steps."""
    measured_speedup: float | None
    """Over plain decoding: decode speed times the seconds of this session's plain rounds at about
    the same context; None where there were none."""
    seconds: Seconds
    dropped_messages: int = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


WENT_ON = (
    "the GPU had a fault: the reply goes on without macspec's kernels, which are not used again "
    "until the next start"
)
"""The notice where a reply was not ended by that."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One line that the user should see once."""

    message: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The reply is over. With the keyed rule, ``seed`` repeats it."""

    reason: str
    """end, stop, length, context or interrupted."""
    text: str
    token_ids: tuple[int, ...]
    seed: int
    rule: str
    method: str
    depth: int | str
    stats: ReplyStats


def between_rounds(event: object) -> bool:
    """Whether a round is complete with this event, so that a reply can end here."""
    return not isinstance(event, Text | Prefilled)


Event = Prefilling | Prefilled | Text | Round | Notice | Finished
