"""The engine behind one interface: in a child process, or in this one.

A front end asks an ``EngineClient`` and gets a ``Call``, the stream of events that answers it.
``ProcessEngine`` never imports MLX. ``InProcessEngine`` does, so it is not exported here but from
``macspec.worker.inprocess``.
"""

from __future__ import annotations

from .client import Call, EngineClient
from .messages import (
    Failed,
    Loaded,
    LoadProgress,
    PairChoice,
    PairInfo,
    ReplyRequest,
    ScoreMargin,
    Status,
    Tuned,
    Tuning,
    Unloaded,
)
from .process import Log, ProcessEngine

__all__ = [
    "Call",
    "EngineClient",
    "Failed",
    "LoadProgress",
    "Loaded",
    "Log",
    "PairChoice",
    "PairInfo",
    "ProcessEngine",
    "ReplyRequest",
    "ScoreMargin",
    "Status",
    "Tuned",
    "Tuning",
    "Unloaded",
]
