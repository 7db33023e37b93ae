"""How deep to draft and with what: what a round costs, what it may bring, and the choice."""

from .acceptance import BUCKETS, AfterToken, RecentAcceptance, Survival, bucket_of
from .controller import OFF, PLAIN, Controller, Offer, Plan, outlook
from .cost import CostCurve
from .state import Ledger

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
