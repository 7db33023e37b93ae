"""Everything that the live panel shows, as plain values: the panel is a pure function of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of the speed history at which the user changed something."""

    at: int
    """Index into ``PanelState.speeds``."""
    what: str
    """For example: depth 4."""


@dataclass(frozen=True, slots=True)
class PanelState:
    """A snapshot; None where something is not known, or was not measured."""

    # What happens.
    activity: str = "no model"
    """no model, loading, ready, reading, writing or waiting (for the engine)."""
    progress: float | None = None
    """Of loading or prefill, 0 to 1."""
    # The pair.
    target: str | None = None
    draft: str | None = None
    draft_off: str | None = None
    """Why there is no draft model, if one was asked for."""
    # Speculation: the reply that streams, or the last one.
    acceptance_now: float | None = None
    """Over the last rounds."""
    acceptance: float | None = None
    """Accepted / drafted over the reply."""
    acceptance_by_position: Sequence[float] = ()
    tokens_per_pass: float | None = None
    tokens: int = 0
    passes: int = 0
    drafter: str | None = None
    """In use in the newest round; None: it was a plain one."""
    round_depth: int | None = None
    """Of the newest round."""
    method: str = "auto"
    depth: int | str = "auto"
    rule: str = "block"
    temperature: float = 0.7
    why: str = ""
    """Why the newest round drafted as it did; while it did not, why not."""
    # Speed.
    tokens_per_s: float | None = None
    """Over the last second or so."""
    tokens_per_s_reply: float | None = None
    """Over the reply's decode."""
    plain_tokens_per_s: float | None = None
    """What plain decoding would give, from the cost curve."""
    speeds: Sequence[float] = ()
    """Newest last, one for each half second of decode."""
    marks: Sequence[Mark] = ()
    ttft_s: float | None = None
    itl_ms_median: float | None = None
    itl_ms_p95: float | None = None
    # Room.
    context_used: int | None = None
    """Tokens."""
    context_limit: int | None = None
    memory_used: int | None = None
    """Bytes."""
    memory_limit: int | None = None
    memory_plan: int | None = None
    """What the pair needs once its context is full."""
    # Power.
    watts: Mapping[str, float] = field(default_factory=dict)
    """By rail, of those that can be read now."""
    joules_per_token: float | None = None
    net_joules_per_token: float | None = None
    plain_joules_per_token: float | None = None
    """Gross, measured over this session's plain replies."""
    energy_reason: str = ""
    """Why there are no watts; empty where there are."""
    energy_source: str = ""
    # Trust.
    kernels: str = ""
    """Ours, MLX's or the reference, in half a sentence."""
    self_test: str = ""
    """When this pair last passed ``macspec check``; empty: never, or not known."""
