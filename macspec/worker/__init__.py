"""The engine behind an interface that a front end can hold: in a child process, or in this one.

A front end asks an ``EngineClient`` and gets a ``Call``, the stream of events that answers it.
``ProcessEngine`` never imports MLX. ``InProcessEngine`` does, and is left out of this page's names
for that reason: import it from ``macspec.worker.inprocess``.
"""

from __future__ import annotations

from .call import Call
from .client import EngineClient
from .messages import (
    Failed,
    Loaded,
    LoadProgress,
    PairChoice,
    PairInfo,
    ReplyRequest,
    Status,
    Tuned,
    Tuning,
    Unloaded,
    Weighed,
)
from .process import ProcessEngine

__all__ = [
    "Call",
    "EngineClient",
    "Failed",
    "LoadProgress",
    "Loaded",
    "PairChoice",
    "PairInfo",
    "ProcessEngine",
    "ReplyRequest",
    "Status",
    "Tuned",
    "Tuning",
    "Unloaded",
    "Weighed",
]
