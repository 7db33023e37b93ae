"""How deep to draft and with what: what a round costs, what it may bring, and the choice."""

from .acceptance import BUCKETS, AcceptanceEstimate, RecentAcceptance, bucket_of
from .choice import OFF, PLAIN, Controller, Offer, Plan
from .cost import CostCurve, alike
from .state import ControlState
