"""Watts and joules without special rights, or the reason why there are none."""

from .choice import choose
from .conditions import Conditions, awake, conditions
from .energy import ByMode, Energy, ReplyEnergy
from .history import remember_idle, remembered_idle
from .meter import ClockWatch, Meter, ReplyWatch
