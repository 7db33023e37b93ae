"""How deep to draft and with what: what a round costs, what it may bring, and the choice."""

from .after import AfterToken
from .controller import Controller
from .curve import CostCurve
from .ledger import Ledger
from .plan import (
    BUCKETS,
    MAX_DEPTH,
    METHODS,
    OFF,
    PLAIN,
    Offer,
    Plan,
    bucket_of,
    checked_depth,
    checked_method,
    outlook,
)
from .recent import RecentAcceptance
from .survival import Survival

__all__ = [
    "BUCKETS",
    "MAX_DEPTH",
    "METHODS",
    "OFF",
    "PLAIN",
    "AfterToken",
    "Controller",
    "CostCurve",
    "Ledger",
    "Offer",
    "Plan",
    "RecentAcceptance",
    "Survival",
    "bucket_of",
    "checked_depth",
    "checked_method",
    "outlook",
]
