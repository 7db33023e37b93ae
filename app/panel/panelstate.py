"""Everything the live panel shows, as plain values: the panel is a pure function of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Mark(NamedTuple):
    """A point of the speed history at which the user changed a setting."""

    at: int
    """Index into ``PanelState.speeds``."""
    what: str
    """For example: depth 4."""


@dataclass(frozen=True, slots=True)
class PanelState:
    """A snapshot; None where something is unknown or was not measured."""

    activity: str = "no model"
    """no model, loading, ready, reading, writing or waiting (for the engine)."""
    progress: float | None = None
    """Of loading or prefill, from 0 to 1."""
    target: str | None = None
    draft: str | None = None
    draft_off: str | None = None
    """Why there is no draft model although one was requested."""
    rollback: str | None = None
    """How rows are taken back from the target's stateful layers; None: it has none."""
    head: str | None = None
    """The drafting method of the target's head; None: it has none."""
    # Speculation, in the current reply or the last one.
    acceptance_now: float | None = None
    """Over the latest rounds."""
    acceptance: float | None = None
    """Accepted / drafted over the reply."""
    acceptance_by_position: Sequence[float] = ()
    tokens_per_pass: float | None = None
    tokens: int = 0
    passes: int = 0
    drafter: str | None = None
    """Of the latest round; None: it did not draft."""
    round_depth: int | None = None
    round_drafted: int = 0
    """Tokens that the latest round drafted, and how many of them were accepted."""
    round_accepted: int = 0
    method: str = "auto"
    depth: int | str = "auto"
    rule: str = "block"
    temperature: float = 0.7
    why: str = ""
    """Why the latest round drafted the way it did, or did not draft."""
    # Speed.
    tokens_per_s: float | None = None
    """Over the last second or so."""
    tokens_per_s_reply: float | None = None
    """Over the reply's decode."""
    plain_tokens_per_s: float | None = None
    """What plain decoding reached with this pair at this context; None: it was not measured."""
    session_tokens: int = 0
    """Decoded since the pair was loaded."""
    session_tokens_per_s: float | None = None
    session_speedup: float | None = None
    """Over plain decoding, in the replies that drafted and whose plain speed was measured."""
    speeds: Sequence[float] = ()
    """One per half second of decode, the newest last."""
    marks: Sequence[Mark] = ()
    ttft_s: float | None = None
    itl_ms_median: float | None = None
    itl_ms_p95: float | None = None
    # Capacity.
    context_used: int | None = None
    """Tokens."""
    context_limit: int | None = None
    memory_used: int | None = None
    """Bytes."""
    memory_limit: int | None = None
    memory_plan: int | None = None
    """What the pair needs with a full context."""
    # Energy.
    watts: Mapping[str, float] = field(default_factory=dict)
    """By power rail, where readings exist."""
    joules_per_token: float | None = None
    net_joules_per_token: float | None = None
    plain_joules_per_token: float | None = None
    """Gross, over this session's plain replies."""
    energy_reason: str = ""
    """Why there are no watts; empty where there are."""
    energy_source: str = ""
    # Exactness.
    kernels: str = ""
    """What computes: our kernels, MLX's or the reference."""
    self_check: str = ""
    """Result and time of this pair's last ``macspec check``; empty: none known."""
