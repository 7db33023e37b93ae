"""How deep to draft and with what: what a round costs, what it may bring, and the choice."""

from .after import AfterToken
from .controller import Controller
from .curve import CostCurve
from .ledger import Ledger
from .plan import (
    BUCKETS,
    OFF,
    PLAIN,
    Offer,
    Plan,
    bucket_of,
    outlook,
)
from .recent import RecentAcceptance
from .survival import Survival

__all__ = [
    "BUCKETS",
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
    "outlook",
]
