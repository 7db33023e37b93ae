"""Watts and joules without special rights, or the reason why there are none."""

from __future__ import annotations

from .choice import choose
from .conditions import Conditions, awake, conditions
from .energy import ByMode, Energy, ReplyEnergy, Saving
from .history import Idle, Watts, remember_idle, remembered_idle
from .meter import ClockWatch, Meter, ReplyWatch
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
