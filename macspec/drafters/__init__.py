"""Drafters: whatever proposes the next tokens."""

from .drafter import Context, Drafter, Proposal
from .lookup import Lookup
from .model import DraftModel
from .ngram import NGram
from .portfolio import Portfolio

__all__ = ["Context", "DraftModel", "Drafter", "Lookup", "NGram", "Portfolio", "Proposal"]
