"""Watts and joules without special rights, or the reason why there are none."""

from __future__ import annotations

from .awake import awake
from .choice import choose
from .clocks import ClockWatch
from .conditions import Conditions, conditions
from .energy import ByMode, Energy, Saving
from .history import Watts
from .idle import Idle, remember_idle, remembered_idle
from .meter import Meter
from .reply import ReplyEnergy, ReplyWatch
from .source import NoSource, PowerError, PowerSource, Rail, Reading

__all__ = [
    "ByMode",
    "ClockWatch",
    "Conditions",
    "Energy",
    "Idle",
    "Meter",
    "NoSource",
    "PowerError",
    "PowerSource",
    "Rail",
    "Reading",
    "ReplyEnergy",
    "ReplyWatch",
    "Saving",
    "Watts",
    "awake",
    "choose",
    "conditions",
    "remember_idle",
    "remembered_idle",
]
